"""The benchmark of reading event files: both readers must find the same values."""

from pathlib import Path

import pytest

from benchmarks import event_reading
from benchmarks.command_line import Settings
from benchmarks.interleaving import StoppingRule


def test_both_readers_must_find_the_same(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(event_reading, "_NUM_STEPS", 3)
    settings = Settings(StoppingRule(min_rounds=1, max_rounds=1), 0, False, "the command")
    rows = event_reading.measure(settings)
    assert [row.what.split(":")[0] for row in rows] == [f"15 scalars, {kind}" for kind in event_reading._WRITERS]
    monkeypatch.setattr(event_reading, "_ours", lambda folder: {})
    with pytest.raises(RuntimeError, match="the same values"):
        event_reading.measure(settings)

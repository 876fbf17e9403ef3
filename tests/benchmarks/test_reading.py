"""The benchmarks of reading: event files, in which both readers must find the same values, and output of scripts."""

from pathlib import Path

import pytest

from benchmarks import event_reading, printed_output
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


def test_the_output_of_scripts_is_scanned_by_the_kind_of_its_lines(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(printed_output, "_NUM_BYTES", 20_000)
    rows = printed_output.measure(Settings(StoppingRule(min_rounds=1, max_rounds=1), 0, False, "the command"))
    assert [row.what for row in rows] == [
        f"{kind}: {way}" for kind in printed_output._KINDS for way in ("unasked", "one --scalar")
    ]
    monkeypatch.setattr(printed_output, "_PATTERNS", [])
    with pytest.raises(RuntimeError, match="The loss must be found"):
        printed_output.measure(Settings(StoppingRule(min_rounds=1, max_rounds=1), 0, False, "the command"))

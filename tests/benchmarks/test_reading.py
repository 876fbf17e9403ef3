"""The benchmarks of reading: growth is told from none, and both readers of event files find the same."""

from pathlib import Path

import pytest

from benchmarks import event_reading
from benchmarks.command import Settings
from benchmarks.interleaving import Patience
from benchmarks.reading_growth import _row, exponent


@pytest.mark.parametrize("power", [0.0, 0.5, 1.0, 2.0])
def test_an_exponent_is_that_of_the_growth(power: float) -> None:
    assert exponent({size: 3.0 * size**power for size in (10, 100, 1000, 10_000)}) == pytest.approx(power)


def test_what_grows_faster_than_the_runs_is_not_met() -> None:
    def verdict(power: float) -> str:
        return _row("a look", {size: [1e-6 * size**power] * 3 for size in (10, 100, 1000, 10_000)}).met

    assert (verdict(0.9), verdict(1.0), verdict(1.5), verdict(2.0)) == ("yes", "yes", "no", "no")


def test_both_readers_must_find_the_same(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(event_reading, "_NUM_STEPS", 3)
    settings = Settings(Patience(min_rounds=1, max_rounds=1), 0, False, "the command")
    rows = event_reading.measure(settings)
    assert [row.what.split(":")[0] for row in rows] == [f"15 scalars, {kind}" for kind in event_reading._WRITERS]
    monkeypatch.setattr(event_reading, "_ours", lambda folder: {})
    with pytest.raises(RuntimeError, match="the same values"):
        event_reading.measure(settings)

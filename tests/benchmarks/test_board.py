"""The benchmark of TensorBoard on many runs, on few."""

import pytest

from benchmarks import board
from benchmarks.command_line import Settings
from benchmarks.interleaving import StoppingRule
from benchmarks.summary import summary


def test_every_way_shows_all_runs(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(board, "_NUM_RUNS", 2)
    monkeypatch.setattr(board, "_SLOW", board._FAST)  # the third way takes as long again, and shows nothing more
    rows = board.measure(Settings(StoppingRule(min_rounds=1, max_rounds=1), 0, False, "the command"))
    assert len(rows) == 2 and all(row.ratio != "-" and row.what.startswith("scalars of 2 runs") for row in rows)
    text = summary({"board": rows})
    assert all(row.what in text for row in rows)  # where it is slower, too

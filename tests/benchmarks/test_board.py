"""The TensorBoard benchmark with few runs."""

import pytest

from benchmarks import board
from benchmarks.command_line import Settings
from benchmarks.interleaving import StoppingRule


def test_every_server_shows_all_runs(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(board, "_NUM_RUNS", 2)
    monkeypatch.setattr(board, "_SLOW", board._FAST)  # the Python reader takes as long again and tests nothing more
    rows = board.measure(Settings(StoppingRule(min_rounds=1, max_rounds=1), 0, False, "the command"))
    assert len(rows) == 2 and all(row.ratio != "-" and row.what.startswith("scalars of 2 runs") for row in rows)

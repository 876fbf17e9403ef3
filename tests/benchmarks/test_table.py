"""The benchmark of the table: its rows, with tiny sweeps."""

import pytest

from benchmarks import table
from benchmarks.command_line import Settings
from benchmarks.interleaving import StoppingRule
from benchmarks.processes import CompletedCommand


def test_runs_with_logged_metrics_are_compared_with_those_without(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(table, "_NUM_RUNS", 120)
    monkeypatch.setattr(table, "_NUM_EPOCHS", 2)
    monkeypatch.setattr(table, "_cli", lambda *_: CompletedCommand(1.0, 1, "", 1.0))
    rows = table.measure(Settings(StoppingRule(min_rounds=1, max_rounds=1), 0, False, "the command"))
    budgets = {row.what: row.budget for row in rows if "logged metrics" in row.what}
    assert budgets == {
        "20 logged metrics a run, cached / none": "at most 1.5",
        "20 logged metrics a run, uncached / none": "at most 1.5",
    }

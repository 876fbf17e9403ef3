"""The benchmark of many sweeps: its rows, with few small sweeps."""

import pytest

from benchmarks import sweeps_listing
from benchmarks.command_line import Settings
from benchmarks.interleaving import StoppingRule
from benchmarks.processes import CompletedCommand


def test_both_commands_have_a_budget_and_growth(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sweeps_listing, "_NUM_SWEEPS", 4)
    monkeypatch.setattr(sweeps_listing, "_NUM_RUNS", 3)
    monkeypatch.setattr(sweeps_listing, "_NUM_EPOCHS", 2)
    monkeypatch.setattr(sweeps_listing, "_SIZES", (2, 4))
    monkeypatch.setattr(sweeps_listing, "run_python", lambda *_, **__: CompletedCommand(1.0, 1, "", 1.0))
    rows = sweeps_listing.measure(Settings(StoppingRule(min_rounds=1, max_rounds=1), 0, False, "the command"))
    assert {row.what: row.budget for row in rows} == {
        "`ls` of 12 stored runs in 4 sweeps": "at most 1 s",
        "`table` of 12 stored runs in 4 sweeps": "at most 1.5 s",
        "`ls` of 12 stored runs in 4 sweeps, first reading": "-",
        "`table` of 12 stored runs in 4 sweeps, first reading": "-",
        "ls of sweeps of 3 runs: 2 to 4 sweeps": "at most ^1.1",
        "table of sweeps of 3 runs: 2 to 4 sweeps": "at most ^1.1",
    }

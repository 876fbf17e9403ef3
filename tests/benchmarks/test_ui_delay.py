"""The benchmark of the live pages, with few small sweeps."""

import pytest

from benchmarks import ui_delay
from benchmarks.command_line import Settings
from benchmarks.interleaving import StoppingRule


def test_an_epoch_reaches_the_page_and_has_a_budget(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ui_delay, "_NUM_SWEEPS", 2)
    monkeypatch.setattr(ui_delay, "_NUM_RUNS", 2)
    monkeypatch.setattr(ui_delay, "_PAUSE_SECONDS", 0.05)
    rows = ui_delay.measure(Settings(StoppingRule(min_rounds=2, max_rounds=2), 0, False, "the command"))
    assert [(row.budget, row.rounds) for row in rows] == [("at most 2 s", "2"), ("at most 0.1", "1"), ("-", "1")]

"""The figures of a search: the best so far by trials and by time, importances, and what pruning changes."""

import msgspec
import pytest

from runmanager.records.run.status import Reason
from runmanager.records.sweep.sweep_record import SweepRecord
from runmanager.results.compare.comparison import compare
from runmanager.results.figures.catalog import sweep_figures
from runmanager.results.findings.best import find_best
from runmanager.results.findings.best_text import best_sentences
from runmanager.results.tables.results_table import result_rows

PLAN = SweepRecord(command=("x",), axes={}, cells=(), created="2026-11-21T12:00:00+00:00", host="anvil", search="tpe")
PRUNED = {"reason": Reason.PRUNED}


def searched(contents, timed, values):
    """A sweep of a trial a minute with these accuracies, of which those without one were pruned early."""
    runs = []
    for at, value in enumerate(values):
        epochs = [
            msgspec.structs.replace(each, val_accuracy=0.99 if value is None else value)
            for each in timed([1.0] * (1 if value is None else 3))
        ]
        runs.append(({"lr": float(at), "width": at % 2}, epochs, PRUNED if value is None else {}))
    return contents(*runs)


def figures(sweep, plan):
    results, comparison = result_rows(sweep, None), compare(sweep, None)
    return {each.name: each for each in sweep_figures(sweep, results=results, comparison=comparison, plan=plan)}


def test_the_best_so_far_rises_by_trials_and_by_seconds_and_pruned_trials_do_not_count(contents, timed):
    sweep = searched(contents, timed, [0.5, None, 0.4, 0.7, 0.6])
    drawn = figures(sweep, PLAN)
    for name, xs in {"best_by_trials": [1, 2, 3, 4, 5], "best_by_seconds": [30, 90, 150, 210, 270]}.items():
        (axes,) = drawn[name].draw().axes
        dots, line = axes.lines
        assert list(line.get_xdata()) == xs and list(line.get_ydata()) == [0.5, 0.5, 0.5, 0.7, 0.7]
        assert len(dots.get_xdata()) == 4
        assert "1 trial has no value: pruned" in drawn[name].caption
    assert "is that of trial 4" in drawn["best_by_trials"].description
    assert not {name for name in figures(sweep, None) if name.startswith("best_by")}


def test_importances_are_those_of_optuna(contents, timed):
    pytest.importorskip("optuna")
    sweep = searched(contents, timed, [0.5 + 0.03 * at for at in range(12)])
    caption = figures(sweep, PLAN)["best_by_trials"].caption
    assert "Importances by Optuna (fANOVA): lr 9" in caption or "Importances by Optuna (fANOVA): lr 100%" in caption


def test_the_best_of_a_search_is_said_to_be_picked_after_it(contents, timed):
    best = find_best(searched(contents, timed, [0.5, None, 0.4, 0.7]), PLAN, metric="val_accuracy")
    said = " ".join(best_sentences(best))
    assert best.num_cells == 3 and "The best of 3 cells was found by a search (tpe) and picked after looking" in said
    assert "by how much is not known without more seeds" in said


def test_curves_of_pruned_runs_are_lighter(contents, timed):
    epochs = timed([1.0] * 3)
    sweep = contents(({"lr": 1}, epochs, {}), ({"lr": 2}, epochs[:2], PRUNED))
    lines = {line.get_label(): line.get_alpha() for line in figures(sweep, PLAN)["curves"].draw().axes[0].lines}
    assert lines["lr=1"] == 1.0 and lines["lr=2"] < 0.5

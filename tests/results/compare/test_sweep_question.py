"""What is compared where no metric is named: the speed, or the results that the varying settings change."""

import msgspec
import pytest

from runmanager.records.run.status import Reason, Status
from runmanager.records.sweep.sweep_record import SweepCommand, add_cells
from runmanager.results.compare.comparison import compare, compare_with_stand_in
from runmanager.results.compare.comparison_table import CompareOptions
from runmanager.results.compare.sweep_question import other_metric, with_metric_of_sweep
from runmanager.results.findings.answer_sentences import answers
from runmanager.results.findings.recommendations import next_steps
from runmanager.results.tables.results_table import result_rows
from runmanager.results.tables.shown_rows import pairs_with_answer


@pytest.fixture
def graded(contents, timed):
    """Factory of runs of two values of a setting, with seeds; the accuracy of the second value is 0.2 lower."""

    def make(*others, axis="lr", seeds=3, device="cpu", **fields):
        runs = []
        for seed in range(seeds):
            for value, accuracy in ((0.1, 0.9), (0.01, 0.7)):
                epochs = [
                    msgspec.structs.replace(epoch, val_accuracy=accuracy + 0.01 * ((seed * (2 + (value < 0.1))) % 3))
                    for epoch in timed([1.0] * 6)
                ]
                runs.append(({axis: value, "seed": seed, "device": device}, epochs, fields))
        return contents(*runs, *others)

    return make


def metric_of(sweep, **options):
    return with_metric_of_sweep(sweep, None, CompareOptions(**options)).metric


@pytest.mark.parametrize("axis", ["lr", "epochs", "optimizer.weight_decay", "scheduler.gamma", "model.dropout"])
def test_where_settings_of_quality_alone_vary_their_results_are_compared(graded, axis):
    sweep = graded(axis=axis)
    table = compare_with_stand_in(sweep, None)
    (row,) = table.rows
    assert (row["axis"], row["metric"], row["verdict"]) == (axis, "val_accuracy", "worse")
    assert other_metric(sweep.runs, None, "val_accuracy") == "samples_per_second"
    assert metric_of(sweep, axis=axis) == "val_accuracy"
    assert compare(sweep, None, CompareOptions(axis=axis)).rows[0]["speedup"] is not None  # files keep their columns
    steps = next_steps(result_rows(sweep, None), table, sweep=sweep.paths, commands={}, settings={}, runs=sweep.runs)
    assert not any("quiet" in step for step in steps)


def test_a_missing_device_does_not_hide_the_results(graded):
    skipped = {"status": Status.SKIPPED, "reason": Reason.DEVICE_UNAVAILABLE}
    gone = [({"lr": lr, "seed": seed, "device": "cuda"}, [], skipped) for seed in range(3) for lr in (0.1, 0.01)]
    rows = compare_with_stand_in(graded(*gone), None).rows
    assert [(row["axis"], row["verdict"]) for row in rows][-1] == ("lr", "worse")


def test_cells_that_differ_in_several_settings_do_not_change_the_question(graded, timed):
    """Such cells, which a later command has added, have nothing to be compared with."""
    added = ({"lr": 0.1, "seed": 0, "device": "cpu", "model": "cnn", "batch_size": 7}, timed([1.0] * 6), {})
    table = compare_with_stand_in(graded(added), None)
    assert {(row["axis"], row["metric"]) for row in table.rows} == {("lr", "val_accuracy")}
    assert "--axis" not in table.legend + " ".join(table.notes), "no other axis has a pair"


def test_all_values_are_shown_and_named_where_one_has_an_answer(graded, timed):
    noisy = [
        (
            {"lr": 0.2, "seed": seed, "device": "cpu"},
            [_with_accuracy(epoch, accuracy) for epoch in timed([1.0] * 6)],
            {},
        )
        for seed, accuracy in enumerate((0.8, 0.9, 0.95))
    ]
    sweep = graded(*noisy)
    table = compare_with_stand_in(sweep, None)
    verdicts = [(row["candidate"], row["verdict"]) for row in pairs_with_answer(table).rows]
    assert verdicts == [(0.01, "worse"), (0.2, "inconclusive")]
    assert any(line.endswith(" Inconclusive: lr=0.2.") for line in answers(result_rows(sweep, None), table))


def _with_accuracy(epoch, accuracy):
    return msgspec.structs.replace(epoch, val_accuracy=accuracy)


@pytest.mark.parametrize(
    ("axis", "seeds"),
    [("batch_size", 3), ("loader.workers", 3), ("model.width", 3), ("optimizer.fused", 3), ("lr", 1)],
)
def test_otherwise_the_speed_is_compared(graded, axis, seeds):
    """Of settings of speed, and where too few runs answer by quality."""
    sweep = graded(axis=axis, seeds=seeds)
    assert metric_of(sweep) == "samples_per_second"
    assert other_metric(sweep.runs, None, "samples_per_second") == "val_accuracy"


def test_runs_that_were_not_timed_are_compared_by_what_they_recorded(graded):
    sweep = graded(axis="width", adopted="there")
    assert metric_of(sweep) == "val_accuracy"
    (row,) = compare(sweep, None, CompareOptions(axis="width")).rows
    assert row["reason"] == (
        "adopted runs were not timed: width=0.1, width=0.01; what they recorded is compared with --metric: "
        "val_accuracy, accuracy, val_loss, loss"
    )


@pytest.fixture
def printed(contents):
    """Four seeds of two programs' settings, without epochs: a score, an accuracy, and no device."""
    runs = []
    for seed in range(4):
        for width, accuracy in ((8, 0.9), (16, 0.6)):
            summary = {"val_accuracy": accuracy + (seed * (2 + (width < 10))) % 4 / 100, "score": accuracy}
            runs.append(({"width": width, "seed": seed}, [], {"summary": summary}))
    return contents(*runs)


def test_runs_without_epochs_are_compared_by_their_final_metric(printed):
    table = compare_with_stand_in(printed, None)
    (row,) = table.rows
    assert (row["axis"], row["metric"], row["verdict"]) == ("width", "val_accuracy", "worse")
    best, verdict, count = answers(result_rows(printed, None), table, runs=printed.runs)
    assert verdict.startswith("width=16 is worse than width=8: its val_accuracy is 0.3050 below width=8's [")
    assert best.startswith("The best val_accuracy is 0.9150 ") and count == "8 runs: 8 finished."
    asked = compare(printed, None, CompareOptions("width", metric="val_accuracy"))
    assert answers(result_rows(printed, None), asked, runs=printed.runs) == [verdict, best, count]


def test_the_metric_that_the_sweep_was_asked_for_is_compared(printed):
    plan = add_cells(None, [], SweepCommand(("runmanager", "sweep"), axes={}))
    assert with_metric_of_sweep(printed, msgspec.structs.replace(plan, metric="score")).metric == "score"

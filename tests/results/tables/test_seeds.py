"""One row for all seeds of a cell: mean ± standard deviation and count."""

import math
import statistics

import msgspec
import pytest

from runmanager.records.run.status import Reason, Status
from runmanager.results.compare.comparison import compare
from runmanager.results.findings.answer_sentences import answers
from runmanager.results.load.loader import read_results
from runmanager.results.sweep import to_dataframe
from runmanager.results.table_model.formatting import Spread, human, human_field
from runmanager.results.tables.results_table import result_rows
from runmanager.results.tables.shown_rows import collapse_seeds, without_shorter_runs
from runmanager.results.tables.sorting import best_first

# By hand: the mean is 5, the squared deviations sum to 32, and the denominator is 8 - 1 = 7.
VALUES = [2.0, 4.0, 4.0, 4.0, 5.0, 5.0, 7.0, 9.0]


def test_mean_and_deviation_match_the_hand_computed_values():
    spread = Spread.of(VALUES)
    assert (spread, spread.count) == (5.0, 8)
    assert spread.deviation == pytest.approx(math.sqrt(32 / 7))
    assert spread.deviation == pytest.approx(statistics.stdev(VALUES))
    assert math.isnan(Spread.of([3.0]).deviation)


@pytest.mark.parametrize(
    ("values", "column", "text"),
    [
        ([0.95, 0.96, 0.97], "val_accuracy", "0.9600 ± 0.0100"),
        ([1.0, 1.5], "epoch_seconds", "1.250 ± 0.354"),
        ([20000.0, 20100.0], "samples_per_second", "20,050 ± 71"),
        ([2**20, 3 * 2**20], "peak_memory_bytes", "2.0 MiB ± 1.4 MiB"),
        ([6, 6], "epochs", "6"),
        ([4, 6], "epochs", "5 ± 1.4"),
        ([0.95], "val_accuracy", "0.9500"),
        ([1e308, 1.5e308], "val_accuracy", "1.25e+308 ± 3.536e+307"),
        ([1e300, 1.0], "loss", "5e+299 ± 7.071e+299"),
        ([0.5, 1e300, 0.5], "val_loss", "3.333e+299 ± 5.774e+299"),
    ],
)
def test_mean_and_deviation_are_rounded_to_the_same_digit(values, column, text):
    assert human(Spread.of(values), column) == text


@pytest.fixture
def seeded(contents, timed):
    """Two devices with three seeds each, at 1, 2 and 3 seconds per epoch on CPU; CUDA's third seed failed."""
    failed = {"status": Status.FAILED, "reason": Reason.DIVERGED}
    return contents(
        *(
            (
                {"lr": 0.1, "device": device, "seed": seed},
                timed([9.0] + [float(seed) * factor] * 5),
                failed if device == "cuda" and seed == 3 else {},
            )
            for seed in (1, 2, 3)
            for device, factor in (("cpu", 1.0), ("cuda", 0.5))
        )
    )


def test_runs_that_differ_only_in_the_seed_are_one_row(seeded):
    table = result_rows(seeded, None)
    collapsed = collapse_seeds(table)
    cuda, cpu = collapsed.rows
    assert (cpu["device"], cpu["seeds"], cpu["status"], cpu["epoch_seconds"]) == ("cpu", 3, "finished", 2.0)
    assert cpu["epoch_seconds"].deviation == 1.0
    # A failed run counts in the status and the reason only.
    assert (cuda["seeds"], cuda["status"], cuda["reason"]) == (2, "2 finished, 1 failed", "diverged")
    assert (cuda["epoch_seconds"], cuda["epoch_seconds"].count) == (0.75, 2)
    assert "seed" not in collapsed.columns
    assert len(table.rows) == 6


def test_answers_are_about_means_and_count_the_runs(seeded):
    sentences = answers(result_rows(seeded, None), compare(seeded, None))
    assert (
        sentences[1]
        == "The best val_accuracy is 0.8750 ± 0.0000 over 2 seeds with device=cuda, and 1 other cell reached the same."
    )
    assert sentences[-1] == "6 runs: 5 finished, 1 failed."


def test_a_table_without_seeds_is_unchanged(contents, timed):
    alone = [({"lr": lr, "seed": lr}, timed([9.0, 1.0]), {}) for lr in (1, 2)]
    table = result_rows(contents(*alone), None)
    assert collapse_seeds(table) is table


def test_a_cell_with_one_seed_has_no_deviation(contents, timed):
    cells = [({"lr": lr, "seed": seed}, timed([9.0, 1.0]), {}) for lr, seed in ((1, 1), (1, 2), (2, 1))]
    rows = collapse_seeds(result_rows(contents(*cells), None)).rows
    assert sorted((row["lr"], row["seeds"], human(row["epoch_seconds"], "epoch_seconds")) for row in rows) == [
        (1, 2, "1.000 ± 0.000"),
        (2, 1, "1.000"),
    ]


def test_pending_seeds_do_not_count_in_means(sweep, timed):
    cells = [{"lr": lr, "seed": seed} for lr in (1, 2) for seed in (1, 2)]
    sweep.plan(*cells)
    sweep.run(cells[0], timed([9.0, 1.0]))
    first, second = collapse_seeds(result_rows(*read_results(sweep.paths))).rows
    assert (first["status"], first["seeds"]) == ("1 finished, 1 pending", 1)
    assert (second["status"], second["seeds"], second["epoch_seconds"]) == ("pending", 0, None)


def test_a_mean_without_all_runs_says_so_and_is_never_the_best(contents, timed):
    """A run whose last value was not finite must not lift the mean of its cell."""
    reached = {(1, 0): 0.8, (1, 1): 0.8, (2, 0): 0.95, (2, 1): 0.9, (2, 2): None}
    sweep = contents(
        *(
            (
                {"lr": lr, "seed": seed},
                [
                    msgspec.structs.replace(each, val_accuracy=value, metrics={"f1": value})
                    for each in timed([9.0, 1.0])
                ],
                {},
            )
            for (lr, seed), value in reached.items()
        )
    )
    results = result_rows(sweep, None)
    table = best_first(collapse_seeds(results))
    assert [(row["lr"], row["seeds"]) for row in table.rows] == [(1, 2), (2, 3)]
    assert human_field(table, table.rows[1], "val_accuracy") == "0.9250 ± 0.0354 (n=2)"
    assert human_field(table, table.rows[1], "f1") == "0.9250 ± 0.0354 (n=2)"
    assert human_field(table, table.rows[1], "accuracy") == "0.7500 ± 0.0000"
    assert "n: only so many have the value" in table.legend
    frame = to_dataframe(table)
    assert frame["val_accuracy_count"].tolist() == [2, 2] and "accuracy_count" not in frame.columns
    said = answers(results, compare(sweep, None), runs=sweep.runs)
    assert said[-2] == (
        "The best val_accuracy is 0.8000 ± 0.0000 over 2 seeds with lr=1. 1 other cell is left out, as not every "
        "finished run there has one."
    )


@pytest.mark.parametrize(("num_continued", "shown"), [(1, [3, 1]), (3, [3])])
def test_a_cell_is_left_out_only_where_longer_runs_continue_all_its_seeds(contents, timed, num_continued, shown):
    def named(run):
        return {"continued_from": run.name}

    shorter = [({"lr": 0.1, "epochs": 2, "seed": seed}, timed([9.0, 1.0]), {}) for seed in range(3)]
    runs = contents(*shorter).runs
    longer = [
        ({"lr": 0.1, "epochs": 3, "seed": seed}, timed([9.0, 1.0, 1.0]), named(runs[seed]))
        for seed in range(num_continued)
    ]
    table = collapse_seeds(without_shorter_runs(result_rows(contents(*shorter, *longer), None)))
    assert sorted((row["seeds"] for row in table.rows), reverse=True) == shown

"""Caveats of a pair: costs that the median of the epochs hides, and outliers among the seeds."""

import dataclasses
import json

import msgspec
import pytest

from runmanager.records.run.run_record import Measurements
from runmanager.records.run.status import Reason, Status
from runmanager.results.compare.caveats import contention_caveats, outlier_caveats, pair_caveats
from runmanager.results.compare.comparison import compare
from runmanager.results.compare.comparison_table import CompareOptions, Side
from runmanager.results.findings.answer_sentences import answers
from runmanager.results.load.cells import gather_cells
from runmanager.results.result_files import write_tables
from runmanager.results.sweep import Sweep
from runmanager.results.tables.results_table import result_rows

STEADY = [9.0] + [1.0] * 9
EVERY_THIRD = [9.0] + [1.0, 1.0, 4.0] * 3
HIDDEN = "periodic or one-off costs that the median hides"


def with_costs(timed, seconds=EVERY_THIRD, seeds=(0,)):
    """Runs of lr=1 with steady epochs and of lr=2 with epochs that took `seconds`."""
    return [({"lr": lr, "seed": seed}, timed(taken), {}) for seed in seeds for lr, taken in ((1, STEADY), (2, seconds))]


def test_results_table_has_overall_rates_and_names_runs_with_hidden_costs(contents, timed):
    table = result_rows(contents(*with_costs(timed)), None)
    rates = {row["lr"]: (row["samples_per_second"], row["overall_samples_per_second"]) for row in table.rows}
    assert rates == {1: (1000.0, 1000.0), 2: (1000.0, 500.0)}
    assert table.columns[-2:] == ["run_dir", "overall_samples_per_second"]
    name = next(row["run"] for row in table.rows if row["lr"] == 2)
    assert table.notes == (f"overall_samples_per_second is below samples_per_second by 50% ({name}): {HIDDEN}.",)


@pytest.mark.parametrize(
    ("seconds", "expected"),
    [
        ([9.0] + [1.0] * 8 + [1.4], None),  # 9 epochs in 9.4 seconds: 4% below
        ([9.0] + [1.0] * 8 + [1.6], f"below samples_per_second by 6% ({{}}): {HIDDEN}."),
        ([9.0] + [1.0] * 8 + [0.1], "above samples_per_second by 11% ({}): faster epochs that the median hides."),
        ([9.0], None),  # warm-up alone
    ],
)
def test_hidden_costs_are_reported_from_five_percent_in_either_direction(contents, timed, seconds, expected):
    table = result_rows(contents(({"lr": 2}, timed(seconds), {})), None)
    notes = [note for note in table.notes if "overall" in note]
    assert [expected.format(table.rows[0]["run"]) in note for note in notes] == ([] if expected is None else [True])


def test_only_the_runs_with_the_largest_hidden_costs_are_named(contents, timed):
    runs = [({"lr": lr}, timed([9.0] + [1.0] * 8 + [float(lr)]), {}) for lr in range(3, 10)]
    (note,) = result_rows(contents(*runs), None).notes
    assert " by 47% (lr=9-" in note and "lr=5-" in note and "lr=4-" not in note
    assert f"and 2 more runs: {HIDDEN}." in note


def test_comparison_by_medians_reports_hidden_costs(contents, timed):
    sweep = contents(*with_costs(timed))
    (row,) = compare(sweep, None, CompareOptions(axis="lr")).rows
    assert row["speedup"] == 1.0
    assert row["reason"].endswith(
        "; lr=2: overall 50% below its median epoch; by `overall_samples_per_second` the speedup is 0.50"
    )
    text = " ".join(answers(result_rows(sweep, None), compare(sweep, None, CompareOptions(axis="lr"))))
    assert "The medians hide slower or faster epochs: see `overall_samples_per_second`." in text
    (by_loss,) = compare(sweep, None, CompareOptions(axis="lr", metric="loss")).rows
    assert "overall" not in (by_loss["reason"] or "")
    (alike,) = compare(contents(*with_costs(timed, STEADY)), None, CompareOptions(axis="lr")).rows
    assert "overall" not in alike["reason"]


def test_hidden_costs_of_several_runs_have_their_count_and_maximum(contents, timed):
    runs = with_costs(timed, seeds=range(3))
    runs[-1] = (runs[-1][0], timed(STEADY), {})
    (row,) = compare(contents(*runs), None, CompareOptions(axis="lr")).rows
    assert "lr=2: overall up to 50% below its median epoch in 2 of 3 runs" in row["reason"]
    runs[-1] = (runs[-1][0], timed([9.0] + [1.0] * 8 + [0.1]), {})
    (row,) = compare(contents(*runs), None, CompareOptions(axis="lr")).rows
    for each in (
        "up to 50% below its median epoch in 2 of 3 runs",
        "up to 11% above its median epoch in 1",
    ):
        assert f"lr=2: overall {each}" in row["reason"]


def test_runs_are_compared_by_overall_rate(contents, timed):
    sweep = contents(*with_costs(timed, seeds=range(3)))
    (row,) = compare(sweep, None, CompareOptions(axis="lr", metric="overall_samples_per_second")).rows
    assert (row["baseline_value"], row["candidate_value"], row["speedup"]) == (1000.0, 500.0, 0.5)
    assert (row["verdict"], row["baseline_runs"]) == ("slower", 3)


def test_overall_rate_is_a_column_of_queries_and_files_have_its_note(sweep, timed):
    for config, epochs, _ in with_costs(timed):
        sweep.run(config, epochs)
    write_tables(sweep.paths)
    rows = json.loads(sweep.paths.results("json").read_text())
    assert {row["lr"]: row["overall_samples_per_second"] for row in rows} == {1: 1000.0, 2: 500.0}
    for path in (sweep.paths.results("md"), sweep.paths.report):
        assert HIDDEN in path.read_text()
    found = Sweep(sweep.paths.root)
    assert list(found.table(sort="overall_samples_per_second")["lr"]) == [1, 2]
    asked = found.table(where="overall_samples_per_second < 900", columns=["overall_samples_per_second"])
    assert asked["overall_samples_per_second"].tolist() == [500.0]
    assert list(found.runs.columns[-2:]) == ["run_dir", "overall_samples_per_second"]


def test_hidden_costs_are_not_a_reason_for_unmeasured_pairs(contents, timed):
    costly = ({"device": "cpu"}, timed(EVERY_THIRD), {})
    skipped = ({"device": "cuda"}, [], {"status": Status.SKIPPED, "reason": Reason.DEVICE_UNAVAILABLE})
    (row,) = compare(contents(costly, skipped), None).rows
    assert row["reason"] == "cuda: skipped (device_unavailable)"


def test_seed_far_behind_the_others_is_named_but_not_one_ahead_or_near(side):
    (line,) = outlier_caveats([side([0.97], [0.98], [0.1], [0.975])])
    assert line == "here: seed=2 with 0.1000 fell far behind the median of 0.9725"
    assert outlier_caveats([side([0.1], [0.11], [0.9], [0.105])]) == []
    assert outlier_caveats([side([0.97], [0.98], [0.95], [0.975])]) == []
    assert outlier_caveats([side([0.9], [0.1])]) == []
    assert len(outlier_caveats([side([0.1], [0.11], [9.0], [0.105], metric="val_loss")])) == 1


def test_finished_runs_without_a_measured_epoch_are_named(contents, timed):
    cells = [({"lr": lr, "seed": seed}, timed([9.0] + [lr] * 6), {}) for seed in range(3) for lr in (1.0, 2.0)]
    cells[-1] = (cells[-1][0], timed([9.0]), {})
    (row,) = compare(contents(*cells), None, CompareOptions(axis="lr")).rows
    assert row["verdict"] != "not measured" and (row["baseline_epochs"], row["candidate_epochs"]) == (18, 12)
    assert "lr=2.0: 1 of 3 runs left out, without a measured epoch" in row["reason"]
    (by_loss,) = compare(contents(*cells), None, CompareOptions(axis="lr", metric="val_loss")).rows
    assert "left out" not in (by_loss["reason"] or "")


def test_what_a_side_met_on_its_host_is_named_once_with_all_sides(side):
    one, other = side([0.5], [0.6]), dataclasses.replace(side([0.5]), label="there")
    folders = [cell.stored.paths.root for each in (one, other) for cell in each.cells]
    alone = dict.fromkeys(folders)
    assert contention_caveats([one, other], alone) == []
    shared = dict.fromkeys(folders, ("other work",))
    assert contention_caveats([one, other], shared) == ["contended: here and there met other work"]
    (first, *_) = folders
    some = alone | {first: ("a GPU in use", "other work")}
    assert contention_caveats([one], some) == ["contended: here met a GPU in use, here met other work"]


def test_facts_in_which_sides_differ_are_named(contents, timed, host):
    """One caveat for each, in a fixed order; equal or unknown facts are none."""

    def reasons(fields, **settings):
        environments = [msgspec.structs.replace(host, **each) for each in fields]
        runs = [
            ({"lr": lr, **settings}, timed([9.0] + [1.0] * 5), {"environment": environment})
            for lr, environment in enumerate(environments)
        ]
        sweep = contents(*runs)
        cells = gather_cells(sweep.runs, (), None).cells
        return pair_caveats([Side(f"lr={lr}", [cell]) for lr, cell in enumerate(cells)], is_compared=True)

    assert reasons([{}, {}]) == []
    assert reasons([{"host": "a"}, {"host": "b"}]) == ["host differs: a (lr=0), b (lr=1)"]
    assert reasons([{"cpu_model": "a"}, {"cpu_model": "b"}]) == ["CPU model differs: a (lr=0), b (lr=1)"]
    assert reasons([{"commit_clean": False}, {"commit_clean": True}]) == ["uncommitted changes: lr=0"]
    known, unknown = {"code": {"train.py": "1"}}, {"code": None, "commit_clean": None}
    assert reasons([known, unknown]) == ["whether the code is the same is not known: lr=1"]
    assert reasons([unknown, unknown]) == []


def test_precisions_and_choices_in_which_sides_differ_are_named(contents, timed):
    def reasons(*measurements, precision=("fp32", "fp32")):
        runs = [
            ({"lr": lr, "precision": kind, "micro_batch": "auto"}, timed([9.0, 1.0]), {"measurements": each})
            for lr, (each, kind) in enumerate(zip(measurements, precision, strict=True))
        ]
        cells = gather_cells(contents(*runs).runs, (), None).cells
        return pair_caveats([Side(f"lr={lr}", [cell]) for lr, cell in enumerate(cells)], is_compared=True)

    one, other = Measurements(precision="ieee"), Measurements(precision="tf32")
    differs = ["precision of products differs: ieee (lr=0), tf32 (lr=1)"]
    assert reasons(one, other) == differs
    assert reasons(one, one) == reasons(one, Measurements()) == []
    assert reasons(one, other, precision=("fp32", "bf16")) == []  # then the setting says so
    small, large = Measurements(chosen={"micro_batch": 8}), Measurements(chosen={"micro_batch": 64})
    assert reasons(small, large) == ["micro_batch=auto became 8 (lr=0), 64 (lr=1)"]
    assert reasons(small, small) == []
    assert reasons(small, Measurements()) == ["micro_batch=auto became 8 (lr=0), unknown (lr=1)"]


def test_an_outlier_is_far_behind_by_its_spread_and_by_a_tenth(side):
    assert outlier_caveats([side([0.9], [0.9], [0.82])]) == []  # nearer than a tenth of the median
    assert len(outlier_caveats([side([0.9], [0.9], [0.80])])) == 1
    assert outlier_caveats([side([0.5], [0.7], [0.9], [0.35], [0.6])]) == []  # within 3.5 of their spread
    assert outlier_caveats([side([0.9, 0.1], [0.9, 0.9], [0.9, 0.9])]) != []  # the last epoch counts
    assert outlier_caveats([side([0.1, 0.9], [0.9, 0.9], [0.9, 0.9])]) == []


def test_costs_may_be_hidden_above_the_median_too(contents, timed):
    runs = [({"lr": 1}, timed([9.0] + [1.0] * 9), {}), ({"lr": 2}, timed([9.0] + [1.0] * 8 + [0.1]), {})]
    (row,) = compare(contents(*runs), None, CompareOptions(axis="lr")).rows
    assert "; lr=2: overall 11% above its median epoch" in row["reason"]


def test_an_unfinished_run_counts_for_its_side_only_where_no_other_has_finished(contents, timed):
    sweep = contents(
        ({"seed": 0}, timed([9.0, 1.0]), {}),
        ({"seed": 1}, timed([9.0, 1.0]), {"status": Status.FAILED, "reason": Reason.EXCEPTION}),
    )
    cells = gather_cells(sweep.runs, (), None).cells
    met = {cell.stored.paths.root: ("other work",) if cell.stored.status == "failed" else None for cell in cells}
    assert contention_caveats([Side("here", cells)], met) == []
    failed = [cell for cell in cells if cell.stored.status == "failed"]
    assert contention_caveats([Side("here", failed)], met) == ["contended: here met other work"]

"""The comparison: its rows by each metric and along any axis, and all reasons."""

import dataclasses

import msgspec
import pytest

from runmanager.errors import UsageError
from runmanager.records.run.run_record import Environment, Measurements
from runmanager.records.run.status import Reason, Status
from runmanager.records.settings.signature import signature
from runmanager.records.sweep.sweep_record import SweepCommand, add_cells, plan_cell
from runmanager.results.compare.comparison import compare, compare_with_stand_in, with_numbered_reasons
from runmanager.results.compare.comparison_table import CompareOptions
from runmanager.results.load.loader import read_results
from runmanager.results.tables.text_formats import to_csv

from .conftest import only_row, outcome

CPU = {"lr": 0.01, "batch_size": 100, "num_workers": 0, "device": "cpu"}
CUDA = CPU | {"device": "cuda"}
ONE_RUN = (
    "one side ran after the other: the interval includes a drift of the machine by 10%; one run a side: the noise "
    "between runs is assumed, not measured; more seeds measure it"
)


def one_run_interval(table):
    """The fields of the interval about 4, whose last digits depend on the versions of NumPy and SciPy."""
    low, high = (table.rows[0][name] for name in ("ci_low", "ci_high"))
    assert (low, high) == (pytest.approx(2.75, abs=0.01), pytest.approx(5.82, abs=0.02))
    return f"{low},{high}"


def test_comparison_csv_exactly(sweep, steady):
    sweep.run(CPU, steady(2.0))
    sweep.run(CUDA, steady(0.5, count=6))
    table = compare(*read_results(sweep.paths))
    assert to_csv(table) == (
        "lr,batch_size,num_workers,axis,baseline,candidate,baseline_samples_per_second,candidate_samples_per_second,"
        "speedup,ci_low,ci_high,verdict,reason,baseline_epochs,candidate_epochs\n"
        f'0.01,100,0,device,cpu,cuda,500.0,2000.0,4.0,{one_run_interval(table)},faster,"{ONE_RUN}",5,6\n'
    )


def test_too_few_epochs_are_not_measured_but_their_throughput_is_shown(contents, steady):
    sweep = contents((CPU, steady(1.0, count=4), {}), (CUDA, steady(0.5), {}))
    row = only_row(sweep)
    assert (row["verdict"], row["speedup"], row["ci_low"]) == ("not measured", None, None)
    assert row["reason"] == "too few epochs: 4 of cpu, 5 of cuda measured, 5 needed"
    assert (row["baseline_samples_per_second"], row["candidate_samples_per_second"]) == (1000, 2000)
    assert only_row(sweep, min_epochs=4)["verdict"] == "faster"


@pytest.mark.parametrize(
    ("status", "reason", "expected"),
    [
        (Status.SKIPPED, Reason.DEVICE_UNAVAILABLE, "cuda: skipped (device_unavailable)"),
        (Status.FAILED, Reason.OUT_OF_MEMORY, "cuda: failed (out_of_memory)"),
        (Status.KILLED, Reason.TIMEOUT, "cuda: killed (timeout)"),
        (Status.RUNNING, None, "cuda: running"),
    ],
)
def test_unfinished_side_is_not_measured(contents, steady, status, reason, expected):
    sweep = contents((CPU, steady(1.0), {}), (CUDA, steady(1.0), {"status": status, "reason": reason}))
    assert outcome(sweep) == ("not measured", expected)


def test_pending_side_has_a_row(sweep, steady):
    sweep.plan(CUDA, CPU)
    sweep.run(CUDA, steady(1.0))
    (row,) = compare(*read_results(sweep.paths)).rows
    assert (row["verdict"], row["reason"], row["candidate_epochs"]) == ("not measured", "cpu: pending", 5)


def test_side_missing_from_the_grid_is_the_reason(contents, steady):
    sweep = contents(
        (CPU, steady(1.0), {}), (CUDA, steady(0.5), {}), (CUDA | {"lr": 1}, steady(0.5), {}), (CPU | {"lr": 2}, [], {})
    )
    table = compare(sweep, None)
    assert [(row["lr"], row["reason"]) for row in table.rows[1:]] == [
        (1, "cpu: no run with these settings"),
        (2, "cuda: no run with these settings"),
    ]


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ({"torch_threads": 1}, "torch threads differs: 2 (cpu), 1 (cuda)"),
        ({"torch_threads": None}, "torch threads differs: 2 (cpu), unknown (cuda)"),
        ({"libraries": {"torch": "2.9.1"}}, "torch differs: 2.15.0 (cpu), 2.9.1 (cuda)"),
        ({"commit": "fedcba9876543210"}, "commit differs: 0123456789 (cpu), fedcba9876 (cuda)"),
    ],
)
def test_runs_in_different_environments_are_not_measured(contents, host, steady, changes, expected):
    other = {"environment": msgspec.structs.replace(host, **changes)}
    assert outcome(contents((CPU, steady(1.0), {}), (CUDA, steady(0.5), other))) == ("not measured", expected)


@pytest.mark.parametrize(
    ("codes", "expected"),
    [
        (({"own.py": "0a"}, {"own.py": "1a"}), "code differs: own.py"),
        (({"own.py": "0a", "x.py": "0"}, {"own.py": "0a", "y.py": "1"}), ""),  # as of two models
        (({"own.py": "0a"}, {}), ""),
        (({"own.py": "0a"}, None), "whether the code is the same is not known: cuda"),
        ((None, None), ""),
    ],
)
def test_runs_of_different_code_are_not_measured_where_the_code_is_known(contents, host, steady, codes, expected):
    dirty = msgspec.structs.replace(host, commit_clean=False)
    cpu, cuda = ({"environment": msgspec.structs.replace(dirty, code=code)} for code in codes)
    verdict, reason = outcome(contents((CPU, steady(1.0), cpu), (CUDA, steady(0.5), cuda)))
    assert verdict == ("not measured" if "differs" in expected else "faster")
    assert expected in reason
    assert bool(expected) == ("code" in reason)


def test_code_that_changed_within_one_side_is_not_measured(contents, host, steady):
    old, new = ({"environment": msgspec.structs.replace(host, code={"own.py": digest})} for digest in ("0a", "1a"))
    sweep = contents(
        (CPU | {"seed": 0}, steady(1.0), old), (CPU | {"seed": 1}, steady(1.0), new), (CUDA, steady(0.5), new)
    )
    assert outcome(sweep) == ("not measured", "code differs: own.py")


def test_different_environments_within_one_side_are_not_measured(contents, host, steady):
    other = {"environment": msgspec.structs.replace(host, torch_threads=1)}
    sweep = contents(
        (CPU | {"seed": 0}, steady(1.0), {}), (CPU | {"seed": 1}, steady(1.0), other), (CUDA, steady(0.5), {})
    )
    # The single candidate has another seed (none): seeds do not separate runs.
    assert outcome(sweep) == ("not measured", "torch threads differs: 2 and 1 (cpu), 2 (cuda)")


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ({"host": "bellows"}, "host differs: anvil (cpu), bellows (cuda)"),
        ({"cpu_model": "Xeon"}, "CPU model differs: Zen 4 (cpu), Xeon (cuda)"),
        ({"commit_clean": False}, "uncommitted changes: cuda"),
    ],
)
def test_caveats_are_named_in_the_reason_of_measured_pairs(contents, host, steady, changes, expected):
    other = {"environment": msgspec.structs.replace(host, **changes)}
    sweep = contents((CPU, steady(1.0), {}), (CUDA, steady(0.5), other))
    assert outcome(sweep) == ("faster", f"{ONE_RUN}; {expected}")


@pytest.mark.parametrize(
    ("kinds", "expected"),
    [
        (("fp32", "tf32"), "precision of products differs: fp32 (cpu), tf32 (cuda)"),
        (("fp32", "fp32"), ""),
        (("fp32", None), ""),
    ],
)
def test_lower_precision_of_products_on_one_side_is_named(contents, steady, kinds, expected):
    """Convolutions on a GPU are rounded by default, and were in runs of earlier versions."""
    cpu, cuda = ({"measurements": Measurements(precision=kind)} for kind in kinds)
    sweep = contents((CPU, steady(1.0), cpu), (CUDA, steady(0.5), cuda))
    assert outcome(sweep) == ("faster", "; ".join([ONE_RUN, expected] if expected else [ONE_RUN]))


@pytest.mark.parametrize(
    ("sides", "expected"),
    [
        (
            ({"channels_last": True, "micro_batch": 426}, {"channels_last": False, "micro_batch": None}),
            ["channels_last=auto became true (cpu), false (cuda)", "micro_batch=auto became 426 (cpu), null (cuda)"],
        ),
        (({"micro_batch": 426}, None), ["micro_batch=auto became 426 (cpu), unknown (cuda)"]),
        (({"channels_last": False}, {"channels_last": False}), []),
        ((None, None), []),
    ],
)
def test_what_auto_became_is_named_where_sides_differ(contents, steady, sides, expected):
    cpu, cuda = ({"measurements": Measurements(chosen=chosen or msgspec.UNSET)} for chosen in sides)
    settings = {"channels_last": "auto", "micro_batch": "auto"}
    sweep = contents((CPU | settings, steady(1.0), cpu), (CUDA | settings, steady(0.5), cuda))
    assert outcome(sweep) == ("faster", "; ".join([ONE_RUN, *expected]))
    short = contents((CPU | settings, steady(1.0, 2), cpu), (CUDA | settings, steady(0.5, 2), cuda))
    assert outcome(short) == ("not measured", "too few epochs: 2 of cpu, 2 of cuda measured, 5 needed")


def test_requested_precision_is_not_a_caveat(contents, steady):
    sides = [
        (CUDA | {"precision": kind}, steady(seconds), {"measurements": Measurements(precision=kind)})
        for kind, seconds in (("fp32", 1.0), ("tf32", 0.5))
    ]
    row = only_row(contents(*sides), axis="precision")
    assert row["verdict"] == "faster" and "products" not in row["reason"]


def test_two_devices_in_one_side_are_named(contents, host, steady):
    first, second = ({"environment": msgspec.structs.replace(host, device_name=name)} for name in ("H200", "L4"))
    sweep = contents(
        (CPU, steady(1.0), {}), (CUDA | {"seed": 1}, steady(0.5), first), (CUDA | {"seed": 2}, steady(0.5), second)
    )
    assert outcome(sweep)[1].endswith("device differs: H200 and L4 (cuda)")


def test_unfinished_seeds_are_named_and_left_out(contents, steady):
    failed = {"status": Status.FAILED, "reason": Reason.DIVERGED}
    sweep = contents(
        (CPU, steady(1.0), {}), (CUDA | {"seed": 1}, steady(0.5), {}), (CUDA | {"seed": 2}, steady(99.0), failed)
    )
    row = only_row(sweep)
    assert (row["speedup"], row["candidate_epochs"]) == (2.0, 5)
    assert row["reason"].endswith("cuda: 1 finished, 1 failed (diverged)")


def test_contention_begins_the_reason(contents, host, steady):
    loaded = {"environment": msgspec.structs.replace(host, steal_share=0.5)}
    overlapping = contents((CPU, steady(1.0), {"minute": 0}), (CUDA, steady(0.5), {"minute": 0}))
    outside = contents((CPU, steady(1.0), {}), (CUDA, steady(0.5, count=1), loaded))
    met = "contended: cpu and cuda met another run on the host at the same time; "
    assert outcome(overlapping) == ("faster", met + ONE_RUN.partition("; ")[2])
    assert "contended" not in outcome(overlapping, metric="loss")[1], "load changes no loss"
    assert outcome(outside) == (
        "not measured",
        "contended: cuda met outside load on the host; too few epochs: 5 of cpu, 1 of cuda measured, 5 needed",
    )


def test_contention_of_an_unfinished_seed_does_not_affect_the_others(contents, host, steady):
    loaded = {"environment": msgspec.structs.replace(host, steal_share=0.5)}
    failed = {"status": Status.FAILED, "reason": Reason.DIVERGED, **loaded}
    sweep = contents((CPU, steady(1.0), {}), (CUDA | {"seed": 1}, steady(0.5), {}), (CUDA | {"seed": 2}, [], failed))
    assert not outcome(sweep)[1].startswith("contended:")
    alone = contents((CPU, steady(1.0), {}), (CUDA, [], failed))
    assert outcome(alone)[1] == "contended: cuda met outside load on the host; cuda: failed (diverged)"


def test_baseline_is_cpu_for_device_else_the_first_value_given(sweep, steady):
    configs = [CPU | {"device": device, "lr": lr} for device in ("cuda", "cpu") for lr in (0.5, 0.1)]
    sweep.plan(*configs)
    for config in reversed(configs):
        sweep.run(config, steady(1.0))
    stored = read_results(sweep.paths)
    assert {row["baseline"] for row in compare(*stored).rows} == {"cpu"}
    assert {row["baseline"] for row in compare(*stored, CompareOptions(axis="lr")).rows} == {0.5}
    assert {row["baseline"] for row in compare(*stored, CompareOptions(axis="lr", baseline="0.1")).rows} == {0.1}
    assert {row["candidate"] for row in compare(*stored, CompareOptions(baseline="cuda")).rows} == {"cpu"}


def test_without_a_cpu_the_first_device_is_the_baseline(contents, steady):
    row = only_row(contents((CUDA, steady(1.0), {}), (CPU | {"device": "mps"}, steady(1.0), {})))
    assert (row["baseline"], row["candidate"]) == ("cuda", "mps")


def test_axis_with_one_value_has_nothing_to_compare(contents, steady):
    table = compare(contents((CPU, steady(1.0), {})), None)
    assert table.rows == []
    assert table.notes == ("Nothing to compare: every run has device=cpu.",)
    assert compare(contents(), None).notes == ("Nothing to compare: the sweep has no runs.",)


@pytest.fixture
def on_one_device(contents, steady):
    """Runs of two learning rates and two batch sizes; the batch size alone changes the speed, twofold."""

    def make(*others, device="cpu", count=5, **fields):
        cells = [CPU | {"lr": lr, "batch_size": size, "device": device} for lr in (0.1, 0.2) for size in (100, 200)]
        runs = [(cell, steady(200 / cell["batch_size"], count=count), fields) for cell in cells]
        return contents(*runs, *others)

    return make


def test_axis_with_the_largest_effect_stands_in_for_a_constant_device(on_one_device):
    requested, every = (compare(on_one_device(), None, CompareOptions(axis=axis)) for axis in ("batch_size", "any"))
    table = compare_with_stand_in(on_one_device(), None)
    assert compare(on_one_device(), None).rows == []  # not requested, so not in files
    # It was picked after looking at all axes, so its intervals hold together with theirs.
    of_axis = [row for row in every.rows if row["axis"] == "batch_size"]
    assert [row["speedup"] for row in table.rows] == [row["speedup"] for row in of_axis]
    assert all(row["ci_low"] <= other["ci_low"] for row, other in zip(table.rows, of_axis, strict=True))
    assert all(row["ci_low"] < other["ci_low"] for row, other in zip(table.rows, requested.rows, strict=True))
    assert [row["axis"] for row in table.rows] == ["batch_size", "batch_size"]
    assert "axis" in table.shown and "axis" not in requested.shown  # shown for the axis that was not requested
    assert table.legend.startswith(
        "As every run has device=cpu, what is compared is batch_size, along which the medians differ most; what else "
        "varies is compared with `runmanager compare mine --axis lr`. Speedup: "
    )


@pytest.mark.parametrize("effective", ["lr", "batch_size"])
def test_a_stand_in_for_differences_is_the_axis_along_which_they_are_largest(contents, timed, effective):
    """By hand: 0.25 along one axis, 0 along the other one, whatever the accuracies are."""
    sizes = [(lr, size) for lr in (1, 2) for size in (1, 2)]
    cells = [CPU | {"lr": lr, "batch_size": size, "seed": seed} for seed in range(3) for lr, size in sizes]
    runs = [
        (cell, [msgspec.structs.replace(timed([1.0])[0], val_accuracy=cell[effective] / 4 + cell["seed"] / 64)], {})
        for cell in cells
    ]
    table = compare_with_stand_in(contents(*runs), None, CompareOptions(metric="val_accuracy"))
    assert {row["axis"] for row in table.rows} == {effective}


def test_stand_in_rows_follow_those_of_a_missing_device(on_one_device):
    skipped = {"status": Status.SKIPPED, "reason": Reason.DEVICE_UNAVAILABLE}
    missing = [(CUDA | {"lr": lr, "batch_size": size}, [], skipped) for lr in (0.1, 0.2) for size in (100, 200)]
    table, filed = (each(on_one_device(*missing), None) for each in (compare_with_stand_in, compare))
    assert to_csv(filed) == to_csv(compare(on_one_device(*missing), None, CompareOptions(axis="device")))
    rows = [(row["axis"], row["lr"], row["batch_size"], row["device"], row["verdict"]) for row in table.rows]
    assert rows == [
        *(("device", lr, size, None, "not measured") for lr in (0.1, 0.2) for size in (100, 200)),
        *(("batch_size", lr, None, "cpu", "inconclusive") for lr in (0.1, 0.2)),  # one run a side
    ]
    assert table.legend.startswith(
        "No two devices can be compared, so batch_size, along which the medians differ most, is compared as well; "
    )


@pytest.mark.parametrize(
    ("count", "status", "options"),
    [
        (4, Status.SKIPPED, {}),  # too few epochs along any axis
        (5, Status.RUNNING, {}),  # the other device may still finish
        (5, Status.FINISHED, {}),
        (5, Status.SKIPPED, {"axis": "device"}),
        (5, Status.SKIPPED, {"baseline": "cpu"}),
    ],
)
def test_requested_axis_or_one_with_an_answer_has_no_stand_in(on_one_device, steady, count, status, options):
    other = (CUDA | {"lr": 0.1, "batch_size": 100}, steady(1.0), {"status": status})
    table = compare_with_stand_in(on_one_device(other, count=count), None, CompareOptions(**options))
    assert {row["axis"] for row in table.rows} == {"device"}
    assert table.legend.startswith("Speedup: ")


def test_axis_with_very_many_pairs_is_not_a_stand_in(contents, steady):
    runs = [(CPU | {"lr": lr}, steady(1.0), {}) for lr in range(202)]
    assert len(compare_with_stand_in(contents(*runs[:201]), None).rows) == 200
    table = compare_with_stand_in(contents(*runs), None)
    assert table.rows == []
    command = "`runmanager compare mine --axis lr`"
    assert table.notes == (f"Nothing to compare: every run has device=cpu; what varies is compared with {command}.",)


def test_matched_settings_are_those_of_the_results_without_axis_and_seed(contents, steady):
    cells = [CPU | {"device": d, "seed": s, "wd": wd} for d in ("cpu", "cuda") for s in (0, 1) for wd in (0, 0.1)]
    table = compare(contents(*((cell, steady(1.0), {}) for cell in cells)), None)
    assert table.columns[: table.columns.index("axis")] == ["lr", "batch_size", "num_workers", "wd"]
    assert len(table.rows) == 2


def test_side_with_a_null_value_is_named_null(contents, steady):
    runs = [({"lr": 1, "clip": clip}, steady(1.0), {}) for clip in (None, 0.5)]
    row = only_row(contents(*runs), axis="clip")
    assert (row["baseline"], row["candidate"]) == ("null", 0.5)


def test_all_invalid_options_are_in_one_error(contents):
    with pytest.raises(UsageError) as caught:
        compare(contents(), None, CompareOptions(drift=-0.1, paired_drift=1, margin=0.0, min_epochs=0, min_seeds=1))
    assert [line.split("`")[1] for line in str(caught.value).splitlines()] == [
        "--drift",
        "paired_drift",
        "--margin",
        "min_epochs",
        "min_seeds",
    ]
    ends = [line.rpartition("; ")[2] for line in str(caught.value).splitlines()[:3]]
    assert ends == ["0.1 means 10%.", "0.1 means 10%.", "0.03 means 3% of a ratio."]


def test_unknown_axis_or_baseline_is_rejected(contents, steady):
    sweep = contents((CPU, steady(1.0), {}))
    with pytest.raises(UsageError, match="got 'devise'; did you mean 'device'"):
        compare(sweep, None, CompareOptions(axis="devise"))
    with pytest.raises(UsageError, match="got 'tpu'; its values are cpu"):
        compare(sweep, None, CompareOptions(baseline="tpu"))


def test_columns_of_other_metrics(contents, steady):
    table = compare(
        contents((CPU, steady(2.0), {}), (CUDA, steady(0.5), {})), None, CompareOptions(metric="epoch_seconds")
    )
    assert to_csv(table) == (
        "lr,batch_size,num_workers,axis,baseline,candidate,metric,baseline_value,candidate_value,speedup,ci_low,"
        "ci_high,verdict,reason,baseline_epochs,candidate_epochs\n"
        f'0.01,100,0,device,cpu,cuda,epoch_seconds,2.0,0.5,4.0,{one_run_interval(table)},faster,"{ONE_RUN}",5,5\n'
    )


@pytest.fixture
def learners(contents, timed):
    """Three seeds a device; CUDA's accuracy is higher by 0.1, its memory twice as much."""

    def run(device, seed):
        gain = 0.1 if device == "cuda" else 0.0
        epochs = timed([9.0, 1.0, 1.0])
        epochs = [
            msgspec.structs.replace(epoch, val_accuracy=0.2 * epoch.epoch + gain + seed / 1000) for epoch in epochs
        ]
        memory = {"peak_memory_bytes": 200 if device == "cuda" else 100}
        return CPU | {"device": device, "seed": seed}, epochs, memory

    return contents(*(run(device, seed) for seed in range(3) for device in ("cpu", "cuda")))


def test_accuracies_are_compared_by_their_difference(learners):
    row = only_row(learners, metric="val_accuracy")
    assert (row["baseline_value"], row["candidate_value"]) == pytest.approx((0.601, 0.701))
    assert row["difference"] == pytest.approx(0.1)
    assert (row["verdict"], row["reason"], row["baseline_runs"], row["candidate_runs"]) == ("better", None, 3, 3)
    assert (row["ci_low"], row["ci_high"]) == pytest.approx((0.099, 0.101))  # accuracies have three digits


def test_settings_that_follow_from_the_axis_are_named_in_the_reason(learners):
    derived = ("loss_name", "out", "title", "val_size", "width")

    def with_derived(run):
        config = run.record.config
        sizes = {"cpu": 33, "cuda": 67}[config["device"]]
        more = {"val_size": sizes, "out": f"runs/{sizes}", "title": f"{config['seed']}", "width": -sizes}
        config = config | more | {"loss_name": str(sizes)}
        return msgspec.structs.replace(run.record, config=config, signature=signature(config))

    runs = [dataclasses.replace(run, record=with_derived(run)) for run in learners.runs]
    cells = [plan_cell(run.record.signature, run.record.name, run.record.config) for run in runs]
    plan = add_cells(None, cells, SweepCommand((), axes={}, derived=derived))
    (row,) = compare(dataclasses.replace(learners, runs=runs), plan, CompareOptions(metric="val_accuracy")).rows
    assert row["verdict"] == "better"
    assert row["reason"] == (
        "loss_name differs as well: 33 (cpu), 67 (cuda); out differs as well: runs/33 (cpu), runs/67 (cuda); "
        "val_size differs as well: 33 (cpu), 67 (cuda); and 1 more"
    )


def test_more_memory_is_worse(learners):
    row = only_row(learners, metric="peak_memory_bytes")
    assert (row["ratio"], row["verdict"]) == (2.0, "worse")


def test_memory_of_a_process_is_not_compared_with_an_accelerators(contents, steady):
    named = {"cpu": Environment(device_name="EPYC", cpu_model="EPYC"), "cuda": Environment(device_name="H200")}
    sides = [
        (CPU | {"device": device, "seed": seed}, steady(1.0), {"peak_memory_bytes": 100, "environment": environment})
        for seed in range(3)
        for device, environment in named.items()
    ]
    assert outcome(contents(*sides), metric="peak_memory_bytes") == (
        "not measured",
        "what is measured differs: the process's (cpu), the accelerator's (cuda); CPU model differs: EPYC (cpu), "
        "unknown (cuda)",
    )


def test_time_to_accuracy_is_a_speedup(learners):
    # On CPU 0.45 is reached in the third epoch, after 11 seconds, on CUDA in the second, after 10.
    row = only_row(learners, metric="time_to_accuracy=0.45")
    assert (row["baseline_value"], row["candidate_value"], row["speedup"]) == (11, 10, pytest.approx(1.1))
    assert row["verdict"] == "faster"  # no seed of either side differs from the others


def test_side_with_a_run_below_the_target_accuracy_is_not_measured(learners):
    assert outcome(learners, metric="time_to_accuracy=0.602") == ("not measured", "cpu: 2 of 3 never reached 0.602")


def test_metric_with_one_value_a_run_needs_seeds(contents, steady):
    text = "too few runs: 1 of cpu, 1 of cuda, 3 needed; add seeds, as in seed=0,1,2"
    runs = contents((CPU, steady(1.0), {}), (CUDA, steady(0.5), {}))
    row = only_row(runs, metric="val_accuracy")
    assert (row["verdict"], row["reason"], row["difference"]) == ("not measured", text, None)
    assert row["baseline_value"] == row["candidate_value"] == 0.875


def test_any_axis_compares_each_varying_axis(contents, steady):
    cells = [
        CPU | {"device": d, "batch_size": b, "seed": s} for d in ("cuda", "cpu") for b in (1, 2, 3) for s in (0, 1)
    ]
    table = compare(contents(*((cell, steady(1.0), {}) for cell in cells)), None, CompareOptions(axis="any"))
    rows = [(row["axis"], row["device"], row["batch_size"], row["baseline"], row["candidate"]) for row in table.rows]
    assert rows == [
        *(("batch_size", device, None, 1, size) for device in ("cuda", "cpu") for size in (2, 3)),
        *(("device", None, size, "cpu", "cuda") for size in (1, 2, 3)),
    ]
    assert table.columns[:4] == ["lr", "batch_size", "num_workers", "device"]
    assert table.columns.count("device") == 1


def test_any_axis_of_runs_that_differ_in_the_seed_alone(contents, steady):
    table = compare(
        contents(*((CPU | {"seed": seed}, steady(1.0), {}) for seed in range(5))), None, CompareOptions(axis="any")
    )
    assert (table.rows, table.notes) == ([], ("Nothing to compare: no setting but the seed varies.",))


def test_baseline_with_any_axis_is_rejected(contents, steady):
    with pytest.raises(UsageError, match="`--baseline` must belong to one axis, got 'cpu' with `--axis any`"):
        compare(contents((CPU, steady(1.0), {})), None, CompareOptions(axis="any", baseline="cpu"))


def test_along_the_number_of_ranks_the_table_has_the_scaling_efficiency(contents, steady):
    one, two = ({**CPU, "processes": 1}, steady(2.0), {}), ({**CPU, "processes": 2}, steady(1.25), {})
    row = only_row(contents(one, two), axis="processes")
    assert (row["speedup"], row["scaling_efficiency"]) == (pytest.approx(1.6), pytest.approx(0.8))
    recorded = contents((CPU, steady(2.0), {}), ({**CPU, "seed": 1}, steady(1.25), {"world_size": 2}))
    row = only_row(recorded, axis="world_size")
    assert (row["baseline"], row["candidate"], row["scaling_efficiency"]) == (1, 2, pytest.approx(0.8))
    four = ({**CPU, "processes": 4}, steady(0.8), {})
    row = only_row(contents(two, four), axis="processes")
    assert (row["speedup"], row["scaling_efficiency"]) == (pytest.approx(1.5625), pytest.approx(0.78125))


def test_each_reason_is_one_numbered_note_for_people(contents, steady):
    pairs = [({**CPU, "lr": lr, "device": device}, steady(1.0), {}) for lr in (1, 2) for device in ("cpu", "cuda")]
    unfinished = ({**CPU, "lr": 3, "device": "cuda"}, [], {"status": Status.RUNNING})
    table = compare(contents(*pairs, ({**CPU, "lr": 3}, steady(1.0), {}), unfinished), None)
    found = with_numbered_reasons(table)
    assert [row["note"] for row in found.rows] == ["[1]", "[1]", "[2]"]
    assert found.notes[:2] == (f"[1] {ONE_RUN}", "[2] cuda: running")
    assert found.notes[2:] == tuple(table.notes)
    assert tuple(found.shown) == tuple("note" if name == "reason" else name for name in table.shown)
    assert "note" in found.shown
    without = with_numbered_reasons(
        dataclasses.replace(
            table, rows=[dataclasses.replace(row, values=row.values | {"reason": None}) for row in table.rows]
        )
    )
    assert [row["note"] for row in without.rows] == ["", "", ""]
    assert not {"note", "reason"} & set(without.shown) and tuple(without.notes) == tuple(table.notes)


def legend(contents, timed, **options):
    pair = [({"lr": lr, "seed": seed}, timed([9.0, 1.0, 1.0]), {}) for lr in (1, 2) for seed in (0, 1)]
    return compare(contents(*pair), None, CompareOptions(axis="lr", **options)).legend


JOINT = "all intervals hold jointly with 95% confidence."


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (
            {"metric": "val_accuracy"},
            f"Difference: candidate - baseline, val_accuracy (more is better); {JOINT}",
        ),
        (
            {"metric": "val_loss", "at": "best", "margin": 0.1},
            f"Difference: candidate - baseline, val_loss at each run's best epoch (less is better); {JOINT}",
        ),
        (
            {"metric": "peak_memory_bytes"},
            f"Ratio: candidate / baseline, peak_memory_bytes (less is better); {JOINT}",
        ),
        (
            {"metric": "epoch_seconds"},
            f"Speedup: baseline / candidate, epoch_seconds without warm-up epochs; {JOINT}",
        ),
        ({}, f"Speedup: candidate / baseline, samples per second without warm-up epochs; {JOINT}"),
    ],
    ids=["accuracy", "loss at best", "memory", "time", "throughput"],
)
def test_legend_says_what_the_effect_is(contents, timed, options, said):
    assert legend(contents, timed, **options) == said


@pytest.mark.parametrize(
    ("second", "noise", "said"),
    [
        (1.0, 1e-3, "`no difference`: the interval is within 1 ± 3%."),
        (1.02, 3e-2, "`inconclusive`: not known, as the interval or the drift is too wide."),
        (3.0, 1e-3, JOINT),
    ],
)
def test_legend_explains_the_verdicts_that_are_there(contents, timed, second, noise, said):
    pair = [
        ({"lr": lr, "seed": seed}, timed([9.0, *[seconds * (1 + noise * ((7 * seed + 3 * lr) % 5))] * 4]), {})
        for seed in range(8)
        for lr, seconds in ((1, 1.0), (2, second))
    ]
    assert compare(contents(*pair), None, CompareOptions(axis="lr", drift=0.0)).legend.endswith(said)


def test_unknown_axes_and_all_faults_are_named(contents, timed):
    sweep = contents(({"lr": 1}, timed([9.0, 1.0]), {}), ({"lr": 2}, timed([9.0, 1.0]), {}))
    with pytest.raises(UsageError, match=r"^`--axis` must"):
        compare(sweep, None, CompareOptions(axis="rl"))
    with pytest.raises(UsageError) as caught:
        compare(sweep, None, CompareOptions(axis="lr", min_epochs=0, drift=2.0))
    assert len(lines := str(caught.value).splitlines()) == 2 and all(line.startswith("`") for line in lines)
    with pytest.raises(UsageError, match=r"^`--better` must"):
        compare(sweep, None, CompareOptions(axis="lr", metric="val_loss", better="bigger"))

"""What keeps two sides from being compared, and what is named where two sweeps are."""

import msgspec
import pytest

from runmanager.records.run.program_report import GROUPS
from runmanager.records.run.run_record import Attempt, Environment, Measurements
from runmanager.results.compare.comparison_table import CompareOptions
from runmanager.results.gate.sweep_pairs import TwoSweeps

from .conftest import outcome

CPU = {"lr": 0.01, "device": "cpu"}
CUDA = CPU | {"device": "cuda"}


@pytest.mark.parametrize("metric", ["samples_per_second", "epoch_seconds"])
def test_times_of_adopted_runs_are_not_compared(contents, steady, metric):
    adopted = {"adopted": "elsewhere/first"}
    way_out = "what they recorded is compared with --metric: val_accuracy, accuracy, val_loss, loss"
    one = contents((CPU, steady(1.0), {}), (CUDA, steady(0.5), adopted))
    assert outcome(one, metric=metric) == ("not measured", f"adopted runs were not timed: cuda; {way_out}")
    both = contents((CPU, steady(1.0), adopted), (CUDA, steady(0.5), adopted))
    assert outcome(both, metric=metric) == ("not measured", f"adopted runs were not timed: cpu, cuda; {way_out}")


def test_losses_of_adopted_runs_are_compared(contents, timed):
    runs = [
        (config | {"seed": seed}, timed([1.0] * (2 + seed + 3 * number)), {"adopted": "elsewhere/first"})
        for number, config in enumerate((CPU, CUDA))
        for seed in range(3)
    ]
    assert outcome(contents(*runs), metric="val_loss")[0] != "not measured"


def of_two_sweeps(contents, steady, *environments):
    """The reason of the row of two sweeps, each of one run, made in these environments."""
    first, second = (contents((CPU, steady(1.0), {"environment": each})) for each in environments)
    (row,) = TwoSweeps(("old", "new"), (first, second), (None, None)).compare().rows
    return row["reason"]


@pytest.mark.parametrize(
    ("name", "before", "now", "text"),
    [
        ("commit", "0123456789abcdef", "fedcba9876543210", "commit differs: 0123456789 ({}), fedcba9876 ({})"),
        ("python", "3.11.7", "3.12.1", "python differs: 3.11.7 ({}), 3.12.1 ({})"),
        ("libraries", {"torch": "2.15.0"}, {"torch": "2.16.0"}, "torch differs: 2.15.0 ({}), 2.16.0 ({})"),
        ("host", "anvil", "forge", "host differs: anvil ({}), forge ({})"),
        ("cpu_model", "Zen 4", "Zen 5", "CPU model differs: Zen 4 ({}), Zen 5 ({})"),
        ("device_name", "H200", "L4", "device differs: H200 ({}), L4 ({})"),
        ("driver", "550.1", "560.2", "driver differs: 550.1 ({}), 560.2 ({})"),
        ("cuda", "12.4", None, "CUDA differs: 12.4 ({}), unknown ({})"),
        ("code", {"own.py": "0a"}, {"own.py": "1a"}, "code differs: own.py"),
    ],
)
def test_what_differs_between_two_sweeps_is_named_and_measured(contents, steady, host, name, before, now, text):
    environments = [msgspec.structs.replace(host, **{name: value}) for value in (before, now)]
    reason = of_two_sweeps(contents, steady, *environments)
    assert reason.count(text.format("sweep=old", "sweep=new")) == 1
    assert "are equal" not in reason and "one run a side" in reason


def test_equal_environments_of_two_sweeps_are_named_as_equal(contents, steady, host):
    assert "commit, libraries, host and device are equal" in of_two_sweeps(contents, steady, host, host)


def test_another_number_of_threads_keeps_two_sweeps_from_being_compared(contents, steady, host):
    reason = of_two_sweeps(contents, steady, host, msgspec.structs.replace(host, torch_threads=1))
    assert "torch threads differs: 2 (sweep=old), 1 (sweep=new)" in reason and "one run a side" not in reason


METRICS = ("samples_per_second", "epoch_seconds", "run_seconds", "val_accuracy", "peak_memory_bytes")
WORKERS = "start method of workers"


def conditions(host, cores, threads, method):
    """The fields of a run's record that say in which conditions it was made."""
    environment = msgspec.structs.replace(host, usable_cores=cores, torch_threads=threads)
    return {"environment": environment, "measurements": Measurements(worker_start_method=method)}


@pytest.mark.parametrize("metric", METRICS)
@pytest.mark.parametrize(
    ("one", "other", "text"),
    [
        ((2.0, 2, None), (1.0, 2, None), "usable cores differs: 2 ({}), 1 ({})"),
        ((2.0, 2, None), (1.5, 2, None), "usable cores differs: 2 ({}), 1.5 ({})"),
        ((2.0, 2, None), (2.0, 1, None), "torch threads differs: 2 ({}), 1 ({})"),
        ((2.0, 2, "fork"), (2.0, 2, "spawn"), f"{WORKERS} differs: fork ({{}}), spawn ({{}})"),
        ((2.0, 2, "fork"), (2.0, 2, "fork and spawn"), f"{WORKERS} differs: fork ({{}}), fork and spawn ({{}})"),
        ((2.0, 2, None), (2.0, 2, "spawn"), None),  # num_workers=0 has none
        ((None, 2, None), (2.0, 2, None), None),  # an older record
        ((2.0, 2, "fork"), (2.0, 2, "fork"), None),
    ],
)
def test_conditions_that_must_agree_for_every_metric(contents, steady, host, metric, one, other, text):
    more = {"peak_memory_bytes": 1000}
    runs = [
        ({**config, "seed": seed}, steady(1.0 + 0.01 * seed), {**conditions(host, *facts), **more})
        for config, facts in ((CPU, one), (CUDA, other))
        for seed in range(3)
    ]
    verdict, reason = outcome(contents(*runs), metric=metric)
    same_cells = [(CPU | {"seed": config["seed"]}, *rest) for config, *rest in runs]
    sweeps = contents(*same_cells[:3]), contents(*same_cells[3:])
    (row,) = TwoSweeps(("old", "new"), sweeps, (None, None)).compare(CompareOptions(metric=metric)).rows
    for said, labels in ((reason, ("cpu", "cuda")), (row["reason"], ("sweep=old", "sweep=new"))):
        assert ("differs: " in (said or "")) is (text is not None)
        assert text is None or text.format(*labels) in said
    if text is not None:
        assert verdict == row["verdict"] == "not measured"


def test_conditions_that_differ_within_a_side_are_named_too(contents, steady, host):
    runs = [
        (config | {"seed": seed}, steady(1.0), conditions(host, 2.0 - seed, 2, None))
        for config in (CPU, CUDA)
        for seed in range(2)
    ]
    assert outcome(contents(*runs)) == (
        "not measured",
        "usable cores differs: 2 and 1 (cpu), 2 and 1 (cuda)",
    )


def test_why_a_commit_is_unknown_is_said_where_it_is_compared(contents, steady, host):
    lost = msgspec.structs.replace(host, commit=None, commit_clean=None, commit_unknown="git is not installed")
    unchecked = msgspec.structs.replace(host, commit_clean=None, commit_unknown="git cannot compare the files")
    one = contents((CPU, steady(1.0), {"environment": host}), (CUDA, steady(1.0), {"environment": lost}))
    assert outcome(one) == ("not measured", "commit differs: 0123456789 (cpu), unknown (git is not installed) (cuda)")
    equal = of_two_sweeps(contents, steady, lost, lost)
    assert "libraries, host and device are equal; the commit is unknown (git is not installed)" in equal
    assert "commit, libraries" not in equal
    assert "sweep=new: git cannot compare the files" in of_two_sweeps(contents, steady, host, unchecked)


NOON = "2026-11-21T12:00:00+00:00"
EARLIER = (Attempt(started_at=NOON, ended_at=NOON, last_epoch=1, environment=Environment()),)
LOOP, BUILT_IN = {"lr": 0.1}, {name: {"name": "x"} for name in GROUPS} | {"compile": True}


def cold_and_warm(contents, steady, config, *, seconds=(57.0, 4.0), **fields):
    """Two sweeps of the same cell, whose compilation took these seconds of a run."""

    def sweep(compiled):
        known = {"measurements": Measurements(compile_seconds=compiled), **fields}
        return contents(
            *(
                (config | {"seed": seed}, steady(1.0), {"run_seconds": 10.0 + 0.01 * seed + compiled, **known})
                for seed in range(3)
            )
        )

    return TwoSweeps(("cold", "warm"), tuple(map(sweep, seconds)), (None, None))


def test_compilation_is_no_part_of_the_time_that_is_compared(contents, steady):
    (row,) = cold_and_warm(contents, steady, BUILT_IN).compare(CompareOptions(metric="run_seconds")).rows
    assert row["speedup"] == pytest.approx(1.0) and row["baseline_value"] == pytest.approx(10.01, abs=0.01)
    assert "without compilation, which took 57 s (sweep=cold) and 4 s (sweep=warm)" in row["reason"]
    (row,) = cold_and_warm(contents, steady, BUILT_IN).compare(CompareOptions(metric="epoch_seconds")).rows
    assert "compilation" not in row["reason"]


@pytest.mark.parametrize(
    ("metric", "config", "is_resumed", "is_measured"),
    [
        ("run_seconds", BUILT_IN, True, False),
        ("run_seconds", LOOP, False, True),
        ("time_to_accuracy=0.5", LOOP, False, False),
        ("time_to_accuracy=0.5", BUILT_IN, False, True),  # compiled before its first epoch
    ],
)
def test_times_whose_part_of_compilation_is_not_known(contents, steady, metric, config, is_resumed, is_measured):
    earlier = EARLIER if is_resumed else ()
    compared = cold_and_warm(contents, steady, config, earlier=earlier)
    (row,) = compared.compare(CompareOptions(metric=metric)).rows
    hidden = f"{metric} includes compilation, and how much of it is not known: sweep=cold, sweep=warm"
    assert (hidden not in row["reason"]) is is_measured
    assert is_measured or row["verdict"] == "not measured"
    little = cold_and_warm(contents, steady, config, seconds=(0.002, 0.001), earlier=earlier)
    (row,) = little.compare(CompareOptions(metric=metric)).rows
    assert "includes compilation" not in row["reason"]


def test_starting_again_is_a_known_part_of_the_time_of_a_run(contents, steady):
    runs = [
        (config | {"seed": seed}, steady(1.0), {"earlier": EARLIER if config is CUDA and seed else ()})
        for config in (CPU, CUDA)
        for seed in range(3)
    ]
    assert "cuda: 2 runs started more than once" in outcome(contents(*runs), metric="run_seconds")[1]
    assert "started more than once" not in outcome(contents(*runs))[1]

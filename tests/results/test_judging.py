"""Verdicts: at their boundaries, with few runs, with drift, and how often they are false."""

import msgspec
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from runmanager.records.run import Attempt
from runmanager.results.comparison import CompareOptions, compare
from runmanager.results.judging import verdict
from runmanager.results.statistics import Interval

CPU = {"lr": 0.01, "batch_size": 100, "num_workers": 0, "device": "cpu"}
CUDA = CPU | {"device": "cuda"}
PAIRED = {"measure": {"name": "paired"}}


def outcome(sweep, **options):
    (row,) = compare(sweep, None, CompareOptions(**options)).rows
    return row["verdict"], row["reason"]


def seeded(config, seconds, steady, seeds=range(5)):
    return [(config | {"seed": seed}, steady(seconds), {}) for seed in seeds]


@pytest.mark.parametrize(
    ("low", "high", "tolerance", "said"),
    [
        (1.11, 1.2, 0.1, "faster"),
        (1.1, 1.2, 0.1, "no difference"),
        (0.8, 0.89, 0.1, "slower"),
        (0.8, 0.9, 0.1, "no difference"),
        (0.5, 2.0, 0.0, "no difference"),
        (1.0, 1.2, 0.0, "no difference"),
        (1.0001, 1.2, 0.0, "faster"),
        (0.9, 0.9999, 0.0, "slower"),
    ],
)
def test_a_difference_lies_wholly_outside(low, high, tolerance, said):
    assert verdict(Interval(low, high), tolerance=tolerance) == said


@given(st.floats(0.01, 10), st.floats(0, 5), st.floats(0, 0.5))
def test_an_interval_that_holds_1_is_never_a_difference(low, width, tolerance):
    interval = Interval(low, low + width)
    said = verdict(interval, tolerance=tolerance)
    if interval.low <= 1 <= interval.high:
        assert said == "no difference"
    if said != "no difference":
        assert verdict(interval, tolerance=0.0) == said


@pytest.mark.parametrize(
    ("seconds", "drift", "said"),
    [(0.95, 0.1, "no difference"), (0.95, 0.04, "faster"), (0.85, 0.1, "faster"), (1.2, 0.1, "slower")],
)
def test_few_runs_must_differ_by_more_than_the_drift(contents, steady, seconds, drift, said):
    sweep = contents((CPU, steady(1.0), {}), (CUDA, steady(seconds), {}))
    found, reason = outcome(sweep, drift=drift)
    assert found == said
    assert f"1 ± {drift * 100:g}%" in reason


def test_enough_runs_need_the_interval_alone(contents, steady):
    sides = [(config | {"seed": seed}, steady(s), {}) for seed in range(5) for config, s in ((CPU, 1.0), (CUDA, 0.97))]
    assert outcome(contents(*sides)) == ("faster", None)


def test_what_a_side_did_otherwise_than_asked_is_said(contents, steady):
    line = "out of memory with 100 samples at once: steps are made in pieces of 50"
    sides = [
        (config | {"seed": seed}, steady(s), {"deviations": (line,) if config is CUDA and seed < 2 else ()})
        for seed in range(5)
        for config, s in ((CPU, 1.0), (CUDA, 0.5))
    ]
    assert outcome(contents(*sides)) == ("faster", f"cuda: {line}")


def test_few_runs_on_one_side_are_few_runs(contents, steady):
    sides = [(CPU | {"seed": seed}, steady(1.0), {}) for seed in range(5)]
    said, reason = outcome(contents(*sides, (CUDA, steady(0.97), {})))
    assert said == "no difference"
    assert "(5 of cpu, 1 of cuda)" in reason


def test_epochs_that_took_turns_use_the_drift_of_paired_measurement(contents, steady):
    sweep = contents((CPU | PAIRED, steady(1.0), {"session": "a"}), (CUDA | PAIRED, steady(0.97), {"session": "a"}))
    said, reason = outcome(sweep, metric="epoch_seconds")
    assert said == "faster"
    assert reason.endswith("outside 1 ± 1%")
    assert outcome(sweep, metric="epoch_seconds", paired_drift=0.05)[0] == "no difference"


@pytest.mark.parametrize("session", ["b", None])
def test_paired_runs_that_had_no_turns_with_each_other_are_like_any_others(contents, steady, session):
    sweep = contents((CPU | PAIRED, steady(1.0), {"session": "a"}), (CUDA | PAIRED, steady(0.97), {"session": session}))
    said, reason = outcome(sweep, metric="epoch_seconds")
    assert said == "no difference"
    assert reason.endswith("outside 1 ± 10%")


def test_epochs_of_a_run_that_only_took_its_measured_turns_again_are_like_any_others(contents, steady, host):
    earlier = Attempt(
        started_at="2026-11-21T11:00:00+00:00",
        ended_at="2026-11-21T11:01:00+00:00",
        last_epoch=6,
        environment=host,
        session="a",
    )
    again = {"session": "b", "earlier": (earlier,)}
    sweep = contents((CPU | PAIRED, steady(1.0), again), (CUDA | PAIRED, steady(0.97), {"session": "b"}))
    assert outcome(sweep, metric="epoch_seconds")[1].endswith("outside 1 ± 10%")
    # Both were gone on with in the middle of their epochs: these took turns in either session.
    both = [again | {"earlier": (msgspec.structs.replace(earlier, last_epoch=3),)}] * 2
    sweep = contents((CPU | PAIRED, steady(1.0), both[0]), (CUDA | PAIRED, steady(0.97), both[1]))
    assert outcome(sweep, metric="epoch_seconds")[1].endswith("outside 1 ± 1%")


def test_the_whole_time_of_paired_runs_says_nothing_of_their_speed(contents, steady):
    sides = [(config | PAIRED | {"seed": seed}, steady(1.0), {}) for seed in range(3) for config in (CPU, CUDA)]
    said, reason = outcome(contents(*sides), metric="run_seconds")
    assert (said, reason.partition(",")[0]) == ("not measured", "run_seconds of paired runs have their rounds in them")


def test_sides_that_ran_one_after_the_other_must_differ_by_more_than_the_drift(contents, steady):
    blocks = [*seeded(CPU, 1.0, steady), *seeded(CUDA, 0.97, steady)]
    turns = [run for pair in zip(blocks[:5], blocks[5:], strict=True) for run in pair]
    assert outcome(contents(*turns)) == ("faster", None)
    assert outcome(contents(*blocks)) == (
        "no difference",
        "one side ran after the other: the interval knows no drift between them, "
        "so a difference must lie outside 1 ± 10%",
    )


def test_two_to_four_runs_are_said_to_be_few(contents, steady):
    said, reason = outcome(contents(*seeded(CPU, 1.0, steady, range(3)), *seeded(CUDA, 0.97, steady, range(3))))
    assert said == "no difference"
    assert "(3 of cpu, 3 of cuda): too few to know the noise between runs well" in reason


def test_no_more_than_one_false_verdict_in_twenty(contents, timed):
    """Two devices of one speed, 3% noise between runs and 2% between epochs, 1 to 5 runs a side."""
    generator = np.random.default_rng(5)
    false = 0
    for _ in range(100):
        runs = []
        for seed in range(int(generator.integers(1, 6))):
            for config in (CPU, CUDA):
                level = generator.normal(0, 0.03)
                seconds = np.exp(level + generator.normal(0, 0.02, 6)).tolist()
                runs.append((config | {"seed": seed}, timed([9.0, *seconds]), {}))
        false += outcome(contents(*runs))[0] != "no difference"
    assert false <= 5


def test_values_that_no_run_can_have_measured_spoil_their_own_row_alone(contents, timed):
    def epochs(seconds, accuracy=0.5):
        taken = timed([9.0] + [2.0] * 5)
        return [msgspec.structs.replace(each, epoch_seconds=seconds, val_accuracy=accuracy) for each in taken]

    odd = {1: epochs(-2.0), 2: epochs(5e-324), 3: epochs(2.0, accuracy=1e308), 4: epochs(2.0)}
    cells = [(lr, device, seed) for lr in odd for device in ("cpu", "cuda") for seed in (0, 1)]
    sweep = contents(*(({"lr": lr, "device": device, "seed": seed}, odd[lr], {}) for lr, device, seed in cells))

    def reasons(metric):
        rows = compare(sweep, None, CompareOptions(metric=metric, min_seeds=2)).rows
        return {row["lr"]: "" if row["verdict"] != "not measured" else row["reason"] for row in rows}

    by_rate, by_time, by_accuracy = (reasons(name) for name in ("samples_per_second", "epoch_seconds", "val_accuracy"))
    assert [lr for lr, why in by_rate.items() if "too few epochs: 0 of cpu, 0 of cuda" in why] == [1, 2]
    assert [lr for lr, why in by_time.items() if "is no value to reckon with" in why] == [1, 2]
    assert "cpu: epoch_seconds of -2 is no value to reckon with" in by_time[1]
    assert [lr for lr, why in by_accuracy.items() if "val_accuracy of 1e+308 is no value" in why] == [3]
    assert by_rate[4] == by_time[4] == by_accuracy[4] == ""

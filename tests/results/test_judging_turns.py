"""Rows of runs that were measured side by side: their rounds count, not their epochs."""

import dataclasses

import msgspec
import pytest

from runmanager.records.turns import Turn
from runmanager.results.comparison import CompareOptions, compare

CPU = {"lr": 0.01, "device": "cpu"}
CUDA = {"lr": 0.01, "device": "cuda"}
PAIRED = {"measure": {"name": "paired", "axis": None}}


def only_row(sweep, **options):
    (row,) = compare(sweep, None, CompareOptions(**options)).rows
    return row


def outcome(sweep, **options):
    row = only_row(sweep, **options)
    return row["verdict"], row["reason"]


def in_turns(contents, timed, *rates, session="a", **fields):
    """A sweep over cpu and cuda, each with a round for each of its rates, and epochs that say something else."""
    sweep = contents(*((device | PAIRED, timed([9.0] + [1.0] * 5), fields) for device in (CPU, CUDA)))
    turns = [
        [Turn(session, number, 1, 10, 1000, 1000 / rate) for number, rate in enumerate(of_run, start=1)]
        for of_run in rates
    ]
    return dataclasses.replace(
        sweep, runs=[dataclasses.replace(run, turns=taken) for run, taken in zip(sweep.runs, turns, strict=True)]
    )


def test_what_was_measured_side_by_side_is_compared_by_its_rounds_and_by_its_own_drift(contents, timed):
    sweep = in_turns(contents, timed, [1000.0 + number for number in range(8)], [1030.0] * 8)
    row = only_row(sweep)
    assert (row["verdict"], row["baseline_epochs"], row["candidate_epochs"]) == ("faster", 8, 8)
    assert row["speedup"] == pytest.approx(1.0264, abs=1e-3)
    assert row["ci_low"] <= row["speedup"] <= row["ci_high"]
    sides = row["baseline_samples_per_second"], row["candidate_samples_per_second"]
    assert sides == pytest.approx((1003.5, 1030), rel=1e-3)
    assert row["speedup"] == pytest.approx(
        sides[1] / sides[0], rel=1e-12
    )  # as shown, so that no row contradicts itself
    assert row["reason"] == "8 rounds side by side: a difference must lie outside 1 ± 1%"
    assert outcome(sweep, paired_drift=0.05)[0] == "no difference"  # the interval lies within 3%


def test_too_few_rounds_side_by_side_are_not_measured_however_many_epochs_there_are(contents, timed):
    few = in_turns(contents, timed, [1000.0] * 5, [1030.0] * 8)
    way_out = "a longer `measure.max_seconds` gives more"
    assert outcome(few) == ("not measured", f"too few rounds: 5 measured side by side, 6 needed; {way_out}")


def test_paired_runs_that_never_met_were_not_measured(contents, timed):
    sweep = in_turns(contents, timed, [1000.0] * 9, [1030.0] * 9)
    first, second = sweep.runs
    elsewhere = [msgspec.structs.replace(turn, session="b") for turn in first.turns]
    apart = dataclasses.replace(sweep, runs=[dataclasses.replace(first, turns=elsewhere), second])
    assert outcome(apart)[1] == "too few rounds: 0 measured side by side, 6 needed"


def test_the_legend_says_what_the_interval_is_of(contents, timed):
    turns = compare(in_turns(contents, timed, [1000.0] * 8, [1030.0] * 8), None).legend
    assert "each round" in turns and "geometric mean" not in turns
    alone = compare(contents((CPU, timed([9.0] + [1.0] * 5), {}), (CUDA, timed([9.0] + [1.0] * 5), {})), None).legend
    assert "each round" not in alone and "geometric mean" in alone


def test_along_another_axis_than_that_of_their_turns_runs_are_compared_by_their_epochs(contents, timed):
    by_device = {"measure": {"name": "paired", "axis": "device"}}
    sizes = [{"batch_size": size, "device": device} | by_device for size in (1, 2) for device in ("cpu", "cuda")]
    sweep = contents(*((config, timed([9.0] + [1.0] * 4), {"session": str(config["batch_size"])}) for config in sizes))
    rows = compare(sweep, None, CompareOptions(axis="batch_size")).rows
    too_few = "too few epochs: 4 of batch_size=1, 4 of batch_size=2 measured, 5 needed"
    assert [row["reason"] for row in rows] == [too_few] * 2
    rows = compare(sweep, None, CompareOptions(axis="batch_size", min_epochs=4)).rows
    assert ["outside 1 ± 10%" in row["reason"] for row in rows] == [True] * 2
    assert "geometric mean" in compare(sweep, None, CompareOptions(axis="batch_size")).legend


@pytest.mark.parametrize("odd", [1e308, ["device"], {}, True])
def test_an_axis_of_turns_that_is_no_name_is_none(contents, timed, odd):
    models = [{"lr": lr, "measure": {"name": "paired", "axis": odd}} for lr in (0.1, 0.2)]
    sweep = contents(*((config, timed([9.0] + [1.0] * 6), {}) for config in models))
    assert len(compare(sweep, None, CompareOptions(axis="lr")).rows) == 1
    assert not compare(sweep, None).rows  # the device, as where nobody names an axis


@pytest.mark.parametrize("named", ["model", "model.name"])
def test_a_group_by_either_of_its_names_is_one_axis(contents, timed, named):
    models = [{"model": {"name": name}, "measure": {"name": "paired", "axis": "model"}} for name in ("mlp", "cnn")]
    sweep = contents(*((config, timed([9.0] + [1.0] * 6), {}) for config in models))
    assert "rounds" in compare(sweep, None, CompareOptions(axis=named)).rows[0]["reason"]

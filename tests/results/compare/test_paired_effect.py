"""Runs that were measured side by side: their rounds count, not their epochs."""

import dataclasses
import re

import msgspec
import pytest

from runmanager.records.run.run_record import Attempt, Turn
from runmanager.results.compare.comparison import compare
from runmanager.results.compare.comparison_table import CompareOptions
from runmanager.results.findings.answer_sentences import duel_answers

from .conftest import only_row, outcome

CPU = {"lr": 0.01, "device": "cpu"}
CUDA = {"lr": 0.01, "device": "cuda"}
PAIRED = {"measure": {"name": "paired", "axis": None}}


def in_turns(contents, timed, *rates, sessions=1, config=PAIRED, **fields):
    """Make a sweep over cpu and cuda, with a round for each rate in each session; its epochs have other rates."""
    sweep = contents(*((device | config, timed([9.0] + [1.0] * 5), fields) for device in (CPU, CUDA)))
    turns = [
        [
            Turn(f"s{session}", number, 1, 10, 1000, 1000 / rate)
            for session in range(sessions)
            for number, rate in enumerate(of_run, start=1)
        ]
        for of_run in rates
    ]
    return dataclasses.replace(
        sweep, runs=[dataclasses.replace(run, turns=taken) for run, taken in zip(sweep.runs, turns, strict=True)]
    )


def test_sides_measured_side_by_side_are_compared_by_rounds_and_paired_drift(contents, timed):
    sweep = in_turns(contents, timed, [1000.0 + 3 * number % 8 for number in range(8)], [1030.0] * 8, sessions=6)
    row = only_row(sweep)
    assert (row["verdict"], row["baseline_epochs"], row["candidate_epochs"]) == ("faster", 48, 48)
    assert row["speedup"] == pytest.approx(1.0264, abs=1e-3)
    assert row["ci_low"] <= row["speedup"] <= row["ci_high"]
    sides = row["baseline_samples_per_second"], row["candidate_samples_per_second"]
    assert sides == pytest.approx((1003.5, 1030), rel=1e-3)
    assert row["speedup"] == pytest.approx(sides[1] / sides[0], rel=1e-12)  # the columns are consistent
    counts = "6 pairs of processes, 48 rounds side by side, spread of pairs 0%"
    assert row["reason"] == f"{counts}: a difference must lie outside 1 ± 1%"


@pytest.mark.parametrize(
    ("rate", "sessions", "drift", "word"),
    [
        (1030.0, 6, 0.01, "faster"),
        (970.0, 6, 0.01, "slower"),
        (1030.0, 6, 0.05, "inconclusive"),  # the interval has ends beyond the margin
        (1000.0, 6, 0.01, "no difference"),
        (1000.0, 1, 0.01, "inconclusive"),  # one pair of processes is too few
        (1030.0, 1, 0.01, "inconclusive"),
        (1200.0, 1, 0.01, "faster"),
    ],
)
def test_equal_sides_are_no_difference_only_with_enough_data(contents, timed, rate, sessions, drift, word):
    sweep = in_turns(contents, timed, [1000.0] * 8, [rate] * 8, sessions=sessions)
    assert outcome(sweep, paired_drift=drift)[0] == word


@pytest.mark.parametrize(
    ("config", "epochs", "why"),
    [
        ({"checkpoint": {"every": 0}}, {}, "`checkpoint.every`=0 leaves nothing to restart processes from"),
        ({}, {"run_seconds": 26.0}, "a further pair takes 25 s and more of `measure.max_seconds`=60"),
        ({}, {}, "a difference must lie outside 1 ± 1%"),
    ],
)
def test_reason_for_few_pairs_of_processes(contents, timed, config, epochs, why):
    measure = {"measure": PAIRED["measure"] | {"max_seconds": 60}}
    sweep = in_turns(contents, timed, [1000.0] * 8, [1030.0] * 8, config=measure | config)
    first = [msgspec.structs.replace(run.epochs[0], wall_seconds=1.0, **epochs) for run in sweep.runs]
    runs = [dataclasses.replace(run, epochs=[one, *run.epochs[1:]]) for run, one in zip(sweep.runs, first, strict=True)]
    reason = only_row(dataclasses.replace(sweep, runs=runs))["reason"]
    assert reason.startswith("1 pair of processes, 8 rounds side by side, spread of pairs unknown: ")
    assert reason.endswith(why)


def test_a_further_pair_takes_as_long_as_the_longest_later_process(contents, timed, host):
    """The first process, which also trains, took a minute."""
    earlier = [
        Attempt(
            started_at=f"2026-11-21T12:{start}+00:00",
            ended_at=f"2026-11-21T12:{end}+00:00",
            last_epoch=6,
            environment=host,
            session=session,
        )
        for session, start, end in (("a", "00:00", "01:00"), ("b", "02:00", "02:12"))
    ]
    last = {"session": "c", "resumed_at": "2026-11-21T12:03:00+00:00", "ended_at": "2026-11-21T12:03:05+00:00"}

    def reason(limit):
        measure = {"measure": PAIRED["measure"] | {"max_seconds": limit}}
        sides = [1000.0] * 8, [1030.0] * 8
        return only_row(in_turns(contents, timed, *sides, config=measure, earlier=tuple(earlier), **last))["reason"]

    assert reason(60).endswith("a further pair takes 12 s and more of `measure.max_seconds`=60")
    assert "a further pair" not in reason(61)


def test_rounds_of_unlike_environments_are_not_compared(contents, timed, host):
    sweep = in_turns(contents, timed, [1000.0] * 8, [1030.0] * 8, sessions=6)
    first, second = sweep.runs
    record = msgspec.structs.replace(second.record, environment=msgspec.structs.replace(host, torch_threads=1))
    other = dataclasses.replace(sweep, runs=[first, dataclasses.replace(second, record=record)])
    row = only_row(other)
    assert (row["verdict"], row["reason"]) == ("not measured", "torch threads differs: 2 (cpu), 1 (cuda)")
    assert (row["speedup"], row["ci_low"], row.effect) == (None, None, None)


def test_too_few_rounds_side_by_side_are_not_measured_however_many_epochs_there_are(contents, timed):
    few = in_turns(contents, timed, [1000.0] * 5, [1030.0] * 8)
    text = "too few rounds: no pair of processes has 6 measured side by side"
    assert outcome(few) == ("not measured", f"{text}; a longer `measure.max_seconds` gives more")
    known = in_turns(
        contents, timed, [1000.0] * 5, [1030.0] * 8, config={"measure": {"name": "paired", "max_seconds": 4}}
    )
    # Eight rounds took 4 seconds: 6 after 3 of warm-up, and one more, take 5.
    assert outcome(known) == ("not measured", f"{text}; `measure.max_seconds=5` gives more")


def test_an_inconclusive_duel_says_how_much_longer_it_would_take(contents, timed):
    measure = {"measure": PAIRED["measure"] | {"max_seconds": 30, "half_width": 0.01}}
    sweep = in_turns(contents, timed, [1000.0] * 8, [1015.0] * 8, sessions=2, config=measure)
    table = compare(sweep, None, CompareOptions())
    (answer,) = duel_answers(table)
    said = re.search(
        r"About (\d+) more pairs? would be needed .* within 1\.0%: `measure\.max_seconds=(\d+)`\.$", answer
    )
    assert said is not None, answer
    more, seconds = map(int, said.groups())
    assert seconds == 30 * (2 + more) / 2
    longer = in_turns(contents, timed, [1000.0] * 8, [1015.0] * 8, sessions=2 + more, config=measure)
    effect = only_row(longer).effect
    assert effect.estimate.high <= effect.estimate.value * 1.01 and effect.lacking == ""
    assert "would be needed" not in duel_answers(compare(longer, None, CompareOptions()))[0]


def test_a_duel_far_from_its_precision_says_how_far_and_what_can_be_reached(contents, timed):
    """Rounds that differ by some 20% to either side: the interval shrinks with the root of the pairs of processes."""
    measure = {"measure": PAIRED["measure"] | {"max_seconds": 30, "half_width": 0.01}}
    rates = [1300.0, 750.0, 1200.0, 850.0] * 2
    answer = duel_answers(compare(in_turns(contents, timed, [1000.0] * 8, rates, sessions=2, config=measure), None))[0]
    said = re.search(
        r"About ([\d,]+) pairs of processes would be needed to know it within 1\.0%; 20, as with "
        r"`measure\.max_seconds=300`, would tell it within ([\d.]+)%\.$",
        answer,
    )
    assert said is not None, answer
    count, reached = (float(text.replace(",", "")) for text in said.groups())
    assert count > 20 and count == pytest.approx(20 * reached**2, rel=0.25)


def test_paired_runs_without_common_rounds_are_not_measured(contents, timed):
    sweep = in_turns(contents, timed, [1000.0] * 9, [1030.0] * 9)
    first, second = sweep.runs
    elsewhere = [msgspec.structs.replace(turn, session="b") for turn in first.turns]
    apart = dataclasses.replace(sweep, runs=[dataclasses.replace(first, turns=elsewhere), second])
    assert outcome(apart)[1] == "too few rounds: no pair of processes has 6 measured side by side"


def test_legend_describes_the_interval(contents, timed):
    turns = compare(in_turns(contents, timed, [1000.0] * 8, [1030.0] * 8), None).legend
    assert "in rounds side by side" in turns and "warm-up epochs" not in turns
    alone = compare(contents((CPU, timed([9.0] + [1.0] * 5), {}), (CUDA, timed([9.0] + [1.0] * 5), {})), None).legend
    assert "in rounds" not in alone and "warm-up epochs" in alone


def test_runs_are_compared_by_epochs_along_other_axes_than_that_of_their_turns(contents, timed):
    by_device = {"measure": {"name": "paired", "axis": "device"}}
    sizes = [{"batch_size": size, "device": device} | by_device for size in (1, 2) for device in ("cpu", "cuda")]
    sweep = contents(*((config, timed([9.0] + [1.0] * 4), {"session": str(config["batch_size"])}) for config in sizes))
    rows = compare(sweep, None, CompareOptions(axis="batch_size")).rows
    too_few = "too few epochs: 4 of batch_size=1, 4 of batch_size=2 measured, 5 needed"
    assert [row["reason"] for row in rows] == [too_few] * 2
    rows = compare(sweep, None, CompareOptions(axis="batch_size", min_epochs=4)).rows
    assert ["a drift of the machine by 10%" in row["reason"] for row in rows] == [True] * 2
    assert "warm-up epochs" in compare(sweep, None, CompareOptions(axis="batch_size")).legend


@pytest.mark.parametrize("odd", [1e308, ["device"], {}, True])
def test_axis_of_turns_that_is_not_a_name_is_ignored(contents, timed, odd):
    models = [{"lr": lr, "measure": {"name": "paired", "axis": odd}} for lr in (0.1, 0.2)]
    sweep = contents(*((config, timed([9.0] + [1.0] * 6), {}) for config in models))
    assert len(compare(sweep, None, CompareOptions(axis="lr")).rows) == 1
    assert not compare(sweep, None).rows  # along the default axis, the device


@pytest.mark.parametrize("named", ["model", "model.name"])
def test_group_is_one_axis_by_either_name(contents, timed, named):
    models = [{"model": {"name": name}, "measure": {"name": "paired", "axis": "model"}} for name in ("mlp", "cnn")]
    sweep = contents(*((config, timed([9.0] + [1.0] * 6), {}) for config in models))
    assert "rounds" in compare(sweep, None, CompareOptions(axis=named)).rows[0]["reason"]


def test_nothing_is_lacking_where_no_precision_was_asked_for(contents, timed):
    for config in ({"measure": PAIRED["measure"] | {"max_seconds": 30}}, {}):
        row = only_row(in_turns(contents, timed, [1000.0] * 8, [1005.0] * 8, config=config))
        assert row.effect.lacking == ""


def test_a_loop_may_ask_for_pairs_by_a_plain_word(contents, timed):
    row = only_row(in_turns(contents, timed, [1000.0] * 8, [1030.0] * 8, config={"measure": "paired"}))
    assert "rounds side by side" in row["reason"]

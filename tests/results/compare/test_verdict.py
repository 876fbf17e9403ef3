"""Verdicts: at their boundaries, with few runs, with drift, and their rate of errors."""

import math
import re

import msgspec
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from runmanager.errors import UsageError
from runmanager.records.run.run_record import Attempt
from runmanager.results.compare.comparison import compare
from runmanager.results.compare.comparison_table import CompareOptions
from runmanager.results.compare.verdict import verdict
from runmanager.results.metrics.metric import THROUGHPUT
from runmanager.results.metrics.metric_lookup import find_metric
from runmanager.results.stats.descriptive import Interval

from .conftest import only_row, outcome

CPU = {"lr": 0.01, "batch_size": 100, "num_workers": 0, "device": "cpu"}
CUDA = CPU | {"device": "cuda"}
PAIRED = {"measure": {"name": "paired"}}


def seeded(config, seconds, steady, seeds=range(5)):
    return [(config | {"seed": seed}, steady(seconds), {}) for seed in seeds]


@pytest.mark.parametrize(
    ("low", "high", "tolerance", "expected"),
    [
        (1.11, 1.2, 0.1, "faster"),
        (1.1, 1.2, 0.1, "inconclusive"),
        (0.8, 0.89, 0.1, "slower"),
        (0.8, 0.9, 0.1, "inconclusive"),
        (0.5, 2.0, 0.0, "inconclusive"),
        (1.0, 1.2, 0.0, "inconclusive"),
        (1.0001, 1.2, 0.0, "faster"),
        (0.9, 0.9999, 0.0, "slower"),
        (0.97, 1.03, 0.1, "no difference"),
        (0.9699, 1.03, 0.1, "inconclusive"),
        (1.001, 1.02, 0.0, "faster"),
        (1.001, 1.02, 0.01, "no difference"),
    ],
)
def test_verdict_by_interval_tolerance_and_margin(low, high, tolerance, expected):
    assert verdict(THROUGHPUT, Interval(low, high), tolerance=tolerance, margin=0.03) == expected


def test_a_difference_within_the_drift_is_never_ruled_out():
    within = Interval(0.99, 1.01)
    words = [verdict(THROUGHPUT, within, tolerance=0.0, margin=margin, drift=0.1) for margin in (0.03, 0.1, 0.11)]
    assert words == ["inconclusive", "inconclusive", "no difference"]
    assert verdict(THROUGHPUT, Interval(1.01, 1.2), tolerance=0.0, margin=0.03, drift=0.1) == "faster"


def test_difference_of_accuracies_without_a_margin_is_never_no_difference():
    metric = find_metric("val_loss")
    text = [verdict(metric, Interval(-0.01, 0.01), tolerance=0.0, margin=margin) for margin in (None, 0.02, 0.005)]
    assert text == ["inconclusive", "no difference", "inconclusive"]
    assert verdict(metric, Interval(0.01, 0.02), tolerance=0.0, margin=0.5) == "worse"


@given(st.floats(0.01, 10), st.floats(0, 5), st.floats(0, 0.5), st.floats(0.001, 0.5))
def test_interval_that_includes_1_is_never_a_difference(low, width, tolerance, margin):
    interval = Interval(low, low + width)
    text = verdict(THROUGHPUT, interval, tolerance=tolerance, margin=margin)
    if interval.low <= 1 <= interval.high:
        assert text in ("no difference", "inconclusive")
    if text == "no difference":
        assert 1 - margin <= interval.low <= interval.high <= 1 + margin
    if text in ("faster", "slower"):
        assert verdict(THROUGHPUT, interval, tolerance=0.0, margin=margin) == text


@pytest.mark.parametrize(
    ("seconds", "drift", "expected"),
    [(0.8, 0.0, "inconclusive"), (0.68, 0.0, "faster"), (0.7, 0.1, "inconclusive"), (0.6, 0.1, "faster")],
)
def test_one_run_a_side_must_differ_by_more_than_noise_and_drift(contents, steady, seconds, drift, expected):
    sweep = contents((CPU, steady(1.0), {}), (CUDA, steady(seconds), {}))
    found, reason = outcome(sweep, drift=drift)
    assert found == expected
    assert ("includes a drift of the machine by 10%" in reason) == (drift == 0.1)
    assert "one run a side: the noise between runs is assumed, not measured" in reason


@pytest.mark.parametrize(("seconds", "runs", "expected"), [(0.91, 5, "faster"), (0.91, 1, "inconclusive")])
def test_runs_in_turns_have_no_drift(contents, steady, seconds, runs, expected):
    sides = [
        (config | {"seed": seed}, steady(each), {})
        for seed in range(runs)
        for config, each in ((CPU, 1.0), (CUDA, seconds))
    ]
    assert outcome(contents(*sides))[0] == expected


def test_equal_sides_need_enough_runs_for_no_difference(contents, steady):
    """Runs differ by 1%."""
    generator = np.random.default_rng(2)

    def text(runs, **options):
        sides = [(config | {"seed": seed}, generator.normal(0, 0.01)) for seed in range(runs) for config in (CPU, CUDA)]
        return outcome(contents(*((config, steady(float(np.exp(at))), {}) for config, at in sides)), **options)[0]

    assert (text(1), text(2), text(8)) == ("inconclusive", "inconclusive", "no difference")
    assert text(3, margin=0.1) == "no difference"


def test_speedup_is_the_ratio_of_the_sides_columns_and_within_its_interval(contents, steady):
    sides = [
        (config | {"seed": seed}, steady(each + seed * (5 - seed) / 7), {})
        for seed in range(6)
        for config, each in ((CPU, 1.0), (CUDA, 0.6))
    ]
    for metric in ("samples_per_second", "epoch_seconds"):
        (row,) = compare(contents(*sides), None, CompareOptions(metric=metric)).rows
        columns = find_metric(metric).value_columns
        sides_of = [row[name] for name in (columns if metric == "epoch_seconds" else reversed(columns))]
        assert row["speedup"] == sides_of[0] / sides_of[1]
        assert row["ci_low"] < row["speedup"] < row["ci_high"]


def learnt(contents, timed, accuracies):
    """A sweep of one run for each (config, seed) in order, with this accuracy."""
    return contents(
        *(
            (config | {"seed": seed}, [msgspec.structs.replace(each, val_accuracy=value) for each in timed([1.0])], {})
            for config, seed, value in accuracies
        )
    )


def test_what_equal_seeds_do_to_both_sides_is_not_noise(contents, timed):
    """Seeds differ by 0.1 in accuracy, the sides by 0.02 in each seed, but for 0.001."""
    level = [0.5, 0.7, 0.6, 0.55, 0.65]
    of_cpu = [(CPU, seed, level[seed]) for seed in range(5)]
    of_cuda = [(CUDA, seed, level[seed] + 0.02 + 0.001 * (-1) ** seed) for seed in range(5)]
    assert outcome(learnt(contents, timed, [*of_cpu, *of_cuda[::-1]]), metric="val_accuracy")[0] == "better"
    for others in (
        [(config, seed + 1, value) for config, seed, value in of_cuda],  # not the same set
        of_cuda[:-1],
        [*of_cuda, (CUDA | {"lr": 0.01}, 4, 0.67)],  # one seed twice, as a run that was repeated
    ):
        assert outcome(learnt(contents, timed, [*of_cpu, *others]), metric="val_accuracy")[0] == "inconclusive"


def test_speeds_of_equal_seeds_are_not_paired(contents, steady):
    """A seed does not decide how fast a machine is: by chance the runs of a seed are equally slow."""
    slow = [1.0, 5.0, 2.0, 4.0, 3.0]
    sides = [
        (config | {"seed": seed}, steady(each * slow[seed]), {})
        for seed in range(5)
        for config, each in ((CPU, 1.5), (CUDA, 1.0))
    ]
    assert outcome(contents(*sides))[0] == "inconclusive"


def test_deviations_of_a_side_are_in_the_reason(contents, steady):
    line = "out of memory with 100 samples at once: steps are computed in pieces of 50"
    sides = [
        (config | {"seed": seed}, steady(s), {"deviations": (line,) if config is CUDA and seed < 2 else ()})
        for seed in range(5)
        for config, s in ((CPU, 1.0), (CUDA, 0.5))
    ]
    assert outcome(contents(*sides)) == ("faster", f"cuda: {line}")


def test_epochs_that_took_turns_use_the_drift_of_paired_measurement(contents, steady):
    sweep = contents((CPU | PAIRED, steady(1.0), {"session": "a"}), (CUDA | PAIRED, steady(0.68), {"session": "a"}))
    text, reason = outcome(sweep, metric="epoch_seconds")
    assert text == "faster"
    assert "outside 1 ± 1%" in reason and "a drift of the machine" not in reason
    assert outcome(sweep, metric="epoch_seconds", paired_drift=0.05)[0] == "inconclusive"


@pytest.mark.parametrize("session", ["b", None])
def test_paired_runs_without_common_turns_are_compared_like_others(contents, steady, session):
    sweep = contents((CPU | PAIRED, steady(1.0), {"session": "a"}), (CUDA | PAIRED, steady(0.97), {"session": session}))
    text, reason = outcome(sweep, metric="epoch_seconds")
    assert text == "inconclusive"
    assert "a drift of the machine by 10%" in reason


def test_epochs_of_a_rerun_side_are_compared_like_others(contents, steady, host):
    earlier = Attempt(
        started_at="2026-11-21T11:00:00+00:00",
        ended_at="2026-11-21T11:01:00+00:00",
        last_epoch=6,
        environment=host,
        session="a",
    )
    again = {"session": "b", "earlier": (earlier,)}
    sweep = contents((CPU | PAIRED, steady(1.0), again), (CUDA | PAIRED, steady(0.97), {"session": "b"}))
    assert "a drift of the machine by 10%" in outcome(sweep, metric="epoch_seconds")[1]
    # Both were resumed in the middle of their epochs: these took turns in either session.
    both = [again | {"earlier": (msgspec.structs.replace(earlier, last_epoch=3),)}] * 2
    sweep = contents((CPU | PAIRED, steady(1.0), both[0]), (CUDA | PAIRED, steady(0.97), both[1]))
    assert "outside 1 ± 1%" in outcome(sweep, metric="epoch_seconds")[1]


def test_run_time_of_paired_runs_is_not_compared(contents, steady):
    sides = [(config | PAIRED | {"seed": seed}, steady(1.0), {}) for seed in range(3) for config in (CPU, CUDA)]
    text, reason = outcome(contents(*sides), metric="run_seconds")
    assert (text, reason.partition(",")[0]) == ("not measured", "run_seconds of paired runs include their rounds")


def test_consecutive_sides_must_differ_by_more_than_the_drift(contents, steady):
    def outcomes(seconds):
        blocks = [*seeded(CPU, 1.0, steady), *seeded(CUDA, seconds, steady)]
        turns = [run for pair in zip(blocks[:5], blocks[5:], strict=True) for run in pair]
        return outcome(contents(*turns)), outcome(contents(*blocks))

    said = (
        "one side ran after the other: the interval includes a drift of the machine by 10%; "
        "of its width 100% is assumed: an unseen drift"
    )
    assert outcomes(0.95) == (("faster", None), ("inconclusive", said))
    assert outcomes(0.9) == (("faster", None), ("faster", said))  # 1.11 times as fast
    assert outcomes(1.0) == (("no difference", None), ("inconclusive", said))


def runs_over_time(timed, sides, *, drift, ratio, noise, generator):
    """A run a minute for each of `sides` (0: CPU), on a machine that gets slower by `drift` over all of them."""
    runs, seeds = [], [0, 0]
    for at, side in enumerate(sides):
        rate = math.exp(generator.normal(0, noise)) * (ratio if side else 1.0) / (1 + drift * at / (len(sides) - 1))
        runs.append(((CPU, CUDA)[side] | {"seed": seeds[side]}, timed([9.0] + [1 / rate] * 5), {}))
        seeds[side] += 1
    return runs


@pytest.mark.parametrize("drift", [0.1, -0.1])
def test_one_side_after_the_other_on_a_drifting_machine_is_never_no_difference(contents, timed, drift):
    """The candidate is truly 5% slower, 16 runs; equal sides too: the interval includes the truth."""
    generator = np.random.default_rng(1)
    for ratio in (0.95, 1.0):
        for _ in range(6):
            runs = runs_over_time(timed, [0] * 8 + [1] * 8, drift=drift, ratio=ratio, noise=0.002, generator=generator)
            row = only_row(contents(*runs))
            assert row["verdict"] != "no difference"
            assert row["ci_low"] <= ratio <= row["ci_high"]
            assert row.effect.drift == 0.1


def test_a_drift_of_runs_in_turns_is_corrected_and_said(contents, timed):
    generator, order = np.random.default_rng(2), [0, 0, 1, 0, 1, 0, 1, 0, 1, 0, 1, 1]
    said = "the machine's speed drifted: the speedup is corrected by "
    for _ in range(6):
        runs = runs_over_time(timed, order, drift=0.2, ratio=1.05, noise=0.004, generator=generator)
        row = only_row(contents(*runs))
        assert said in row["reason"]
        assert row["ci_low"] <= 1.05 <= row["ci_high"] and row["verdict"] == "faster"
        sides = row["candidate_samples_per_second"], row["baseline_samples_per_second"]
        shift = row["speedup"] / (sides[0] / sides[1]) - 1
        assert f"{said}{shift:+.1%}" in row["reason"] and 0.01 < shift < 0.06
    steady = runs_over_time(timed, order, drift=0.0, ratio=1.05, noise=0.004, generator=generator)
    assert outcome(contents(*steady)) == ("faster", None)


def test_what_few_runs_do_not_show_is_named_as_assumed(contents, timed):
    def reason(runs):
        generator = np.random.default_rng(3)
        order = [0, 1] * runs
        made = runs_over_time(timed, order, drift=0.0, ratio=1.2, noise=0.003, generator=generator)
        return outcome(contents(*made))[1] or ""

    assert re.fullmatch(
        r"of its width [5-9]\d% is assumed: the noise between runs, which so few do not show", reason(2)
    )
    assert "assumed" not in reason(8)
    assert "one run a side: the noise between runs is assumed, not measured" in reason(1)


def test_a_contended_difference_that_cannot_be_seen_is_inconclusive(contents, timed):
    """Two runs of each rate at once on a busy machine: a factor of 2 to 3 that is luck, among runs that differ more."""
    busy = {lr: [rate * 1.0002**seed for seed, rate in enumerate([of] * 2)] for lr, of in ((0.01, 1.0), (0.1, 2.0))}
    wild = {0.2: [1.0, 90.0], 0.3: [1.0, 60.0]}

    def rows(**fields):
        runs = [
            ({"lr": lr, "seed": seed}, timed([9.0] + [1 / rates[seed]] * 5), fields)
            for seed in range(2)
            for lr, rates in (busy | wild).items()
        ]
        return compare(contents(*runs), None, CompareOptions(axis="lr")).rows

    alone, contended = rows()[0], rows(minute=0)[0]
    assert (alone["speedup"], contended["speedup"]) == (pytest.approx(2.0), pytest.approx(2.0))
    assert (alone.effect.detectable, alone["verdict"]) == (0.0, "faster")
    assert contended.effect.detectable > 1.0 and contended["ci_low"] > 1.0
    assert contended["verdict"] == "inconclusive"
    assert "contended runs show only differences in speed of more than a factor of about" in contended["reason"]


def test_invalid_margin_or_drift_is_rejected_by_its_option(contents, steady):
    sweep = contents((CPU, steady(1.0), {}))
    for options, text in (({"margin": 0.0}, "--margin"), ({"margin": 1.5}, "--margin"), ({"drift": -1}, "--drift")):
        with pytest.raises(UsageError, match=f"`{text}` must be"):
            compare(sweep, None, CompareOptions(**options))
    assert compare(sweep, None, CompareOptions(margin=1.5, metric="val_loss")).rows == []


def test_twenty_equal_candidates_rarely_have_a_false_verdict(contents, timed):
    generator = np.random.default_rng(8)
    false = 0
    for _ in range(25):
        runs = [
            (
                {"lr": lr, "seed": seed},
                timed([9.0, *np.exp(generator.normal(0, 0.03) + generator.normal(0, 0.02, 5))]),
                {},
            )
            for seed in range(3)
            for lr in range(21)
        ]
        rows = compare(contents(*runs), None, CompareOptions(axis="lr", drift=0.0)).rows
        false += any(row["verdict"] in ("faster", "slower") for row in rows)
    assert len(rows) == 20 and false <= 3


def test_interval_of_equal_accuracies_is_one_validation_sample(contents, timed):
    def epochs(right):
        return [
            msgspec.structs.replace(each, val_accuracy=of / 500)
            for each, of in zip(timed([1.0] * 3), right, strict=True)
        ]

    runs = [
        (config | {"seed": seed}, epochs(right), {})
        for seed in range(3)
        for config, right in ((CPU, (301, 407, 450)), (CUDA, (299, 411, 451)))
    ]
    (row,) = compare(contents(*runs), None, CompareOptions(metric="val_accuracy")).rows
    assert (row["ci_low"], row["ci_high"]) == pytest.approx((0.0, 0.004), abs=1e-9)
    assert row["verdict"] == "inconclusive"


def test_collapsed_seed_is_named(contents, timed):
    def epochs(accuracy):
        return [msgspec.structs.replace(each, val_accuracy=accuracy) for each in timed([1.0] * 2)]

    accuracies = [0.97, 0.98, 0.975, 0.1, 0.972]
    runs = [
        (config | {"seed": seed}, epochs(accuracy if config is CUDA else 0.96), {})
        for seed, accuracy in enumerate(accuracies)
        for config in (CPU, CUDA)
    ]
    text, reason = outcome(contents(*runs), metric="val_accuracy")
    assert text == "inconclusive"
    assert reason == "cuda: seed=3 with 0.1000 fell far behind the median of 0.9720"


def test_a_run_that_fell_far_behind_in_speed_is_named(contents, timed):
    seconds = {"cpu": [1.0, 1.01, 0.99, 1.0], "cuda": [0.5, 0.51, 0.9, 0.5]}
    runs = [
        (config | {"seed": seed}, timed([9.0] + [seconds[config["device"]][seed]] * 5), {})
        for seed in range(4)
        for config in (CPU, CUDA)
    ]
    assert "cuda: seed=2 with 1,111 fell far behind the median of 1,980" in outcome(contents(*runs))[1]


def test_at_most_one_false_verdict_in_twenty(contents, timed):
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
        false += outcome(contents(*runs))[0] in ("faster", "slower")
    assert false <= 5


def test_invalid_values_affect_only_their_own_row(contents, timed):
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
    assert [lr for lr, why in by_time.items() if "is not a valid measurement" in why] == [1, 2]
    assert "cpu: epoch_seconds of -2 is not a valid measurement" in by_time[1]
    assert [lr for lr, why in by_accuracy.items() if "val_accuracy of 1e+308 is not a valid" in why] == [3]
    assert by_rate[4] == by_time[4] == ""
    assert by_accuracy[4].startswith("no run differs from another of its side")


def test_reason_distinguishes_equal_differences_from_equal_runs(contents, timed):
    """The number of workers changes no loss, but the seed does: the runs of a side differ, but their pairs do not."""

    def reason(losses):
        sweep = contents(
            *(
                ({"num_workers": workers, "seed": seed}, [msgspec.structs.replace(timed([2.0])[0], val_loss=loss)], {})
                for workers in (0, 1)
                for seed, loss in enumerate(losses)
            )
        )
        (row,) = compare(sweep, None, CompareOptions(axis="num_workers", metric="val_loss")).rows
        assert row["verdict"] == "not measured"
        return row["reason"]

    assert reason([0.31, 0.29, 0.33]).startswith("the two sides differ equally in each pair of runs")
    assert reason([0.31, 0.31, 0.31]).startswith("no run differs from another of its side")


def test_runs_that_were_resumed_later_did_not_take_turns(contents, steady, host):
    """All runs began in turns, but one side made its epochs on another day."""

    def sides(last_epoch):
        def resumed(seed):
            minute = f"12:{2 * seed + 1:02}:00+00:00"
            earlier = Attempt(
                started_at=f"2026-11-21T{minute}",
                ended_at=f"2026-11-21T{minute}",
                last_epoch=last_epoch,
                environment=host,
            )
            return {"earlier": (earlier,), "resumed_at": f"2026-11-22T{minute}"}

        return [
            (config | {"seed": seed}, steady(each), resumed(seed) if config is CUDA else {})
            for seed in range(5)
            for config, each in ((CPU, 1.0), (CUDA, 0.91))
        ]

    assert "one side ran after the other" in outcome(contents(*sides(2)))[1]
    assert outcome(contents(*sides(5))) == ("faster", None)

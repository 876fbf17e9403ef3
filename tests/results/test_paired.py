"""Speedups from rounds of turns: known values, honest intervals, and rounds that belong together."""

import dataclasses
import math

import numpy as np
import pytest

from runmanager.records.turns import Turn
from runmanager.results.paired import is_narrow, least_rounds, log_ratios, paired_speedup, ratios_of, rounds_of

# Hamilton's depression scale before and after a tranquilliser, nine patients: Hollander, Wolfe and Chicken,
# Nonparametric Statistical Methods, 3rd ed. 2014, examples 3.3 and 3.4.
DEPRESSION = [-0.952, 0.147, -1.022, -0.430, -0.620, -0.590, -0.490, 0.080, -0.010]


def test_estimate_and_interval_are_those_of_the_textbook():
    estimate = paired_speedup(DEPRESSION)
    # At 95% the exact interval of nine values is that of the example, whose level is 96.1%.
    assert [math.log(value) for value in (estimate.value, estimate.low, estimate.high)] == pytest.approx(
        [-0.46, -0.786, -0.010]
    )


def test_fewer_than_six_rounds_have_no_interval():
    assert paired_speedup([0.1] * 5) is None
    found = paired_speedup([math.log(2.0)] * 6)
    assert (found.value, found.low, found.high) == pytest.approx((2.0, 2.0, 2.0))


def test_intervals_that_hold_together_with_others_are_wider_and_need_more_rounds():
    assert (least_rounds(0.95), least_rounds(0.99)) == (6, 8)
    assert paired_speedup([0.1] * 7, confidence=0.99) is None
    one, many = (paired_speedup(DEPRESSION, confidence=confidence) for confidence in (0.95, 0.99))
    assert many.low < one.low < one.high < many.high


@pytest.mark.parametrize("count", [6, 20, 60, 450])
def test_the_interval_covers_the_truth_under_bursts_of_noise(count):
    generator = np.random.default_rng(count)
    truth, trials, covered = math.log(1.25), 400, 0
    for _ in range(trials):
        bursts = generator.standard_t(2, count) * (generator.random(count) < 0.2)
        estimate = paired_speedup((truth + 0.02 * (generator.normal(0, 1, count) + bursts)).tolist())
        covered += estimate.low <= 1.25 <= estimate.high
    # Three standard deviations of a count of 400 at 95% are 13; six values have an exact level of 96.9%.
    assert 367 <= covered <= 400 if count == 6 else 367 <= covered <= 393


def test_a_single_outlier_moves_the_estimate_little():
    steady = [0.1 + 0.001 * number for number in range(20)]
    estimate, disturbed = paired_speedup(steady), paired_speedup([*steady[:-1], 5.0])
    assert disturbed.value == pytest.approx(estimate.value, rel=0.002)


def test_narrow_is_the_wider_half():
    ratios = [math.log(1.0 + 0.002 * number) for number in range(10)]
    estimate = paired_speedup(ratios)
    wider = max(estimate.high / estimate.value, estimate.value / estimate.low) - 1
    assert is_narrow(ratios, wider + 1e-6)
    assert not is_narrow(ratios, wider - 1e-6)
    assert not is_narrow(ratios[:5], 1.0)


def test_seeds_of_one_side_count_with_their_geometric_mean():
    rounds = [{0: 100.0, 1: 400.0, 2: 300.0}, {0: 100.0, 2: 150.0}, {0: 100.0, 1: 400.0}]
    assert log_ratios(rounds, [0, 1], [2]) == pytest.approx([math.log(1.5), math.log(1.5)])


def turn(number, rate, *, session="a", warmup=False):
    return Turn(session, number, 1, 10, 1000, 1000 / rate, warmup)


def test_only_rounds_of_one_session_belong_together_and_warm_up_to_none(contents, timed):
    sweep = contents(*(({"lr": at}, timed([1.0]), {}) for at in range(2)))
    taken = [
        [turn(1, 10.0, warmup=True), turn(2, 100.0), turn(3, 110.0), turn(2, 5.0, session="b"), turn(4, 120.0)],
        [turn(1, 20.0), turn(2, 200.0), turn(3, 210.0), turn(2, 7.0, session="b")],
    ]
    runs = [dataclasses.replace(run, turns=turns) for run, turns in zip(sweep.runs, taken, strict=True)]
    assert rounds_of(runs) == [pytest.approx({0: 100.0, 1: 200.0}), pytest.approx({0: 110.0, 1: 210.0})]
    assert ratios_of(runs[:1], runs[1:]) == pytest.approx([math.log(2.0), math.log(210 / 110)])

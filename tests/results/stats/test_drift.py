"""Drift of a machine's speed: a trend is seen where there is one, and corrected; by simulation."""

import math

import numpy as np
import pytest

from runmanager.results.stats.descriptive import make_sample
from runmanager.results.stats.effects import Contrast, Trend, fit_trend, simultaneous_estimates

NOISE = 0.01
ORDERS = {"turns": [0, 1] * 8, "baseline first": [0, 0, 1, 0, 0, 1, 0, 1, 0, 1, 0, 1, 1, 0, 1, 1]}


def contrast(generator, *, drift, order, ratio=1.0, are_timed=True):
    """Two sides of 8 runs, a minute each, on a machine whose log speed rises by `drift` over all of them."""
    runs = [[], []]
    for at, side in enumerate(order):
        level = drift * at / (len(order) - 1) + generator.normal(0, NOISE) + side * math.log(ratio)
        runs[side].append((math.exp(level), 60.0 * at))
    samples = (
        make_sample([[rate] for rate, _ in of], is_ratio=True, times=[time for _, time in of] if are_timed else [])
        for of in runs
    )
    return Contrast(*samples)


def trend_of(found):
    return fit_trend([found.baseline, found.candidate])


def test_a_trend_is_seen_and_its_slope_is_right():
    seen = [trend_of(contrast(np.random.default_rng(seed), drift=0.1, order=ORDERS["turns"])) for seed in range(50)]
    assert sum(each.is_seen for each in seen) >= 48
    slopes = [each.slope * 15 * 60 for each in seen]
    assert float(np.mean(slopes)) == pytest.approx(0.1, rel=0.1)
    # The variance that it claims is that of the slopes.
    assert float(np.mean([each.variance for each in seen])) * 900**2 == pytest.approx(np.var(slopes), rel=0.5)


def test_a_steady_machine_rarely_seems_to_drift():
    seen = [trend_of(contrast(np.random.default_rng(seed), drift=0.0, order=ORDERS["turns"])) for seed in range(100)]
    assert sum(each.is_seen for each in seen) <= 6


@pytest.mark.parametrize("order", ORDERS)
@pytest.mark.parametrize("drift", [0.0, 0.02, 0.1, -0.1])
def test_intervals_cover_the_truth_whatever_the_machine_does(order, drift):
    generator, covered, trials = np.random.default_rng(3), 0, 150
    for _ in range(trials):
        found = contrast(generator, drift=drift, order=ORDERS[order], ratio=1.03)
        (estimate,) = simultaneous_estimates([found])
        covered += estimate.low <= 1.03 <= estimate.high
    assert covered >= 0.93 * trials - 3 * math.sqrt(0.05 * 0.95 * trials)


def test_a_trend_is_not_extrapolated_to_a_later_side():
    """Each side rises by 2% in its own 10 minutes, and they ran 100 minutes apart."""
    runs = [[1.0 + 0.005 * at + 0.0001 * (at % 2)] for at in range(5)]
    early, late = (
        make_sample(runs, is_ratio=True, times=[start + 120.0 * at for at in range(5)]) for start in (0.0, 6000.0)
    )
    assert fit_trend([early, late]).is_seen
    (estimate,) = simultaneous_estimates([Contrast(early, late, drift=0.1)])
    assert estimate.value == pytest.approx(1.0) and 1.09 < estimate.high < 1.12


def test_a_seen_trend_is_taken_out_of_the_value_and_of_the_noise():
    order = ORDERS["baseline first"]
    found = contrast(np.random.default_rng(4), drift=0.1, order=order, ratio=1.05)
    untimed = contrast(np.random.default_rng(4), drift=0.1, order=order, ratio=1.05, are_timed=False)
    assert trend_of(found).is_seen
    ((corrected,), (plain,)) = simultaneous_estimates([found]), simultaneous_estimates([untimed])
    assert abs(corrected.value - 1.05) < abs(plain.value - 1.05)
    assert corrected.high / corrected.low < plain.high / plain.low


@pytest.mark.parametrize(
    ("values", "times"),
    [
        ([1.0, 1.1, 1.2, 1.3], []),
        ([1.0, 1.1, 1.2, 1.3], [5.0] * 4),  # all at once
        ([1.0] * 4, [0.0, 1.0, 2.0, 3.0]),  # no noise
        ([1.0, 1.1], [0.0, 1.0]),  # too few
    ],
)
def test_there_is_no_trend_where_times_do_not_tell(values, times):
    trend = fit_trend([make_sample([[value] for value in values], is_ratio=True, times=times)])
    assert trend == Trend() and not trend.is_seen


def test_metrics_other_than_speeds_have_no_trend():
    values = [[0.9], [0.91], [0.92], [0.93], [0.94]]
    sample = make_sample(values, is_ratio=False, times=[0.0, 1.0, 2.0, 3.0, 4.0])
    assert fit_trend([sample]) == Trend()


def test_a_trend_that_is_not_seen_is_a_part_of_the_error_only():
    early, late = (make_sample([[1.0], [1.02]], is_ratio=True, times=times) for times in ([0.0, 10.0], [20.0, 30.0]))
    unseen = Trend(slope=0.001, variance=1e-8, chance=0.25, dof=6.0)
    assert unseen.between(early, late) == 0.0
    assert unseen.variance_between(early, late) == pytest.approx(0.25 * (1e-8 + 1e-6) * 400)
    assert unseen.rest_of(early) == early.residuals
    seen = Trend(slope=0.001, variance=1e-8, chance=0.8, dof=6.0)
    assert seen.between(early, late) == pytest.approx(0.8 * 0.001 * 20)
    assert seen.variance_between(early, late) == pytest.approx(0.8 * (1e-8 + 0.2 * 1e-6) * 400)
    assert seen.rest_of(early).squares == pytest.approx((math.log(1.02) - 0.8 * 0.01) ** 2 / 2)
    assert seen.rest_of(early).dof == pytest.approx(1 - 0.8 / 6)

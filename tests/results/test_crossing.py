"""Where two curves cross: against closed forms, and how often the interval covers the truth."""

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import interpolate, stats

from runmanager.results.crossing import CurvePoint, find_crossing


def points_of(xs, ratios, *, variance=0.0, tolerance=0.0):
    return tuple(CurvePoint(x, ratio, variance, 4.0, tolerance) for x, ratio in zip(xs, ratios, strict=True))


@settings(max_examples=40, deadline=None)
@given(st.floats(0.1, 5), st.floats(-3.9, -0.1), st.floats(0.1, 2))
def test_power_laws_cross_where_algebra_says(slope, start, step):
    xs = [math.exp(step * at) for at in range(5)]
    ratios = [start * slope + slope * math.log(x) for x in xs]  # log ratio = slope (log x + start)
    found = find_crossing(points_of(xs, ratios), resamples=20)
    if ratios[-1] < 0:
        assert (found.at, found.low, found.candidate_leads) == (None, math.inf, False)
    else:
        assert found.at == pytest.approx(math.exp(-start), rel=1e-6)
        assert (found.low, found.high) == (pytest.approx(found.at), pytest.approx(found.at))
        assert found.candidate_leads


def test_of_two_points_the_line_between_them_counts():
    found = find_crossing(points_of([1.0, 100.0], [-1.0, 3.0]))
    assert found.at == pytest.approx(100**0.25)


def test_curves_that_bend_are_followed():
    """Latency plus work: 1 + x against 3 + x / 50 cross at 100 / 49; straight lines between the points are far off."""
    xs = [4.0**power for power in range(-3, 5)]
    ratios = [math.log((1 + x) / (3 + x / 50)) for x in xs]
    straight = np.interp(0, ratios[3:6], np.log(xs[3:6]))
    found = find_crossing(points_of(xs, ratios))
    assert found.at == pytest.approx(100 / 49, rel=0.01)
    assert abs(math.exp(straight) / (100 / 49) - 1) > 0.03


@pytest.mark.parametrize("ratios", [(-2.0, -1.5, 3.0), (-1.0, -0.9, 0.4, 0.5), (-3.0, -1.0, -0.2, 2.0, 2.1, 6.0)])
def test_between_points_the_curve_is_the_natural_spline_that_scipy_draws(ratios):
    xs = [3.0**at * (1 + 0.2 * (at % 2)) for at in range(len(ratios))]
    spline = interpolate.CubicSpline(np.log(xs), ratios, bc_type="natural")
    (root,) = spline.roots(extrapolate=False)
    assert math.log(find_crossing(points_of(xs, ratios), resamples=20).at) == pytest.approx(root, abs=0.005)


def test_who_is_ahead_throughout_is_said_without_a_crossing():
    ahead = find_crossing(points_of([1, 10, 100], [0.5, 0.7, 0.9]))
    behind = find_crossing(points_of([1, 10, 100], [-0.9, -0.7, -0.5]))
    assert (ahead.at, ahead.candidate_leads, ahead.low) == (None, True, -math.inf)
    assert (behind.at, behind.candidate_leads, behind.high) == (None, False, math.inf)
    # Falling behind, but ahead as far as was measured.
    assert find_crossing(points_of([1, 10, 100], [0.9, 0.7, 0.5])).candidate_leads


def test_the_baseline_may_overtake_too():
    falling = find_crossing(points_of([1.0, 100.0], [1.0, -3.0], variance=0.01))
    rising = find_crossing(points_of([1.0, 100.0], [-1.0, 3.0], variance=0.01))
    assert not falling.candidate_leads
    assert (falling.at, falling.low, falling.high) == pytest.approx((rising.at, rising.low, rising.high), rel=0.1)


def test_noise_of_a_line_gives_the_interval_of_student():
    """Both points move alike, so the crossing moves by t x s / slope; one of them by half as much in the middle."""
    xs, half = [1.0, math.e**2], 0.01
    found = find_crossing(points_of(xs, [-1.0, 1.0], variance=half**2), resamples=40_000)
    # In the middle the curve is the mean of two draws; their sum of two t with 4 degrees is simulated apart.
    draws = stats.t(4).rvs((200_000, 2), random_state=np.random.default_rng(3)).mean(axis=1) * half
    low, high = np.quantile(draws, [0.025, 0.975])
    assert (math.log(found.low) - 1, math.log(found.high) - 1) == pytest.approx((low, high), rel=0.06)


def test_a_tolerance_widens_the_interval_by_what_drift_alone_moves():
    found = find_crossing(points_of([1.0, math.e**2], [-1.0, 1.0], tolerance=0.1))
    assert (math.log(found.low), math.log(found.high)) == pytest.approx((0.9, 1.1))


def test_an_interval_that_leaves_the_range_is_open():
    found = find_crossing(points_of([1, 10, 100], [-0.001, 0.5, 0.9], variance=0.01))
    assert found.low == -math.inf
    assert 1 < found.at < found.high < 10


def test_between_two_points_of_one_sign_nothing_crosses():
    """A spline swings about a step; the swing is no crossing."""
    found = find_crossing(points_of([1, 2, 4, 8, 16, 32], [-1, -0.01, -1, 9, 9.5, 9.4]))
    assert 4 < found.at < 8


@pytest.mark.parametrize("runs", [1, 5])
def test_a_point_knows_its_variance_by_hand(runs):
    baseline, candidate = [[0.0, 0.0, 0.0]], [[1.0, 2.0, 6.0]]
    if runs == 1:
        point = CurvePoint.of(3.0, baseline, candidate, tolerance=0.0)
        # The median is 2; the variance of 1, 2, 6 is 7, that of their mean 7/3, that of their median pi/2 of it.
        assert (point.log_ratio, point.variance) == (2.0, pytest.approx(math.pi / 2 * 7 / 3))
        assert point.freedom == 2
        return
    one, other = [1.0, 2.0, 3.0, 4.0, 5.0], [2.0, 2.0, 2.0, 2.0, 7.0]
    point = CurvePoint.of(3.0, [[value] for value in one], [[value] for value in other], tolerance=0.0)
    welch = stats.ttest_ind(other, one, equal_var=False)
    assert point.log_ratio / math.sqrt(point.variance) == pytest.approx(welch.statistic)
    assert point.freedom == pytest.approx(welch.df)


def test_the_interval_covers_the_truth_as_often_as_it_says():
    generator = np.random.default_rng(11)
    xs = [4.0**power for power in range(5, 12)]
    covered = 0
    for _ in range(150):
        points = []
        for x in xs:
            sides = [
                [[float(rate)] for rate in level + generator.normal(0, 0.03, 5)]
                for level in (-0.8 * math.log(x), math.log(0.01) - 0.4 * math.log(x))
            ]
            points.append(CurvePoint.of(x, *sides, tolerance=0.0))
        found = find_crossing(tuple(points), resamples=500)
        covered += found.low <= 1e5 <= found.high
    assert 134 <= covered <= 150  # 95% of 150 is 142.5; these are three standard deviations

"""Crossings of two curves: between points where one side and then the other is significantly ahead."""

import math

import pytest

from runmanager.results.findings.crossover import CurvePoint, find_crossings


def points_of(*given):
    return [CurvePoint(x, ratio, ahead) for x, ratio, ahead in given]


def test_crossing_lies_between_the_significant_points():
    (found,) = find_crossings(points_of((1.0, -1.0, -1), (100.0, 3.0, 1)))
    assert found.at == pytest.approx(100**0.25)  # on the straight line over log x
    assert (found.low, found.high, found.candidate_leads) == (1.0, 100.0, True)
    (back,) = find_crossings(points_of((1.0, 1.0, 1), (100.0, -3.0, -1)))
    assert (back.at, back.candidate_leads) == (pytest.approx(found.at), False)


def test_insignificant_points_prove_no_crossing_and_widen_the_interval():
    """Signs of measured ratios change at every point; only two points are significant."""
    points = points_of((1, -0.5, -1), (2, 0.01, 0), (4, -0.01, 0), (8, 0.01, 0), (16, 0.5, 1), (32, -0.01, 0))
    (found,) = find_crossings(points)
    assert (found.low, found.high) == (1, 16)
    assert 2 < found.at < 8
    assert find_crossings(points[1:4]) == find_crossings(points[4:]) == []


def test_each_crossing_is_found():
    """Two crossings are not merged into one between them."""
    ratios = (-0.5, 0.5, 0.5, 0.5, -0.45)
    points = points_of(*((4.0**at, ratio, int(math.copysign(1, ratio))) for at, ratio in enumerate(ratios)))
    up, down = find_crossings(points)
    assert (up.low, up.high, up.candidate_leads) == (1, 4, True)
    assert (down.low, down.high, down.candidate_leads) == (64, 256, False)
    assert up.at == pytest.approx(2)  # half of the way in logs
    assert down.at == pytest.approx(64 * 4 ** (0.5 / 0.95))


def test_estimate_of_noisy_curves_keeps_the_share_of_the_range_ahead():
    (found,) = find_crossings(points_of((1, -1.0, -1), (math.e, 1.0, 0), (math.e**2, -1.0, 0), (math.e**3, 1.0, 1)))
    assert math.log(found.at) == pytest.approx(1.5)  # ahead for half of each of the three pieces


def test_log_ratio_of_zero_is_on_the_line():
    (found,) = find_crossings(points_of((1, -1.0, -1), (10, 0.0, 0), (100, 1.0, 1)))
    assert found.at == pytest.approx(10)


def test_a_curve_that_touches_the_line_and_returns_has_not_crossed_it():
    (found,) = find_crossings(points_of((1, -1.0, -1), (10, 0.0, 0), (100, -1.0, 0), (1000, 1.0, 1)))
    assert math.log10(found.at) == pytest.approx(2.5)

"""The runs of a side: their medians, the variance that epochs explain, and their residuals, by hand."""

import math

import pytest

from runmanager.results.stats.descriptive import geometric_mean, make_sample, residuals


def runs_of(values, *, is_ratio):
    return make_sample(values, is_ratio=is_ratio).runs


def test_variance_of_a_run_is_that_of_the_median_of_correlated_epochs():
    # By hand: the squares about 2.5 add to 5, neighbours to 1.25, so r = 1/4; π/2 x 5 / 3 / 4 x (5/4) / (3/4).
    variance = math.pi / 2 * 5 / 12 * 5 / 3
    (found,) = runs_of([[1.0, 2.0, 3.0, 4.0]], is_ratio=False)
    assert (found.median, found.scaled, found.variance) == pytest.approx((2.5, 2.5, variance))
    (found,) = runs_of([[1.0, 2.0, 3.0, 4.0]], is_ratio=True)
    assert (found.median, found.scaled, found.variance) == pytest.approx((2.5, math.log(2.5), variance / 2.5**2))
    # Neighbours that differ more than by chance count as independent, and those that hardly differ have at most 0.9.
    (found,) = runs_of([[1.0, 3.0]], is_ratio=False)
    assert found.variance == pytest.approx(math.pi / 2)
    (found,) = runs_of([[0.0] * 50 + [1.0] * 50], is_ratio=False)
    assert found.variance == pytest.approx(math.pi / 2 * 25 / 99 / 100 * 1.9 / 0.1)
    assert [each.variance for each in runs_of([[5.0], [7.0, 7.0]], is_ratio=True)] == [0.0, 0.0]


def test_side_is_the_geometric_mean_of_the_medians_of_its_runs():
    side = make_sample([[1.0, 2.0, 90.0], [8.0]], is_ratio=True)
    assert side.typical == pytest.approx(4.0)
    assert side.values == pytest.approx([math.log(2.0), math.log(8.0)])
    assert make_sample([[1.0, 2.0, 90.0], [8.0]], is_ratio=False).typical == 5.0
    assert geometric_mean([0.1] * 3) == 0.1


def test_residuals_are_the_squares_about_the_mean():
    assert residuals([1.0, 2.0, 6.0]) == residuals([101.0, 102.0, 106.0])
    assert (residuals([1.0, 2.0, 6.0]).squares, residuals([1.0, 2.0, 6.0]).dof) == (14.0, 2.0)
    assert residuals([1.0, 2.0, 6.0], share=0.5).squares == 7.0
    assert (residuals([3.0]).squares, residuals([3.0]).dof) == (0.0, 0.0)


def test_the_variance_of_a_side_is_that_of_the_mean_over_its_runs():
    side = make_sample([[1.0, 3.0], [5.0]], is_ratio=False)
    assert side.least_variance == pytest.approx(math.pi / 2 / 2 / 2)

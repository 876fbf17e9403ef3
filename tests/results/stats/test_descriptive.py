"""Descriptive statistics, against values computed by hand, by NumPy, and published ones."""

import statistics

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from runmanager.results.stats.descriptive import Estimate, Interval, iqr, levels_by_seed, mean, median

# Survival of 16 mice in days: Efron and Tibshirani, An Introduction to the Bootstrap, 1993, table 2.1.
TREATED = [94.0, 197.0, 16.0, 38.0, 99.0, 141.0, 23.0]
CONTROL = [52.0, 104.0, 146.0, 10.0, 51.0, 30.0, 40.0, 27.0, 46.0]


def test_medians_of_the_mouse_data_are_the_published_ones():
    assert median(TREATED) == 94
    assert median(CONTROL) == 46


@given(st.lists(st.floats(-1e9, 1e9), min_size=1))
def test_median_and_iqr_agree_with_the_standard_library_and_numpy(values):
    assert median(values) == pytest.approx(statistics.median(values))
    low, high = np.percentile(values, [25, 75])
    assert iqr(values) == pytest.approx(high - low, abs=1e-6)


def test_empty_sequence_has_no_median_and_one_value_no_spread():
    assert median([]) is None
    assert iqr([]) is None
    assert (median([3.0]), iqr([3.0])) == (3.0, 0.0)


def test_values_next_to_infinity_have_a_mean_and_a_median():
    largest = 1.7e308
    assert mean([largest, largest, -largest]) == pytest.approx(largest / 3)
    assert mean([1.0, 2.0, 6.0]) == 3.0
    assert median([largest, largest]) == largest


def test_interval_of_an_estimate_is_its_ends():
    assert Estimate(2.0, 1.0, 3.0).interval == Interval(1.0, 3.0)
    assert (Estimate(2.0, 1.0, 3.0).error, Estimate(2.0, 1.0, 3.0).dof) == (0.0, 0.0)


@pytest.mark.parametrize("of_seed", [0.0, 0.05])
def test_levels_tell_the_best_cell_apart_though_cells_have_other_seeds(of_seed: float) -> None:
    """What seeds do is estimated: where it is much, means of other seeds mislead, where it is nothing, they do not."""
    generator, found, by_means = np.random.default_rng(0), 0, 0
    for _ in range(200):
        values = generator.normal(0, of_seed, 10) + generator.normal(0, 0.01, (6, 10))
        values[0] += 0.01
        runs = [[(seed, float(each[seed])) for seed in range(generator.integers(2, 11))] for each in values]
        means = [mean([value for _, value in each]) for each in runs]
        by_means += means.index(max(means)) == 0
        levels = levels_by_seed(runs, is_ratio=False) or means
        found += levels.index(max(levels)) == 0
    assert found >= (0.75 * 200 if of_seed else by_means - 10)
    assert not of_seed or by_means < 0.6 * 200

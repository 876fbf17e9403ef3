"""The noise between runs: the prior, what runs teach, and the critical values, against values in print or by hand."""

import math

import numpy as np
import pytest
from scipy import stats

from runmanager.results.noise import BETWEEN_RUNS, UNKNOWN, Noise, Residuals, critical, learned, noises


def test_the_prior_gives_one_run_a_side_a_factor_of_1_4_either_way():
    # Student's t of 3 degrees of freedom at 97.5% is 3.1824 in any table.
    assert BETWEEN_RUNS.reach(1, 1) == pytest.approx(3.1824 * 0.0745 * math.sqrt(2), rel=1e-4)
    assert 1.35 < math.exp(BETWEEN_RUNS.reach(1, 1)) < 1.4


def test_runs_update_the_prior_as_a_mean_weighted_by_degrees_of_freedom():
    # By hand: (3 x 4 + 20) / (3 + 5) = 4.
    assert Noise(4.0, 3.0).updated(Residuals(20.0, 5.0)) == Noise(4.0, 8.0)
    assert UNKNOWN.updated(Residuals(6.0, 3.0)) == Noise(2.0, 3.0)
    assert UNKNOWN.updated(Residuals()) == UNKNOWN and UNKNOWN.reach(1, 1) == math.inf


def test_other_rows_teach_their_mean_variance_as_few_runs_would():
    quiet = [Residuals(2e-6, 2.0)] * 4
    assert learned(quiet, BETWEEN_RUNS)[0] == Residuals(pytest.approx(4e-6), 4.0)
    assert learned(quiet[:2], BETWEEN_RUNS)[0] == Residuals(pytest.approx(2e-6), 2.0)
    assert learned(quiet[:1], BETWEEN_RUNS) == [Residuals()]
    assert learned([Residuals()] * 3, BETWEEN_RUNS) == [Residuals()] * 3  # one run a side everywhere


@pytest.mark.parametrize("prior", [BETWEEN_RUNS, UNKNOWN])
def test_a_wild_row_does_not_spoil_the_others(prior):
    quiet, wild = Residuals(2e-6, 2.0), Residuals(2e6, 2.0)
    *others, of_wild = noises([quiet] * 6 + [wild], prior)
    assert all(noise.variance <= max(prior.variance, 1e-5) for noise in others)
    assert of_wild.variance > 1e5  # and the others do not make it look quiet


def test_the_critical_value_of_one_row_is_students_and_of_many_sure_ones_sidaks():
    assert critical(10.0, 1) == pytest.approx(stats.t.ppf(0.975, 10), rel=1e-6)
    sidak = stats.norm.ppf((1 + 0.95 ** (1 / 20)) / 2)
    assert critical(1e7, 20) == pytest.approx(sidak, rel=1e-3)


def test_the_largest_of_several_values_that_share_their_noise_stays_below_the_critical_value():
    generator = np.random.default_rng(1)
    noise = np.sqrt(generator.chisquare(6, 200_000) / 6)
    largest = np.abs(generator.standard_normal((200_000, 8))).max(axis=1) / noise
    assert np.mean(largest <= critical(6.0, 8)) == pytest.approx(0.95, abs=0.002)

"""The noise between runs: the prior, its update, and the critical values, against published values or by hand."""

import math

import numpy as np
import pytest
from scipy import stats

from runmanager.results.stats.noise_model import (
    NO_PRIOR,
    RATIO_PRIOR,
    Noise,
    Residuals,
    critical_value,
    moderate_noise,
    pool_other_rows,
)


def test_prior_gives_one_run_a_side_a_factor_of_1_4_either_way():
    # Student's t of 3 degrees of freedom at 97.5% is 3.1824 in any table.
    assert RATIO_PRIOR.half_width(1, 1) == pytest.approx(3.1824 * 0.0745 * math.sqrt(2), rel=1e-4)
    assert 1.35 < math.exp(RATIO_PRIOR.half_width(1, 1)) < 1.4


def test_runs_update_the_prior_as_a_mean_weighted_by_degrees_of_freedom():
    # By hand: (3 x 4 + 20) / (3 + 5) = 4.
    assert Noise(4.0, 3.0).updated(Residuals(20.0, 5.0)) == Noise(4.0, 8.0, own=5.0)
    assert Noise(4.0, 3.0).updated(Residuals(20.0, 5.0), are_own=False) == Noise(4.0, 8.0)
    assert NO_PRIOR.updated(Residuals(6.0, 3.0)) == Noise(2.0, 3.0, own=3.0)
    assert NO_PRIOR.updated(Residuals()) == NO_PRIOR and NO_PRIOR.half_width(1, 1) == math.inf


def test_prior_is_weighted_down_where_runs_vary_more():
    # By hand: the runs' variance is twice the prior's, which counts with (1 / 2)² of its 4 degrees of freedom.
    found = Noise(1.0, 4.0).updated(Residuals(4.0, 2.0))
    assert (found.variance, found.dof, found.own) == pytest.approx((5 / 3, 3.0, 2.0))


def test_pooled_variance_may_exceed_the_prior_where_all_rows_do():
    wild = Residuals(2 * 0.2**2, 2.0)
    assert pool_other_rows([wild] * 2, RATIO_PRIOR)[0].squares == pytest.approx(
        2 * RATIO_PRIOR.variance
    )  # one may be an outlier
    taught = pool_other_rows([wild] * 5, RATIO_PRIOR)[0]
    assert (taught.squares / taught.dof) == pytest.approx(0.2**2, rel=0.5) and taught.dof == 4


def test_other_rows_add_their_mean_variance_with_few_degrees_of_freedom():
    quiet = [Residuals(2e-6, 2.0)] * 4
    assert pool_other_rows(quiet, RATIO_PRIOR)[0] == Residuals(pytest.approx(4e-6), 4.0)
    assert pool_other_rows(quiet[:2], RATIO_PRIOR)[0] == Residuals(pytest.approx(2e-6), 2.0)
    assert pool_other_rows(quiet[:1], RATIO_PRIOR) == [Residuals(0.0, 0.0)]
    assert pool_other_rows([Residuals(1e-6, 1.0)] * 2, RATIO_PRIOR)[0] == Residuals(pytest.approx(1e-6), 1.0)
    assert pool_other_rows([Residuals()] * 3, RATIO_PRIOR) == [Residuals()] * 3  # one run a side everywhere


@pytest.mark.parametrize("prior", [RATIO_PRIOR, NO_PRIOR])
def test_outlying_row_does_not_affect_the_others(prior):
    quiet, wild = Residuals(2e-6, 2.0), Residuals(2e6, 2.0)
    *others, of_wild = moderate_noise([quiet] * 6 + [wild], prior)
    assert all(noise.variance <= max(prior.variance, 1e-5) for noise in others)
    assert of_wild.variance > 1e5  # the others do not make it look quiet


def test_critical_value_of_one_row_is_students_and_with_many_dof_sidaks():
    assert critical_value(10.0, 1) == pytest.approx(stats.t.ppf(0.975, 10), rel=1e-6)
    sidak = stats.norm.ppf((1 + 0.95 ** (1 / 20)) / 2)
    assert critical_value(1e7, 20) == pytest.approx(sidak, rel=1e-3)


def test_critical_value_of_rows_with_shared_noise():
    generator = np.random.default_rng(1)
    noise = np.sqrt(generator.chisquare(6, 200_000) / 6)
    largest = np.abs(generator.standard_normal((200_000, 8))).max(axis=1) / noise
    assert np.mean(largest <= critical_value(6.0, 8)) == pytest.approx(0.95, abs=0.002)


def test_critical_value_of_rows_with_own_noise():
    generator = np.random.default_rng(2)
    noise = np.sqrt(generator.chisquare(4, (200_000, 8)) / 4)
    largest = (np.abs(generator.standard_normal((200_000, 8))) / noise).max(axis=1)
    assert np.mean(largest <= critical_value(4.0, 8, own=4.0)) == pytest.approx(0.95, abs=0.002)
    assert critical_value(4.0, 8) < critical_value(4.0, 8, own=2.0) < critical_value(4.0, 8, own=4.0)


@pytest.mark.parametrize("deviations", [[1.0] * 3 + [15.0], [1.0] * 10 + [30.0] * 10, np.geomspace(1, 50, 8).tolist()])
def test_quiet_rows_do_not_make_noisy_ones_look_quiet(deviations):
    """Cells of unequal noise and equal means, three seeds each: few sweeps have a false difference."""
    generator = np.random.default_rng(3)
    false = 0
    for _ in range(500):
        values = generator.normal(0, 1, (len(deviations), 3)) * np.array(deviations)[:, None]
        seen = [Residuals(float(np.sum((row - row.mean()) ** 2)), 2.0) for row in values]
        reach = [noise.half_width(3, rows=len(deviations)) for noise in moderate_noise(seen, NO_PRIOR)]
        false += bool(np.any(np.abs(values.mean(axis=1)) > reach))
    assert false <= 40  # three standard errors above 5%


def test_rows_of_equal_variance_share_the_most_degrees_of_freedom():
    generator = np.random.default_rng(9)
    rows = [Residuals(float(squares), 2.0) for squares in generator.chisquare(2, 50)]
    assert pool_other_rows(rows, NO_PRIOR)[0].dof == pytest.approx(4.0, abs=0.5)
    unlike = [
        Residuals(float(squares * scale), 2.0)
        for squares, scale in zip(generator.chisquare(2, 50), [1.0, 1e3] * 25, strict=True)
    ]
    assert pool_other_rows(unlike, NO_PRIOR)[0].dof < 1


def test_an_outlying_row_counts_as_four_typical_ones_and_makes_rows_share_little():
    """Three rows of two degrees of freedom each, without a prior; by hand from the cited formulas."""
    typical = 1.0 * 2 / (2 * math.log(2))  # the median of chi-squared with two degrees of freedom is 2 log 2
    beyond = np.var([0.0, 0.0, math.log(50)], ddof=1) - math.pi**2 / 6  # trigamma(1)
    shared = (1 + math.sqrt(1 + 2 * beyond)) / beyond
    rows = [Residuals(2.0, 2.0), Residuals(2.0, 2.0), Residuals(100.0, 2.0)]
    first, _, outlier = pool_other_rows(rows, NO_PRIOR)
    assert (first.dof, first.squares) == pytest.approx((shared, shared * (2.0 + 4 * typical * 2) / 4))
    assert (outlier.dof, outlier.squares) == pytest.approx((shared, shared * 1.0))
    # With fewer rows the outlier cannot be told from the others, and they share all that they may.
    assert pool_other_rows(rows[1:], NO_PRIOR)[1] == Residuals(2.0, 2.0)


def test_with_a_prior_three_rows_may_raise_the_variance_and_two_may_not():
    prior, loud = Noise(1.0, 3.0), Residuals(8.0, 2.0)
    typical = 4.0 / math.log(2)
    assert pool_other_rows([loud] * 2, prior)[0] == Residuals(2.0, 2.0)  # the prior's variance
    raised = pool_other_rows([loud] * 3, prior)[0]
    assert raised == Residuals(4.0 * min(4.0, typical), 4.0)


def test_noise_is_at_least_that_of_the_epochs():
    noise = Noise(2.0, 3.0, own=1.0)
    assert noise.at_least(1.0) is noise
    assert noise.at_least(5.0) == Noise(5.0, 3.0, own=1.0)


def test_critical_value_is_interpolated_by_the_share_of_own_noise():
    shared, own, half = (critical_value(6.0, 5, own=each) for each in (0.0, 6.0, 3.0))
    assert own == pytest.approx(stats.t.ppf((1 + 0.95 ** (1 / 5)) / 2, 6))
    assert half == pytest.approx((shared + own) / 2)
    assert critical_value(6.0, 1, own=3.0) == pytest.approx(stats.t.ppf(0.975, 6))
    # Hochberg and Tamhane, table 7: the studentized maximum modulus of 5 values, 10 degrees of freedom, at 5%.
    assert critical_value(10.0, 5) == pytest.approx(3.103, abs=5e-3)

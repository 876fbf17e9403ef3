"""Ratios and differences with their intervals, against published values, SciPy, by hand, and by simulation."""

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from runmanager.errors import UsageError
from runmanager.results.stats.effects import (
    geometric_mean,
    make_contrast,
    run_values,
    simultaneous_estimates,
    speedup_interval,
    typical_interval,
)

rates = st.floats(min_value=0.01, max_value=1e7)
sides = st.lists(st.lists(rates, min_size=1, max_size=6), min_size=1, max_size=4)

# Extra hours of sleep of ten patients under two drugs: Student, "The probable error of a mean", Biometrika 6, 1908.
DEXTRO = [0.7, -1.6, -0.2, -1.2, -0.1, 3.4, 3.7, 0.8, 0.0, 2.0]
LAEVO = [1.9, 0.8, 1.1, 0.1, -0.1, 4.4, 5.5, 1.6, 4.6, 3.4]


def one_each(values):
    return [[value] for value in values]


def contrast_of(baseline, candidate, *, is_ratio=True, **how):
    return make_contrast(
        *(run_values(side, is_ratio=is_ratio) for side in (baseline, candidate)), is_ratio=is_ratio, **how
    )


def difference_interval(baseline, candidate, **how):
    return simultaneous_estimates([contrast_of(baseline, candidate, is_ratio=False, **how)])[0]


def test_paired_interval_is_that_of_students_sleep_data():
    # Published, and by R's t.test(paired = TRUE): mean difference 1.58, 95% interval 0.70 to 2.46.
    found = difference_interval(one_each(DEXTRO), one_each(LAEVO), are_paired=True)
    assert (found.value, found.low, found.high) == pytest.approx((1.58, 0.7001, 2.4599), abs=1e-4)
    assert found.dof == 9


def test_two_sample_interval_is_welchs():
    # Published, and by R's t.test(extra ~ group, data = sleep): -0.2054832 to 3.3654832, 17.776 degrees of freedom.
    found = difference_interval(one_each(DEXTRO), one_each(LAEVO))
    assert (found.low, found.high) == pytest.approx((-0.2054832, 3.3654832), abs=1e-7)
    assert found.dof == pytest.approx(17.776, abs=1e-3)


@pytest.mark.parametrize("is_ratio", [False, True])
def test_few_noisy_runs_do_not_look_quiet_next_to_many_quiet_ones(is_ratio):
    """Equal sides of 20 and 3 runs, the three with ten times the noise: 95% intervals cover 0 or 1."""
    generator = np.random.default_rng(4)
    covered = 0
    for _ in range(500):
        sides = [generator.normal(0, deviation, count) for deviation, count in ((0.01, 20), (0.1, 3))]
        values = [one_each((np.exp(side) if is_ratio else side).tolist()) for side in sides]
        (found,) = simultaneous_estimates([contrast_of(*values, is_ratio=is_ratio)])
        covered += found.low <= (1 if is_ratio else 0) <= found.high
    assert covered >= 460  # three standard errors below 95%


def test_speedup_is_moderated_by_its_prior_as_computed_by_hand():
    """Two runs a side: 3 x 0.0745² of the prior and 2 x (log 1.1 / 2)² twice of the runs, over 3 + 2."""
    found = speedup_interval(one_each([1.0, 1.1]), one_each([2.0, 2.2]))
    variance = (3 * 0.0745**2 + 4 * (math.log(1.1) / 2) ** 2) / 5
    reach = stats.t.ppf(0.975, 5) * math.sqrt(variance)
    assert found.value == pytest.approx(2.0)
    assert (found.low, found.high) == pytest.approx((2 * math.exp(-reach), 2 * math.exp(reach)))
    assert (found.error, found.dof) == (pytest.approx(math.sqrt(variance)), 5)


def test_common_effects_of_a_pair_are_not_in_its_noise():
    baseline = [1.0, 2.0, 4.0, 8.0]
    found = speedup_interval(one_each(baseline), one_each([2 * value for value in baseline]), are_paired=True)
    assert (found.value, found.dof) == (pytest.approx(2.0), 6)
    assert found.high < 2.2 < speedup_interval(one_each(baseline), one_each([2 * value for value in baseline])).high


def test_one_run_a_side_has_an_interval_within_a_factor_of_1_4():
    found = speedup_interval([[1000.0] * 5], [[2000.0] * 5])
    assert found.value == 2.0
    assert 2 / 1.4 < found.low < 2 / 1.35 and 2 * 1.35 < found.high < 2 * 1.4


def test_varying_epochs_widen_the_interval_of_one_run_a_side():
    generator = np.random.default_rng(3)
    steady, swinging = (np.exp(generator.normal(0, spread, 10)).tolist() for spread in (0.01, 1.0))
    narrow, wide = speedup_interval([steady], [steady]), speedup_interval([steady], [swinging])
    assert wide.error > 2 * narrow.error


def test_side_is_the_geometric_mean_of_the_medians_of_its_runs():
    found = contrast_of([[1.0, 2.0, 90.0], [8.0]], [[3.0]])
    assert (found.baseline, found.candidate) == (pytest.approx(4.0), 3.0)
    assert found.value == found.candidate / found.baseline
    assert geometric_mean([0.1] * 3) == 0.1


def test_intervals_of_all_rows_are_simultaneous():
    one = contrast_of([[1.0], [1.01]], [[1.0], [1.02]])
    alone, together = simultaneous_estimates([one])[0], simultaneous_estimates([one] * 20)[0]
    assert together.value == alone.value and together.low < alone.low and together.high > alone.high
    assert simultaneous_estimates([one], rows=20)[0].high > alone.high
    assert simultaneous_estimates([]) == []


def test_interval_is_never_narrower_than_the_resolution():
    found = difference_interval(one_each([0.9] * 3), one_each([0.9] * 3), resolution=1 / 500)
    assert (found.low, found.high) == pytest.approx((-0.002, 0.002))


@settings(max_examples=40, deadline=None)
@given(sides, sides, st.floats(0.01, 100))
def test_scaling_both_sides_does_not_change_the_interval(baseline, candidate, factor):
    plain = speedup_interval(baseline, candidate)
    scaled = speedup_interval(*([[rate * factor for rate in run] for run in side] for side in (baseline, candidate)))
    assert (scaled.value, scaled.low, scaled.high) == pytest.approx((plain.value, plain.low, plain.high))
    assert plain.low < plain.value < plain.high


@settings(max_examples=40, deadline=None)
@given(sides, sides)
def test_swapping_the_sides_inverts_the_interval(baseline, candidate):
    one, other = ([[run[0]] for run in side] for side in (baseline, candidate))
    forth, back = speedup_interval(one, other), speedup_interval(other, one)
    assert (1 / back.value, 1 / back.high, 1 / back.low) == pytest.approx((forth.value, forth.low, forth.high))


def test_interval_of_one_side():
    found = typical_interval([[2.0], [8.0]])
    prior = 3 * (0.0745**2 / (2 * math.log(2) ** 2)) ** 2  # degrees of freedom: it is far quieter than the runs
    variance = (prior * 0.0745**2 + 2 * math.log(2) ** 2) / (prior + 1)
    assert found.value == pytest.approx(4.0)
    assert math.log(found.high / 4) == pytest.approx(stats.t.ppf(0.975, prior + 1) * math.sqrt(variance / 2))
    with pytest.raises(UsageError, match="must be above 0"):
        typical_interval([[1.0, 0.0]])


@pytest.mark.parametrize(
    ("baseline", "candidate", "words"),
    [
        ([], [[1.0]], "baseline of a comparison must have a measured value"),
        ([[1.0]], [[1.0], []], "candidate of a comparison must have a measured value"),
        ([[1.0]], [[0.0]], "candidate must be above 0 to have a ratio, got 0.0"),
        ([[math.inf]], [[1.0]], "baseline must be finite, got inf"),
    ],
)
def test_sides_without_valid_values_are_rejected(baseline, candidate, words):
    with pytest.raises(UsageError, match=words):
        speedup_interval(baseline, candidate)


@pytest.mark.parametrize("are_paired", [True, False])
@pytest.mark.parametrize("runs", [1, 2, 5])
@pytest.mark.parametrize("deviation", [0.0, 0.05])
def test_interval_covers_the_truth_and_finds_ten_percent_with_five_runs(are_paired, runs, deviation):
    generator = np.random.default_rng(runs)
    covered = found = 0
    for _ in range(200):
        levels = generator.normal(0, deviation, (2, runs, 1)) + generator.normal(0, 0.02, (2, runs, 10))
        low, high = np.exp(levels).tolist()
        estimate = speedup_interval(low, high, are_paired=are_paired)
        covered += estimate.low <= 1 <= estimate.high
        found += estimate.low * 1.1 > 1
    assert covered >= 184  # 92%; three standard errors of 200 at 95% are 9
    if (runs, deviation) == (5, 0.0):
        assert found >= 190


def test_variance_of_a_run_is_that_of_the_median_of_correlated_epochs():
    # By hand: the squares about 2.5 add to 5, neighbours to 1.25, so r = 1/4; π/2 x 5 / 3 / 4 x (5/4) / (3/4).
    variance = math.pi / 2 * 5 / 12 * 5 / 3
    (found,) = run_values([[1.0, 2.0, 3.0, 4.0]], is_ratio=False)
    assert (found.median, found.scaled, found.variance) == pytest.approx((2.5, 2.5, variance))
    (found,) = run_values([[1.0, 2.0, 3.0, 4.0]], is_ratio=True)
    assert (found.median, found.scaled, found.variance) == pytest.approx((2.5, math.log(2.5), variance / 2.5**2))
    # Neighbours that differ more than by chance count as independent, and those that hardly differ have at most 0.9.
    (found,) = run_values([[1.0, 3.0]], is_ratio=False)
    assert found.variance == pytest.approx(math.pi / 2)
    (found,) = run_values([[0.0] * 50 + [1.0] * 50], is_ratio=False)
    assert found.variance == pytest.approx(math.pi / 2 * 25 / 99 / 100 * 1.9 / 0.1)
    assert [each.variance for each in run_values([[5.0], [7.0, 7.0]], is_ratio=True)] == [0.0, 0.0]


def test_noise_is_unknown_only_where_differences_of_runs_are_rounding():
    same, rounded, unlike = ([[0.5], [0.5]], [[0.5], [0.5 + 1e-12]], [[0.5], [0.5 + 1e-6]])
    unknown = [contrast_of(side, same, is_ratio=False).has_unknown_noise for side in (same, rounded, unlike)]
    assert unknown == [True, True, False]
    assert not contrast_of(same, same, is_ratio=False, resolution=0.01).has_unknown_noise
    assert not contrast_of(same, same, is_ratio=True).has_unknown_noise


def test_a_single_run_is_assumed_to_have_the_noise_of_the_other_side():
    found = contrast_of(one_each([1.0, 2.0, 3.0]), one_each([5.0]), is_ratio=False)
    assert (found.residuals.squares, found.residuals.dof, found.runs) == (2.0, 2.0, (3, 1))
    assert found.value == 3.0 and found.differences == []
    quiet = contrast_of(one_each([1.0, 1.0]), one_each([5.0, 5.0, 5.0]), is_ratio=False)
    assert (quiet.residuals.squares, quiet.residuals.dof) == (0.0, 3.0)


def test_half_of_the_squares_of_a_pairs_difference_are_those_of_a_run():
    found = contrast_of(one_each([1.0, 2.0, 3.0]), one_each([2.0, 4.0, 6.0]), is_ratio=False, are_paired=True)
    assert found.differences == [1.0, 2.0, 3.0]
    assert (found.residuals.squares, found.residuals.dof) == (1.0, 2.0)


def test_ends_of_an_interval_are_floats_however_unlike_the_runs_are():
    found = speedup_interval([[1e-100], [1e100]], [[1.0]])
    assert 0 < found.low < found.value < found.high < math.inf


def test_sides_of_unlike_size_and_noise_have_welchs_interval():
    quiet, loud = [1.0, 1.1, 0.9, 1.05], [2.0, 5.0, 3.0, 2.5, 4.0, 1.0, 6.5]
    found = difference_interval(one_each(quiet), one_each(loud))
    wanted = stats.ttest_ind(loud, quiet, equal_var=False).confidence_interval(0.95)
    assert (found.low, found.high) == pytest.approx((wanted.low, wanted.high))

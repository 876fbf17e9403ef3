"""Ratios and differences with their intervals, against published values, SciPy, by hand, and by simulation."""

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from runmanager.errors import UsageError
from runmanager.results.stats.descriptive import make_sample
from runmanager.results.stats.effects import (
    Contrast,
    assumed_share,
    drift_variance,
    error_of_first,
    make_contrast,
    pooled_residuals,
    simultaneous_estimates,
    typical_interval,
)

rates = st.floats(min_value=0.01, max_value=1e7)
sides = st.lists(st.lists(rates, min_size=1, max_size=6), min_size=1, max_size=4)

# Extra hours of sleep of ten patients under two drugs: Student, "The probable error of a mean", Biometrika 6, 1908.
DEXTRO = [0.7, -1.6, -0.2, -1.2, -0.1, 3.4, 3.7, 0.8, 0.0, 2.0]
LAEVO = [1.9, 0.8, 1.1, 0.1, -0.1, 4.4, 5.5, 1.6, 4.6, 3.4]


def one_each(values):
    return [[value] for value in values]


def speedup_interval(baseline, candidate, **how):
    return simultaneous_estimates([make_contrast(baseline, candidate, is_ratio=True, **how)])[0]


def difference_interval(baseline, candidate, **how):
    return simultaneous_estimates([make_contrast(baseline, candidate, is_ratio=False, **how)])[0]


def noisy_runs(generator, deviation, count, ratio=1.0):
    """Two sides of runs whose speeds differ lognormally, the candidate by `ratio`."""
    levels = generator.normal(0, deviation, (2, count))
    return one_each(np.exp(levels[0]).tolist()), one_each((ratio * np.exp(levels[1])).tolist())


def family(values, *, is_ratio):
    """Estimate all cells against the first, from the values of each cell's runs."""
    first, *others = (make_sample(one_each(of_cell), is_ratio=is_ratio, key=at) for at, of_cell in enumerate(values))
    return simultaneous_estimates([Contrast(first, each) for each in others])


def test_paired_interval_is_that_of_students_sleep_data():
    # Published, and by R's t.test(paired = TRUE): mean difference 1.58, 95% interval 0.70 to 2.46.
    found = difference_interval(one_each(DEXTRO), one_each(LAEVO), are_paired=True)
    assert (found.value, found.low, found.high) == pytest.approx((1.58, 0.7001, 2.4599), abs=2e-3)
    assert found.dof == pytest.approx(9, rel=0.06)


def test_two_sample_interval_is_close_to_welchs():
    # Published, and by R's t.test(extra ~ group, data = sleep): -0.2054832 to 3.3654832, 17.776 degrees of freedom.
    # Sides that are not assumed to be equally noisy widen that a little (Behrens and Fisher: -0.25 to 3.41).
    found = difference_interval(one_each(DEXTRO), one_each(LAEVO))
    assert found.value == pytest.approx(1.58)
    assert 1.0 < (found.high - found.low) / (3.3654832 + 0.2054832) < 1.08
    assert 9 < found.dof < 18


@pytest.mark.parametrize("is_ratio", [False, True])
def test_few_noisy_runs_do_not_look_quiet_next_to_many_quiet_ones(is_ratio):
    """Equal sides of 20 and 3 runs, the three with ten times the noise: 95% intervals cover 0 or 1."""
    generator = np.random.default_rng(4)
    covered = 0
    for _ in range(300):
        sides = [generator.normal(0, deviation, count) for deviation, count in ((0.01, 20), (0.1, 3))]
        values = [one_each((np.exp(side) if is_ratio else side).tolist()) for side in sides]
        (found,) = simultaneous_estimates([make_contrast(*values, is_ratio=is_ratio)])
        covered += found.low <= (1 if is_ratio else 0) <= found.high
    assert covered >= 274  # three standard errors below 95%


@pytest.mark.parametrize(("runs", "most"), [(3, 2.0), (5, 1.5), (8, 1.4)])
def test_interval_is_hardly_wider_than_that_of_an_oracle(runs, most):
    """Runs differ by 1%: the oracle knows that, and reaches 1.96 standard errors."""
    generator = np.random.default_rng(runs)
    widths, covered, trials = [], 0, 300
    for _ in range(trials):
        found = speedup_interval(*noisy_runs(generator, 0.01, runs))
        widths.append(math.log(found.high / found.value))
        covered += found.low <= 1 <= found.high
    assert float(np.median(widths)) <= most * 1.96 * 0.01 * math.sqrt(2 / runs)
    assert covered >= 0.95 * trials - 3 * math.sqrt(0.05 * 0.95 * trials)


@pytest.mark.parametrize(("ratio", "runs"), [(1.05, 3), (1 / 1.05, 3), (1.03, 5), (1 / 1.03, 5)])
def test_a_true_difference_of_quiet_runs_is_found_in_nine_of_ten_sweeps(ratio, runs):
    generator = np.random.default_rng(6)
    found = [speedup_interval(*noisy_runs(generator, 0.01, runs, ratio)) for _ in range(200)]
    assert sum(each.low > 1 if ratio > 1 else each.high < 1 for each in found) >= 180


def test_two_sides_of_quiet_runs_that_are_8_percent_apart_differ():
    found = speedup_interval(one_each([1.0, 1.003, 0.997]), one_each([1.08, 1.083, 1.077]))
    assert 1.06 < found.low < 1.08 < found.high < 1.1


def test_equal_quiet_sides_are_within_the_margin_in_eight_of_ten_sweeps():
    generator = np.random.default_rng(7)
    found = [speedup_interval(*noisy_runs(generator, 0.01, 5)) for _ in range(200)]
    assert sum(each.low >= 0.97 and each.high <= 1.03 for each in found) >= 160


def test_common_effects_of_a_pair_are_not_in_its_noise():
    baseline = [1.0, 2.0, 4.0, 8.0]
    candidate = [2 * value for value in baseline]
    found = speedup_interval(one_each(baseline), one_each(candidate), are_paired=True)
    assert found.value == pytest.approx(2.0)
    assert found.high < 2.01 < 4 < speedup_interval(one_each(baseline), one_each(candidate)).high


def test_one_run_a_side_has_an_interval_within_a_factor_of_one_and_a_half():
    found = speedup_interval([[1000.0] * 5], [[2000.0] * 5])
    assert found.value == 2.0
    assert 2 / 1.5 < found.low < 2 / 1.35 and 2 * 1.35 < found.high < 2 * 1.5


@pytest.mark.parametrize("is_ratio", [False, True])
def test_cells_of_equal_noise_have_intervals_of_equal_width(is_ratio):
    """Each cell's runs lie equally far apart, about means of its own."""
    values = [[0.9 - 0.01 * cell + step for step in (-0.002, 0.0, 0.002)] for cell in range(12)]
    values = [[math.exp(each) for each in of_cell] for of_cell in values] if is_ratio else values
    found = family(values, is_ratio=is_ratio)
    widths = [math.log(each.high / each.low) if is_ratio else each.high - each.low for each in found]
    assert max(widths) < 1.02 * min(widths)


@pytest.mark.parametrize("fallen", [0.85, 0.1, -1e6])
def test_a_collapsed_seed_of_one_cell_leaves_the_intervals_of_the_others(fallen):
    generator = np.random.default_rng(5)
    values = [[0.95, 0.952, 0.948], *generator.normal(0.9, 0.002, (15, 3)).tolist()]
    before = family(values, is_ratio=False)
    *after, of_collapsed = family([*values[:-1], [0.9, fallen, 0.9]], is_ratio=False)
    changes = [other.error / calm.error for calm, other in zip(before, after, strict=False)]
    widths = [(other.high - other.low) / (calm.high - calm.low) for calm, other in zip(before, after, strict=False)]
    assert max(widths) < 1.15 and max(changes) < 1.1
    assert of_collapsed.high - of_collapsed.low > 2 * (0.9 - fallen)


def test_a_row_of_a_family_is_narrower_than_alone_where_the_others_show_the_noise():
    """Cells of 2 runs each, which alone know little; a further cell's runs agree by luck, or not."""
    generator = np.random.default_rng(12)
    values = generator.normal(0, 0.01, (20, 2)).tolist()
    alone = difference_interval(*map(one_each, values[:2]))
    together = family(values, is_ratio=False)[0]
    assert together.error < 2 * 0.01 and together.dof > alone.dof


def test_a_bounded_drift_between_the_sides_is_part_of_the_interval():
    sides = [make_sample(one_each([level + step for step in (0.0, 1e-4, 2e-4)]), is_ratio=True) for level in (1.0, 1.2)]
    still, drifting = (simultaneous_estimates([Contrast(*sides, drift=drift)])[0] for drift in (0.0, 0.1))
    assert still.value == drifting.value
    # By hand: quiet runs leave the drift alone, whose 95% bound is 10%.
    assert drifting.high / drifting.value == pytest.approx(1.1, rel=1e-3)
    assert still.high / still.value < 1.01
    assert drift_variance(0.1) == pytest.approx((math.log(1.1) / 1.96) ** 2)


def test_varying_epochs_widen_the_interval_of_one_run_a_side():
    generator = np.random.default_rng(3)
    steady, swinging = (np.exp(generator.normal(0, spread, 10)).tolist() for spread in (0.01, 1.0))
    narrow, wide = speedup_interval([steady], [steady]), speedup_interval([steady], [swinging])
    by_epochs = math.sqrt(make_sample([swinging], is_ratio=True).least_variance)
    assert math.log(narrow.high / narrow.value) < 1.5 * by_epochs
    assert math.log(wide.high / wide.value) >= 1.95 * by_epochs


def test_value_is_that_of_the_typical_runs():
    found = make_contrast([[1.0, 2.0, 90.0], [8.0]], [[3.0]], is_ratio=True)
    assert (found.baseline.typical, found.candidate.typical) == (pytest.approx(4.0), 3.0)
    assert found.value == found.candidate.typical / found.baseline.typical


def test_intervals_of_all_rows_are_simultaneous():
    generator = np.random.default_rng(16)
    rows = [make_contrast(*noisy_runs(generator, 0.01, 20), is_ratio=True) for _ in range(20)]
    alone, together = simultaneous_estimates(rows[:1])[0], simultaneous_estimates(rows)[0]
    assert together.value == alone.value and together.low < alone.low and together.high > alone.high
    assert simultaneous_estimates(rows[:1], rows=20)[0].high > alone.high
    assert simultaneous_estimates(rows, confidence=0.9)[0].high < together.high
    assert simultaneous_estimates([]) == []


def test_interval_is_never_narrower_than_the_resolution():
    found = difference_interval(one_each([0.9] * 3), one_each([0.9] * 3), resolution=1 / 500)
    assert (found.low, found.high) == pytest.approx((-0.002, 0.002))


@settings(max_examples=20, deadline=None)
@given(sides, sides, st.floats(0.01, 100))
def test_scaling_both_sides_does_not_change_the_interval(baseline, candidate, factor):
    plain = speedup_interval(baseline, candidate)
    scaled = speedup_interval(*([[rate * factor for rate in run] for run in side] for side in (baseline, candidate)))
    assert (scaled.value, scaled.low, scaled.high) == pytest.approx((plain.value, plain.low, plain.high))
    assert plain.low < plain.value < plain.high


@settings(max_examples=20, deadline=None)
@given(sides, sides)
def test_swapping_the_sides_inverts_the_interval(baseline, candidate):
    one, other = ([[run[0]] for run in side] for side in (baseline, candidate))
    forth, back = speedup_interval(one, other), speedup_interval(other, one)
    assert 1 / back.value == pytest.approx(forth.value)
    reach = math.log(forth.high / forth.value)
    assert math.log(back.high / back.value) == pytest.approx(reach, rel=0.01, abs=1e-9)


def test_interval_of_one_side():
    generator = np.random.default_rng(13)
    runs = np.exp(generator.normal(math.log(4.0), 0.1, 60)).tolist()
    found = typical_interval(one_each(runs))
    wanted = stats.t.interval(0.95, 59, np.mean(np.log(runs)), stats.sem(np.log(runs)))
    assert found.value == pytest.approx(math.exp(np.mean(np.log(runs))))
    assert (math.log(found.low), math.log(found.high)) == pytest.approx(wanted, abs=1e-3)
    few = typical_interval([[2.0], [8.0]])
    assert few.value == pytest.approx(4.0) and few.high > 8
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


def test_noise_is_unknown_only_where_differences_of_runs_are_rounding():
    same, rounded, unlike = ([[0.5], [0.5]], [[0.5], [0.5 + 1e-12]], [[0.5], [0.5 + 1e-6]])
    unknown = [make_contrast(side, same, is_ratio=False).has_unknown_noise for side in (same, rounded, unlike)]
    assert unknown == [True, True, False]
    assert not make_contrast(same, same, is_ratio=False, resolution=0.01).has_unknown_noise
    assert not make_contrast(same, same, is_ratio=True).has_unknown_noise


def test_a_single_run_learns_its_noise_from_the_other_side():
    many, one = one_each([1.0, 2.0, 3.0, 1.5, 2.5]), one_each([5.0])
    contrast = make_contrast(many, one, is_ratio=False)
    assert (contrast.residuals.squares, contrast.residuals.dof, contrast.value) == (2.5, 4.0, 3.0)
    assert contrast.differences == []
    found = difference_interval(many, one)
    # By hand: known from five runs and assumed of the one, t of 4 times the root of 2.5 / 4 x (1 + 1 / 5), and more.
    assert stats.t.ppf(0.975, 4) * math.sqrt(0.75) < found.high - found.value < math.inf


def test_half_of_the_squares_of_a_pairs_difference_are_those_of_a_run():
    found = make_contrast(one_each([1.0, 2.0, 3.0]), one_each([2.0, 4.0, 6.0]), is_ratio=False, are_paired=True)
    assert found.differences == [1.0, 2.0, 3.0]
    assert (found.residuals.squares, found.residuals.dof) == (1.0, 2.0)


def test_ends_of_an_interval_are_floats_however_unlike_the_runs_are():
    found = speedup_interval([[1e-100], [1e100]], [[1.0]])
    assert 0 < found.low < found.value < found.high < math.inf


def test_sides_of_unlike_size_and_noise_have_an_interval_close_to_welchs():
    quiet, loud = [1.0, 1.1, 0.9, 1.05], [2.0, 5.0, 3.0, 2.5, 4.0, 1.0, 6.5]
    found = difference_interval(one_each(quiet), one_each(loud))
    wanted = stats.ttest_ind(loud, quiet, equal_var=False).confidence_interval(0.95)
    assert (found.high - found.low) == pytest.approx(wanted.high - wanted.low, rel=0.06)


def share_assumed(baseline, candidate, **how):
    contrast = make_contrast(baseline, candidate, **how)
    return assumed_share(contrast, simultaneous_estimates([contrast])[0], pooled_residuals([contrast]))


def test_what_the_runs_do_not_explain_is_assumed():
    one = one_each([1.0])
    assert share_assumed(one, one_each([1.1]), is_ratio=True) == 1.0
    # Two quiet runs a side explain less than half of their interval, eight nearly all of it.
    assert share_assumed(one_each([1.0, 1.0005]), one_each([1.0, 1.0004]), is_ratio=True) > 0.5
    generator = np.random.default_rng(14)
    eight = noisy_runs(generator, 0.001, 8)
    assert share_assumed(*eight, is_ratio=True) < 0.3
    # Student's and Welch's intervals assume nothing.
    assert share_assumed(one_each(DEXTRO), one_each(LAEVO), is_ratio=False, are_paired=True) == pytest.approx(
        0, abs=0.01
    )
    assert share_assumed(one_each(DEXTRO), one_each(LAEVO), is_ratio=False) < 0.1
    # Nothing is known of equal values, so nothing is assumed of them either.
    assert share_assumed(one_each([0.5] * 3), one_each([0.5] * 3), is_ratio=False) == 0.0


def test_the_error_of_a_sample_is_learnt_from_all_and_not_raised_by_one_that_collapsed():
    generator = np.random.default_rng(15)
    values = generator.normal(0.9, 0.002, (10, 5)).tolist()

    def error(of_cells):
        return error_of_first([make_sample(one_each(each), is_ratio=False) for each in of_cells])

    assert error(values) == pytest.approx(0.002 / math.sqrt(5), rel=0.3)
    collapsed = [*values[:-1], [0.9, 0.9, 0.1, 0.9, 0.9]]
    assert error(collapsed) == pytest.approx(error(values), rel=0.35)

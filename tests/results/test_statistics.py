"""The statistics, against values computed by hand, by NumPy, and in print."""

import math
import statistics

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from runmanager.errors import UsageError
from runmanager.results.statistics import difference_interval, iqr, median, speedup_interval, typical_interval

# Survival of 16 mice in days: Efron and Tibshirani, An Introduction to the Bootstrap, 1993, table 2.1.
TREATED = [94.0, 197.0, 16.0, 38.0, 99.0, 141.0, 23.0]
CONTROL = [52.0, 104.0, 146.0, 10.0, 51.0, 30.0, 40.0, 27.0, 46.0]

rates = st.floats(min_value=0.01, max_value=1e7)
sides = st.lists(st.lists(rates, min_size=1, max_size=6), min_size=1, max_size=4)


def test_the_medians_of_the_mouse_data_are_those_in_print():
    assert median(TREATED) == 94
    assert median(CONTROL) == 46


@given(st.lists(st.floats(-1e9, 1e9), min_size=1))
def test_median_and_iqr_agree_with_the_standard_library_and_numpy(values):
    assert median(values) == pytest.approx(statistics.median(values))
    low, high = np.percentile(values, [25, 75])
    assert iqr(values) == pytest.approx(high - low, abs=1e-6)


def test_nothing_has_no_median_and_one_value_no_spread():
    assert median([]) is None
    assert iqr([]) is None
    assert (median([3.0]), iqr([3.0])) == (3.0, 0.0)


def exact_interval(values):
    """The 95% percentile interval of the bootstrapped median of an odd number of values, without drawing.

    At least half of n draws are at most the k-th smallest value with a binomial probability (Efron, Bootstrap
    methods: another look at the jackknife, Annals of Statistics 7, 1979, section 3).
    """
    n, ordered = len(values), sorted(values)
    middle = (n + 1) // 2

    def at_most(k):
        return sum(math.comb(n, j) * (k / n) ** j * (1 - k / n) ** (n - j) for j in range(middle, n + 1))

    return tuple(next(ordered[k - 1] for k in range(1, n + 1) if at_most(k) >= share) for share in (0.025, 0.975))


@pytest.mark.parametrize("values", [TREATED, CONTROL], ids=["treated", "control"])
def test_the_interval_of_a_median_is_the_exact_one(values):
    low, high = exact_interval(values)
    over_epochs = speedup_interval([[1.0]], [values], resamples=100_000)
    over_runs = speedup_interval([[1.0]], [[value] for value in values], resamples=100_000)
    for estimate in (over_epochs, over_runs):
        assert (estimate.low, estimate.high) == pytest.approx((low, high))
        assert estimate.value == median(values)


def test_the_shortcut_for_a_drawn_median_has_the_distribution_of_drawing_one_by_one():
    runs = [[1.0, 2.0, 5.0, 9.0], [4.0, 6.0, 7.0, 8.0, 20.0], [3.0], [2.0, 30.0], [5.0, 7.0]]
    generator = np.random.default_rng(7)
    drawn = [
        np.median([np.median(generator.choice(runs[run], len(runs[run]))) for run in generator.integers(0, 5, 5)])
        for _ in range(4000)
    ]
    estimate = speedup_interval([[1.0]], runs, resamples=20_000)
    assert (estimate.low, estimate.high) == pytest.approx(np.quantile(drawn, [0.025, 0.975]), rel=0.05)


def test_noise_between_runs_widens_what_noise_between_epochs_leaves_narrow():
    steady = [[100.0, 100.1, 99.9]] * 6
    wandering = [[rate, rate + 0.1, rate - 0.1] for rate in (80.0, 90.0, 100.0, 100.0, 110.0, 120.0)]
    narrow, wide = speedup_interval([[1.0]], steady), speedup_interval([[1.0]], wandering)
    assert narrow.high - narrow.low < 0.5
    assert wide.high - wide.low > 10


@settings(max_examples=40, deadline=None)
@given(sides, sides, st.floats(0.01, 100))
def test_scaling_both_sides_leaves_the_speedup_and_its_interval(baseline, candidate, factor):
    plain = speedup_interval(baseline, candidate, resamples=100)
    scaled = speedup_interval(
        [[rate * factor for rate in run] for run in baseline],
        [[rate * factor for rate in run] for run in candidate],
        resamples=100,
    )
    assert (scaled.value, scaled.low, scaled.high) == pytest.approx((plain.value, plain.low, plain.high))


@settings(max_examples=40, deadline=None)
@given(sides, sides)
def test_swapping_the_sides_inverts_the_speedup(baseline, candidate):
    forth = speedup_interval(baseline, candidate, resamples=100)
    back = speedup_interval(candidate, baseline, resamples=100)
    assert forth.value * back.value == pytest.approx(1)
    assert forth.low <= forth.high


def test_a_sides_own_interval_holds_its_median_and_what_is_drawn_of_it():
    found = typical_interval([CONTROL], resamples=20_000)
    generator = np.random.default_rng(7)
    drawn = [np.median(generator.choice(CONTROL, len(CONTROL))) for _ in range(4000)]
    assert found.value == median(CONTROL)
    assert (found.low, found.high) == pytest.approx(np.quantile(drawn, [0.025, 0.975]), rel=0.05)
    assert typical_interval([[3.0] * 5] * 2) == typical_interval([[3.0]])
    with pytest.raises(UsageError, match="must be above 0"):
        typical_interval([[1.0, 0.0]])


def test_swapping_the_sides_inverts_the_interval():
    forth = speedup_interval([CONTROL], [TREATED], resamples=20_000)
    back = speedup_interval([TREATED], [CONTROL], resamples=20_000)
    assert (1 / back.high, 1 / back.low) == pytest.approx((forth.low, forth.high), rel=0.05)


def test_the_interval_depends_on_the_numbers_and_the_seed_alone():
    first = speedup_interval([CONTROL], [TREATED], seed=3, resamples=200)
    assert speedup_interval([tuple(CONTROL)], [list(TREATED)], seed=3, resamples=200) == first
    assert speedup_interval([CONTROL], [TREATED], seed=4, resamples=200) != first


@pytest.mark.parametrize(
    ("baseline", "candidate", "words"),
    [
        ([], [[1.0]], "baseline of a comparison must have a measured value"),
        ([[1.0]], [[1.0], []], "candidate of a comparison must have a measured value"),
        ([[1.0]], [[0.0]], "candidate must be above 0 and finite, got 0.0"),
        ([[math.inf]], [[1.0]], "baseline must be finite, got inf"),
    ],
)
def test_sides_that_say_nothing_are_refused(baseline, candidate, words):
    with pytest.raises(UsageError, match=words):
        speedup_interval(baseline, candidate)


def test_no_resamples_are_refused():
    with pytest.raises(UsageError, match="`resamples` must be at least 1, got 0"):
        speedup_interval([[1.0]], [[1.0]], resamples=0)


def test_two_to_four_runs_stretch_the_percentiles_by_welch_and_student():
    """Runs of one epoch each, so that the bootstrap variance of a median of two is known: that of two of two draws."""
    baseline, candidate = [1.0, 1.2], [2.0, 2.2]
    found = difference_interval([[value] for value in baseline], [[value] for value in candidate], resamples=100_000)
    # A median of two drawn from a, b is a, (a + b) / 2, b with 1/4, 1/2, 1/4; the difference of two such has its
    # lowest 6% at a' - b and its next 25% half a step above: 2.5% lie at the lowest, 1 less 0.2.
    welch = stats.ttest_ind(candidate, baseline, equal_var=False)
    stretch = math.sqrt(2) * stats.t.ppf(0.975, welch.df) / stats.norm.ppf(0.975)
    assert found.value == pytest.approx(1.0)
    assert (found.low, found.high) == pytest.approx((1 - 0.2 * stretch, 1 + 0.2 * stretch), rel=0.02)


def test_one_run_and_five_runs_stretch_nothing():
    for runs in (1, 5):
        side = [[1.0, 2.0, 3.0]] * runs
        found = difference_interval([[0.0]], side, resamples=1000)
        assert 1 <= found.low <= found.high <= 3


def test_equal_values_give_themselves_whatever_the_stretch():
    found = speedup_interval([[3.0]] * 3, [[7.0]] * 2)
    assert found.value == found.low == found.high == 7 / 3


@settings(max_examples=30, deadline=None)
@given(
    st.lists(st.lists(st.floats(-100, 100), min_size=1, max_size=4), min_size=1, max_size=4),
    st.lists(st.lists(st.floats(-100, 100), min_size=1, max_size=4), min_size=1, max_size=4),
    st.floats(-50, 50),
)
def test_a_shift_of_both_sides_leaves_their_difference(baseline, candidate, shift):
    plain = difference_interval(baseline, candidate, resamples=50)
    moved = difference_interval(
        [[value + shift for value in run] for run in baseline],
        [[value + shift for value in run] for run in candidate],
        resamples=50,
    )
    assert (moved.value, moved.low, moved.high) == pytest.approx((plain.value, plain.low, plain.high), abs=1e-9)
    assert plain.low <= plain.high


@pytest.mark.parametrize("runs", [2, 3])
def test_the_interval_of_few_runs_covers_the_truth(runs):
    generator = np.random.default_rng(runs)
    covered = 0
    for _ in range(150):
        sides = [np.exp(generator.normal(0, 0.03, (runs, 1)) + generator.normal(0, 0.02, (runs, 6))) for _ in range(2)]
        found = speedup_interval(sides[0].tolist(), sides[1].tolist(), resamples=400)
        covered += found.low <= 1 <= found.high
    assert covered >= 143

"""The power of a comparison, against simulated comparisons of known noise."""

import math

import numpy as np
import pytest
from scipy import stats

from runmanager.results.stats.effects import (
    MAX_RUNS,
    likely_deviations,
    make_contrast,
    power,
    runs_needed,
    simultaneous_estimates,
    smallest_detectable,
)
from runmanager.results.stats.noise_model import Residuals


@pytest.mark.parametrize(("difference", "deviation", "runs"), [(0.1, 0.03, 4), (0.03, 0.02, 9), (0.02, 0.005, 3)])
def test_power_is_the_share_of_simulated_verdicts(difference: float, deviation: float, runs: int) -> None:
    generator = np.random.default_rng(5)
    trials, found = 300, 0
    for _ in range(trials):
        noise = np.exp(generator.normal(0, deviation, (2, runs, 1)))
        baseline, candidate = noise[0].tolist(), (noise[1] * (1 + difference)).tolist()
        (estimate,) = simultaneous_estimates([make_contrast(baseline, candidate, is_ratio=True)])
        found += estimate.low > 1
    text = power(difference, deviations=(deviation,), runs=runs)
    assert 0.2 < text < 0.98  # not close to 0 or 1, which would show nothing
    assert found / trials == pytest.approx(text, abs=0.085)  # three standard errors of 300 trials


def test_runs_needed_is_the_smallest_number_with_that_power() -> None:
    needed = runs_needed(0.03, deviations=(0.02,), share=0.8)
    assert needed is not None
    assert power(0.03, deviations=(0.02,), runs=needed) >= 0.8 > power(0.03, deviations=(0.02,), runs=needed - 1)
    assert runs_needed(0.03, deviations=(0.5,), share=0.8) is None


def test_a_share_that_is_reached_exactly_is_enough_up_to_a_hundred_runs() -> None:
    noise = {"deviations": (0.05,)}
    for runs in (7, 50, 100):
        assert runs_needed(0.03, share=power(0.03, runs=runs, **noise), **noise) == runs
    assert runs_needed(0.03, share=math.nextafter(power(0.03, runs=100, **noise), 1.0), **noise) is None


def test_more_rows_need_more_runs() -> None:
    one, many = (runs_needed(0.03, deviations=(0.02,), share=0.8, rows=rows) for rows in (1, 20))
    assert one is not None and many is not None
    assert one < many


def test_power_of_many_rows_uses_the_noise_of_all() -> None:
    generator = np.random.default_rng(8)
    trials, rows, runs, found = 40, 8, 12, 0
    for _ in range(trials):
        noise = generator.normal(0, 0.02, (rows, 2, runs))
        contrasts = []
        for baseline, candidate in noise:
            sides = ([[each] for each in np.exp(side).tolist()] for side in (baseline, candidate + math.log(1.03)))
            contrasts.append(make_contrast(*sides, is_ratio=True))
        found += sum(each.low > 1 for each in simultaneous_estimates(contrasts))
    text = power(0.03, deviations=(0.02,), runs=runs, rows=rows)
    assert found / trials / rows == pytest.approx(text, abs=0.08)  # three standard errors of 320 rows


def test_power_of_one_run_a_side_is_that_of_the_assumption() -> None:
    (found,) = simultaneous_estimates([make_contrast([[1.0]], [[1.0]], is_ratio=True)])
    for difference in (0.5, -1 / 3):
        expected = stats.norm.cdf((math.log(1.5) - math.log(found.high)) / (0.05 * math.sqrt(2)))
        assert power(difference, deviations=(0.05,), runs=1) == pytest.approx(expected, abs=1e-3)


@pytest.mark.parametrize("rows", [1, 3, 9])
@pytest.mark.parametrize("drift", [0.0, 0.1])
def test_smallest_detectable_difference_is_the_interval_of_such_runs(rows: int, drift: float) -> None:
    """With many runs it is known by hand: the noise of two means and the drift, at Šidák's level."""
    error = math.hypot(0.03 * math.sqrt(2 / 50), math.log1p(drift) / 1.96)
    reach = stats.norm.ppf((1 + 0.95 ** (1 / rows)) / 2) * error
    found = smallest_detectable(drift, deviations=(0.03,), runs=50, rows=rows)
    assert math.log1p(found) == pytest.approx(reach, rel=0.05)
    assert smallest_detectable(drift, deviations=(0.03,), runs=3, rows=rows) > found


def test_likely_deviations_are_about_the_measured_one_or_assumed() -> None:
    assert likely_deviations(Residuals(1.0, 1.0)) == (0.02,)
    low, middle, high = likely_deviations(Residuals(4 * 0.03**2, 4.0))
    assert low < 0.03 < high and middle == pytest.approx(0.03, rel=0.2)
    low, _, high = likely_deviations(Residuals(400 * 0.03**2, 400.0))
    assert low == pytest.approx(0.03, rel=0.1) and high == pytest.approx(0.03, rel=0.1)


def test_power_of_runs_that_do_not_vary_is_certainty() -> None:
    assert power(0.5, deviations=(0.0,), runs=2) == 1.0
    assert runs_needed(0.5, deviations=(0.0,), share=0.9) == 1
    assert power(0.03, deviations=(0.02,), runs=MAX_RUNS) == pytest.approx(1.0)

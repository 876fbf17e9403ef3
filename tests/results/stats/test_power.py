"""The power of a comparison, against simulated comparisons of known noise."""

import math

import numpy as np
import pytest
from scipy import stats

from runmanager.results.stats.effects import make_contrast, run_values, simultaneous_estimates, speedup_interval
from runmanager.results.stats.noise_model import critical_value
from runmanager.results.stats.power import MAX_RUNS, power, runs_needed, smallest_detectable


@pytest.mark.parametrize(("difference", "deviation", "runs"), [(0.1, 0.03, 5), (0.03, 0.02, 20), (0.1, 0.05, 10)])
def test_power_is_the_share_of_simulated_verdicts(difference: float, deviation: float, runs: int) -> None:
    generator = np.random.default_rng(5)
    trials, found = 1000, 0
    for _ in range(trials):
        noise = np.exp(generator.normal(0, deviation, (2, runs, 1)))
        baseline, candidate = noise[0].tolist(), (noise[1] * (1 + difference)).tolist()
        found += speedup_interval(baseline, candidate, are_paired=True).low > 1
    text = power(difference, deviation=deviation, runs=runs)
    assert 0.2 < text < 0.98  # not close to 0 or 1, which would show nothing
    assert found / trials == pytest.approx(text, abs=0.045)  # three standard errors of 1,000 trials


def test_runs_needed_is_the_smallest_number_with_that_power() -> None:
    needed = runs_needed(0.03, deviation=0.02, share=0.8)
    assert needed is not None
    assert power(0.03, deviation=0.02, runs=needed) >= 0.8 > power(0.03, deviation=0.02, runs=needed - 1)
    assert runs_needed(0.03, deviation=0.5, share=0.8) is None


def test_a_share_that_is_reached_exactly_is_enough_up_to_a_hundred_runs() -> None:
    noise = {"deviation": 0.05}
    for runs in (7, 50, 100):
        assert runs_needed(0.03, share=power(0.03, runs=runs, **noise), **noise) == runs
    assert runs_needed(0.03, share=math.nextafter(power(0.03, runs=100, **noise), 1.0), **noise) is None


def test_more_rows_need_more_runs() -> None:
    one, many = (runs_needed(0.03, deviation=0.02, share=0.8, rows=rows) for rows in (1, 20))
    assert one is not None and many is not None
    assert one < many


def test_power_of_many_rows_uses_their_pooled_variance() -> None:
    generator = np.random.default_rng(8)
    trials, rows, runs, found = 60, 8, 18, 0
    for _ in range(trials):
        noise = generator.normal(0, 0.02, (rows, 2, runs))
        contrasts = []
        for baseline, candidate in noise:
            sides = ([[each] for each in np.exp(side).tolist()] for side in (baseline, candidate + math.log(1.03)))
            contrasts.append(
                make_contrast(*(run_values(s, is_ratio=True) for s in sides), is_ratio=True, are_paired=True)
            )
        found += sum(each.low > 1 for each in simultaneous_estimates(contrasts))
    text = power(0.03, deviation=0.02, runs=runs, rows=rows)
    assert found / trials / rows == pytest.approx(text, abs=0.07)  # three standard errors of 480 rows


def test_power_of_one_run_a_side_is_that_of_the_prior_alone() -> None:
    reach = stats.t.ppf(0.975, 3) * 0.0745 * math.sqrt(2)
    for difference in (0.5, -1 / 3):
        expected = stats.norm.cdf((math.log(1.5) - reach) / (0.05 * math.sqrt(2)))
        assert power(difference, deviation=0.05, runs=1) == pytest.approx(expected)


@pytest.mark.parametrize(("rows", "dof", "own"), [(1, 5.0, 2.0), (2, 7.0, 2.0), (3, 9.0, 2.0), (9, 9.0, 2.0)])
def test_smallest_detectable_difference_is_the_drift_and_the_interval(rows: int, dof: float, own: float) -> None:
    # The prior has three degrees of freedom, the row's own three runs two, and other rows add at most four.
    variance = (3 * 0.0745**2 + (dof - 3) * 0.03**2) / dof
    reach = critical_value(dof, rows, own=own) * math.sqrt(variance * 2 / 3)
    found = smallest_detectable(0.1, deviation=0.03, runs=3, rows=rows)
    assert found == pytest.approx(1.1 * math.exp(reach) - 1)


def test_power_of_runs_that_do_not_vary_is_certainty() -> None:
    assert power(0.5, deviation=0.0, runs=2) == 1.0
    assert runs_needed(0.5, deviation=0.0, share=0.9) == 1
    assert power(0.03, deviation=0.02, runs=MAX_RUNS) == pytest.approx(1.0)

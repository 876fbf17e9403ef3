"""The power of a comparison, against simulated comparisons of known noise."""

import math

import numpy as np
import pytest

from runmanager.results.stats.effects import make_contrast, run_values, simultaneous_estimates, speedup_interval
from runmanager.results.stats.power import power, runs_needed


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

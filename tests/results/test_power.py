"""How often a comparison finds a true difference: against simulated comparisons of known noise."""

import numpy as np
import pytest

from runmanager.results.effects import speedup_interval
from runmanager.results.power import power, runs_needed


@pytest.mark.parametrize(("difference", "deviation", "runs"), [(0.1, 0.03, 5), (0.03, 0.02, 20), (0.1, 0.05, 10)])
def test_the_power_is_how_often_simulated_comparisons_say_so(difference: float, deviation: float, runs: int) -> None:
    generator = np.random.default_rng(5)
    trials, found = 1000, 0
    for _ in range(trials):
        noise = np.exp(generator.normal(0, deviation, (2, runs, 1)))
        baseline, candidate = noise[0].tolist(), (noise[1] * (1 + difference)).tolist()
        found += speedup_interval(baseline, candidate, are_blocks=True).low > 1
    said = power(difference, deviation=deviation, runs=runs)
    assert 0.2 < said < 0.98  # no certainty, which would show nothing
    assert found / trials == pytest.approx(said, abs=0.045)  # three standard errors of 1,000 trials


def test_the_runs_needed_are_the_first_that_find_it_often() -> None:
    needed = runs_needed(0.03, deviation=0.02, share=0.8)
    assert needed is not None
    assert power(0.03, deviation=0.02, runs=needed) >= 0.8 > power(0.03, deviation=0.02, runs=needed - 1)
    assert runs_needed(0.03, deviation=0.5, share=0.8) is None


def test_more_rows_need_more_runs() -> None:
    one, many = (runs_needed(0.03, deviation=0.02, share=0.8, rows=rows) for rows in (1, 20))
    assert one is not None and many is not None
    assert one < many

"""How often a comparison finds a true difference, by the number of runs a side. Pure."""

import math
from functools import lru_cache

from runmanager.results.stats.noise_model import BETWEEN_RUNS, MOST_LEARNED, Noise, Residuals

__all__ = ["MOST_RUNS", "least_told", "power", "runs_needed"]

MOST_RUNS = 100
"""More runs a side are not proposed."""

_STEPS = 200


@lru_cache(maxsize=4096)
def power(difference: float, *, deviation: float, runs: int, rows: int = 1) -> float:
    """The share of cases in which a true difference gets its verdict, `faster` or `slower`.

    `difference` is the true ratio less 1, `deviation` the standard deviation of the logarithm of a run's throughput
    among runs of equal settings, `runs` their number a side, and `rows` the number of rows of the comparison. Its
    sides take turns and have the same seeds, as a grid gives them, so that their runs are compared in pairs. The
    interval is the one that the comparison gives (`noise.py`), whose other rows teach it the same `deviation`; as
    the variance that it learns is itself uncertain, the power is averaged over what the runs may show. Choosing the
    number of runs by measured variances follows Kalibera and Jones ("Rigorous benchmarking in reasonable time",
    ISMM 2013).
    """
    import numpy as np
    from scipy.special import gammaincinv, ndtr

    freedom = runs - 1.0
    chances = (np.arange(_STEPS) + 0.5) / _STEPS
    squares = 2 * deviation**2 * gammaincinv(freedom / 2, chances) if freedom else np.zeros(1)
    prior = _before(deviation, runs, rows)
    seen = [prior.updated(Residuals(float(each), freedom)) for each in squares]
    reach = np.array([noise.reach(runs, runs, rows=rows) for noise in seen])
    error = max(deviation, 1e-9) * math.sqrt(2 / runs)
    return float(np.mean(ndtr((abs(math.log1p(difference)) - reach) / error)))


def least_told(drift: float, *, deviation: float, runs: int, rows: int = 1) -> float:
    """The difference (a ratio less 1) that gets its verdict in half of the cases where it must exceed a drift."""
    freedom = runs - 1.0
    noise = _before(deviation, runs, rows).updated(Residuals(deviation**2 * freedom, freedom))
    return math.expm1(math.log1p(drift) + noise.reach(runs, runs, rows=rows))


def _before(deviation: float, runs: int, rows: int) -> Noise:
    """What is known of the noise before a row's own runs: the prior, and what the other rows teach."""
    freedom = min(MOST_LEARNED, (rows - 1.0) * (runs - 1.0))
    variance = min(deviation**2, BETWEEN_RUNS.variance)
    return BETWEEN_RUNS.updated(Residuals(freedom * variance, freedom), are_own=False)


def runs_needed(difference: float, *, deviation: float, share: float, rows: int = 1) -> int | None:
    """The least number of runs a side whose power is at least `share`; None where `MOST_RUNS` are too few."""
    if power(difference, deviation=deviation, runs=MOST_RUNS, rows=rows) < share:
        return None
    low, high = 1, MOST_RUNS  # the power grows with the runs
    while low < high:
        middle = (low + high) // 2
        if power(difference, deviation=deviation, runs=middle, rows=rows) < share:
            low = middle + 1
        else:
            high = middle
    return low

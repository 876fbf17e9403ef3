"""Statistical power: how often a comparison finds a true difference, by the number of runs a side. Pure functions."""

import math
from functools import lru_cache

from runmanager.results.stats.noise_model import MAX_SHARED_DOF, RATIO_PRIOR, Noise, Residuals

__all__ = ["MAX_RUNS", "power", "runs_needed", "smallest_detectable"]

MAX_RUNS = 100
"""The largest number of runs a side that is proposed."""

_STEPS = 200


@lru_cache(maxsize=4096)
def power(difference: float, *, deviation: float, runs: int, rows: int = 1) -> float:
    """Return the probability that a true difference gets its verdict, `faster` or `slower`.

    `difference` is the true ratio less 1, `deviation` the standard deviation of the logarithm of a run's throughput
    among runs of equal settings, `runs` their number a side, and `rows` the number of rows of the comparison. The sides
    take turns and have the same seeds, as in a grid, so that their runs are compared in pairs. The interval is that of
    the comparison (`noise_model.py`), whose other rows show the same `deviation`; as the estimated variance is itself
    uncertain, the power is averaged over its distribution. Choosing the number of runs by measured variances follows
    Kalibera and Jones ("Rigorous benchmarking in reasonable time", ISMM 2013).
    """
    import numpy as np
    from scipy.special import gammaincinv, ndtr

    dof = runs - 1.0
    chances = (np.arange(_STEPS) + 0.5) / _STEPS
    squares = 2 * deviation**2 * gammaincinv(dof / 2, chances) if dof else np.zeros(1)
    prior = _prior(deviation, runs, rows)
    noises = [prior.updated(Residuals(float(each), dof)) for each in squares]
    reach = np.array([noise.half_width(runs, runs, rows=rows) for noise in noises])
    error = max(deviation, 1e-9) * math.sqrt(2 / runs)
    return float(np.mean(ndtr((abs(math.log1p(difference)) - reach) / error)))


def smallest_detectable(drift: float, *, deviation: float, runs: int, rows: int = 1) -> float:
    """Return the difference (a ratio less 1) that gets its verdict in half of the cases if it must exceed a drift."""
    dof = runs - 1.0
    noise = _prior(deviation, runs, rows).updated(Residuals(deviation**2 * dof, dof))
    return math.expm1(math.log1p(drift) + noise.half_width(runs, runs, rows=rows))


def _prior(deviation: float, runs: int, rows: int) -> Noise:
    """Return the noise before a row's own runs are seen: the prior, updated by the other rows."""
    dof = min(MAX_SHARED_DOF, (rows - 1.0) * (runs - 1.0))
    variance = min(deviation**2, RATIO_PRIOR.variance)
    return RATIO_PRIOR.updated(Residuals(dof * variance, dof), are_own=False)


def runs_needed(difference: float, *, deviation: float, share: float, rows: int = 1) -> int | None:
    """Return the smallest number of runs a side with a power of at least `share`; None above `MAX_RUNS`."""
    if power(difference, deviation=deviation, runs=MAX_RUNS, rows=rows) < share:
        return None
    low, high = 1, MAX_RUNS  # the power grows with the runs
    while low < high:
        middle = (low + high) // 2
        if power(difference, deviation=deviation, runs=middle, rows=rows) < share:
            low = middle + 1
        else:
            high = middle
    return low

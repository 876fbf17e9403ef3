"""Statistical power: how often a comparison finds a true difference, by the number of runs a side. Pure functions."""

import math
from functools import lru_cache

from runmanager.results.stats.drift import drift_variance
from runmanager.results.stats.noise_model import RATIOS, Difference, LearntNoise, Residuals

MAX_RUNS = 100
"""The largest number of runs a side that is proposed."""

_ASSUMED_DEVIATION = 0.02  # of the logarithm of the speed of runs of equal settings, where too few were measured
_MIN_DOF = 2  # of measured runs, to be used
_STEPS = 3
_MAX_ROWS = 4  # more rows hardly teach more of the noise


def likely_deviations(seen: Residuals) -> tuple[float, ...]:
    """Return deviations of runs of equal settings that are equally probable: one, an assumption, if too few were seen.

    They are those of the logarithm of a speed, in order.
    """
    if seen.dof < _MIN_DOF:
        return (_ASSUMED_DEVIATION,)
    return tuple(LearntNoise([seen], RATIOS).deviations(0, _STEPS))


@lru_cache(maxsize=4096)
def power(difference: float, *, deviations: tuple[float, ...], runs: int, rows: int = 1) -> float:
    """Return the probability that a true difference gets its verdict, `faster` or `slower`.

    `difference` is the true ratio less 1, `deviations` are equally probable standard deviations of the logarithm of a
    run's speed among runs of equal settings, `runs` their number a side, and `rows` the number of rows of the
    comparison, each of which has two sides with this deviation, that take turns. The interval is that of the comparison
    (`noise_model.py`); as the estimated variances are uncertain, the power is averaged over their distribution.
    Choosing the number of runs by measured variances follows Kalibera and Jones ("Rigorous benchmarking in reasonable
    time", ISMM 2013).
    """
    from scipy.special import gammaincinv, ndtr

    dof = 2 * (runs - 1.0)
    chances = [(step + 0.5) / _STEPS for step in range(_STEPS)]
    scales = [2 * float(gammaincinv(dof / 2, chance)) / dof for chance in chances] if dof else [1.0]
    found = []
    for deviation in deviations:
        error = max(deviation, 1e-9) * math.sqrt(2 / runs)
        reached = (_half_width(scale, deviation, runs, rows) for scale in scales)
        found += [float(ndtr((abs(math.log1p(difference)) - each) / error)) for each in reached]
    return math.fsum(found) / len(found)


def smallest_detectable(drift: float, *, deviations: tuple[float, ...], runs: int, rows: int = 1) -> float:
    """Return the difference (a ratio less 1) that gets its verdict in half of the cases.

    `drift` is the 95% bound of an unseen drift of the machine between the sides (a ratio less 1): 0 if they take turns.
    """
    return math.expm1(_half_width(1.0, deviations[len(deviations) // 2], runs, rows, drift=drift))


@lru_cache(maxsize=4096)
def _half_width(scale: float, deviation: float, runs: int, rows: int, *, drift: float = 0.0) -> float:
    """Return the half-width where the variances of a row's sides are `scale` times the true one."""
    dof = runs - 1.0
    own, other = (Residuals(each * dof * deviation**2, dof) for each in (scale, 1.0))
    noise = LearntNoise([own] * 2 + [other] * 2 * (min(rows, _MAX_ROWS) - 1), RATIOS)
    factor = math.sqrt(1 / runs)
    between = Difference([(0, factor), (1, -factor)], extra_variance=drift_variance(drift))
    return noise.reaches([between], rows=rows)[0].half_width


def runs_needed(difference: float, *, deviations: tuple[float, ...], share: float, rows: int = 1) -> int | None:
    """Return the smallest number of runs a side with a power of at least `share`; None above `MAX_RUNS`."""
    if power(difference, deviations=deviations, runs=MAX_RUNS, rows=rows) < share:
        return None
    low, high = 1, MAX_RUNS  # the power grows with the runs
    while low < high:
        middle = (low + high) // 2
        if power(difference, deviations=deviations, runs=middle, rows=rows) < share:
            low = middle + 1
        else:
            high = middle
    return low

"""Where two curves cross on log scales, and how sure that is. Pure functions of numbers."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING

from runmanager.results.statistics import CONFIDENCE, median

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt

    Floats = npt.NDArray[np.float64]

__all__ = ["Crossing", "CurvePoint", "find_crossing"]

_RESAMPLES = 2000
_PIECES = 8  # between two measured points; a crossing within a piece is found on a straight line
_UNSURE_SHARE = 0.2
_UNSURE_FROM = math.log(16)


@dataclass(frozen=True)
class CurvePoint:
    """The two curves at one value `x`: the log of candidate over baseline, its variance and degrees of freedom.

    `tolerance` is a log ratio that may be nothing but drift.
    """

    x: float
    log_ratio: float
    variance: float
    freedom: float
    tolerance: float = 0.0

    @classmethod
    def of(
        cls, x: float, baseline: Sequence[Sequence[float]], candidate: Sequence[Sequence[float]], *, tolerance: float
    ) -> "CurvePoint":
        """From the logarithms of each side's runs, of their epochs; degrees of freedom by Welch and Satterthwaite."""
        sides = _mean_variance_freedom(baseline), _mean_variance_freedom(candidate)
        variance = sum(each[1] for each in sides)
        unsure = sum(spread**2 / freedom for _, spread, freedom in sides)
        return cls(x, sides[1][0] - sides[0][0], variance, variance**2 / unsure if unsure else math.inf, tolerance)


@dataclass(frozen=True)
class Crossing:
    """Where the curves cross: `at`, None for nowhere; with the ends of its 95% interval, infinite where it is open.

    `candidate_leads` says who is ahead from there on, or throughout.
    """

    at: float | None
    low: float
    high: float
    candidate_leads: bool


def _mean_variance_freedom(side: Sequence[Sequence[float]]) -> tuple[float, float, float]:
    """Of the mean over runs of a run's median; of one run the variance that its epochs give that median."""
    medians = [value for run in side if (value := median(run)) is not None]
    if len(medians) > 1:
        return (*_mean_and_variance_of_mean(medians), len(medians) - 1.0)
    (epochs,) = side
    _, variance = _mean_and_variance_of_mean(epochs)
    # Of much normal noise the median has pi / 2 times the variance of the mean (David and Nagaraja, Order Statistics,
    # 2003).
    return medians[0], math.pi / 2 * variance, max(len(epochs) - 1.0, 1.0)


def _mean_and_variance_of_mean(values: Sequence[float]) -> tuple[float, float]:
    count = len(values)
    mean = math.fsum(values) / count
    if count == 1:
        return mean, 0.0
    return mean, math.fsum((value - mean) ** 2 for value in values) / (count - 1) / count


# Tables are rewritten whenever a run ends: curves that have not changed since then are not resampled again.
@lru_cache(maxsize=256)
def find_crossing(points: tuple[CurvePoint, ...], *, resamples: int = _RESAMPLES, seed: int = 0) -> Crossing:
    """Where the log ratio of the two curves passes through 0 over log x, and the 95% interval of that place.

    `points` are at least two, in ascending order of `x` > 0. Between them the log ratio follows a natural cubic spline
    (de Boor, *A Practical Guide to Splines*, 1978, chapter IV): straight lines would misplace the crossing of curves
    that bend, by a tenth for points a factor of 4 apart and by a third for 16. The interval is made by a parametric
    bootstrap: each point's log ratio is drawn anew from Student's t about it, `resamples` times, and the crossing found
    anew; 2.5% of these lie below it and 2.5% above. Where the points are far apart what lies between them is drawn too,
    see `_between`. Where noise makes the curves cross several times, the crossing is the place that leaves as much of
    the range ahead as they do together. A point's `tolerance` moves the curve both ways, and the interval reaches over
    both. The same points and the same `seed` give the same interval.
    """
    import numpy as np

    x = np.log([point.x for point in points])
    ratio = np.array([[point.log_ratio for point in points]])
    sign = 1.0 if ratio[0, -1] >= ratio[0, 0] else -1.0
    generator = np.random.default_rng(seed)
    freedom = np.minimum([point.freedom for point in points], 1e9)
    noise = generator.standard_t(freedom, (resamples, len(points))) * np.sqrt([point.variance for point in points])
    tolerance = np.array([point.tolerance for point in points])
    bends = generator.standard_normal((resamples, 1))
    drawn = sign * (ratio + noise)
    estimate = float(_crossings(x, sign * ratio, np.zeros((1, 1)))[0])
    low = _ordered(_crossings(x, drawn + tolerance, bends), (1 - CONFIDENCE) / 2)
    high = _ordered(_crossings(x, drawn - tolerance, bends), (1 + CONFIDENCE) / 2)
    rises = sign > 0
    if math.isinf(estimate):
        # The leader of the whole range is whoever is ahead at its ends.
        return Crossing(None, _exp(low), _exp(high), rises if estimate < 0 else not rises)
    return Crossing(math.exp(estimate), _exp(low), _exp(high), rises)


def _exp(log: float) -> float:
    return log if math.isinf(log) else math.exp(log)


def _ordered(values: "Floats", share: float) -> float:
    """The quantile that is one of the values: between infinite ones there is nothing to interpolate."""
    import numpy as np

    ordered = np.sort(values)
    return float(ordered[min(len(ordered) - 1, max(0, math.ceil(share * len(ordered)) - 1))])


def _crossings(x: "Floats", ratios: "Floats", bends: "Floats") -> "Floats":
    """Where each row of `ratios`, shape (rows, points), passes 0 upwards; -inf or inf for rows of one sign."""
    import numpy as np

    grid, curves = _between(x, ratios, bends)
    left, right = curves[:, :-1], curves[:, 1:]
    steps = np.abs(right - left)
    crossed = np.maximum(left, right) / np.where(steps > 0, steps, 1.0)
    ahead = np.repeat(ratios[:, :-1] >= 0, _PIECES, axis=1)
    # The part of each piece on which the curve is above 0. Between two points of one sign it never leaves that sign:
    # a spline may swing there, and what is measured says nothing of it.
    changes = ahead != np.repeat(ratios[:, 1:] >= 0, _PIECES, axis=1)
    part = np.where(changes, np.where(left * right < 0, crossed, left + right >= 0), ahead)
    places: Floats = x[-1] - part @ np.diff(grid)
    places[(ratios >= 0).all(axis=1)] = -np.inf
    places[(ratios < 0).all(axis=1)] = np.inf
    return places


def _between(x: "Floats", ratios: "Floats", bends: "Floats") -> "tuple[Floats, Floats]":
    """The curves on a finer grid: natural cubic splines, bent towards straight lines by `bends`, a number for each row.

    How a curve runs between its points is a guess, and the worse the further they are apart: on curves of latency plus
    work (`benchmarks/compare_truth.py`) the spline's crossing errs by a sixth of its distance from that of straight
    lines for points a factor of 16 apart, and by a thirtieth for a factor of 4. So it is bent by a fifth of that
    distance times a normal number from a factor of 16 on, and by the square of the log distance less below.
    """
    import numpy as np

    grid = np.append(np.linspace(x[:-1], x[1:], _PIECES, endpoint=False).T.ravel(), x[-1])
    unit = np.eye(len(x))  # both ways of interpolating are linear in the points, so a matrix holds each
    straight = np.array([np.interp(grid, x, row) for row in unit])
    spline = _natural_spline(x, grid)
    piece = np.minimum(np.arange(len(grid)) // _PIECES, len(x) - 2)
    unsure = _UNSURE_SHARE * np.minimum(1.0, (np.diff(x)[piece] / _UNSURE_FROM) ** 2)
    curves: Floats = ratios @ spline + bends * (ratios @ ((straight - spline) * unsure))
    return grid, curves


def _natural_spline(x: "Floats", grid: "Floats") -> "Floats":
    """Natural cubic splines that are 1 at one of the points `x` and 0 at the others, a row each, at `grid` from x to x.

    The second derivatives at the points solve a linear system (de Boor, chapter IV); at the ends they are 0. SciPy's
    own would load half a second's worth of modules for it.
    """
    import numpy as np

    wide = np.diff(x)
    system, right = np.eye(len(x)), np.zeros((len(x), len(x)))
    inner = np.arange(1, len(x) - 1)
    system[inner, inner - 1], system[inner, inner + 1] = wide[:-1], wide[1:]
    system[inner, inner] = 2 * (wide[:-1] + wide[1:])
    right[1:-1] = 6 * np.diff(np.diff(np.eye(len(x)), axis=0) / wide[:, None], axis=0)
    bend = np.linalg.solve(system, right)
    piece = np.clip(np.searchsorted(x, grid, side="right") - 1, 0, len(x) - 2)
    width = wide[piece]
    after, before = (grid - x[piece]) / width, (x[piece + 1] - grid) / width
    unit = np.eye(len(x))
    values = unit[piece] * before[:, None] + unit[piece + 1] * after[:, None]
    pull = bend[piece] * (before**3 - before)[:, None] + bend[piece + 1] * (after**3 - after)[:, None]
    splines: Floats = (values + pull * (width**2 / 6)[:, None]).T
    return splines

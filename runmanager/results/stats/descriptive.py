"""Descriptive statistics (means, medians, spreads), estimates, and the samples of runs. Pure functions."""

import math
from collections.abc import Hashable, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise
from typing import Any

from runmanager.errors import UsageError
from runmanager.results.stats.noise_model import Residuals

_MOST_FITS, _FITTED = 200, 1e-9  # of cells and seeds in turns; the largest share that is still moved
_MAX_HALF_WIDTH = 300.0  # in logarithms: what a float can hold


@dataclass(frozen=True)
class Interval:
    """An interval of ratios or of differences, both ends included."""

    low: float
    high: float


@dataclass(frozen=True)
class Estimate:
    """The typical value of a side, or the ratio or difference of two sides, with its 95% interval.

    `error` is the standard error of the value, of its logarithm for a ratio; `dof` is its degrees of freedom.
    """

    value: float
    low: float
    high: float
    error: float = 0.0
    dof: float = 0.0

    @property
    def interval(self) -> Interval:
        return Interval(self.low, self.high)


def mean(values: Sequence[float]) -> float:
    """Return the mean of at least one value; a sum that overflows, as of losses close to infinity, is avoided."""
    try:
        return math.fsum(values) / len(values)
    except OverflowError:
        return math.fsum(value / len(values) for value in values)


def levels_by_seed(cells: Sequence[Sequence[tuple[Hashable, float]]], *, is_ratio: bool) -> list[float] | None:
    """Return the level of each cell, given its runs' seeds and values: their mean, less what its seeds do to all cells.

    What seeds do is a random effect, whose variance is estimated by the method of moments, so that it counts as far as
    the data show one: cells are then told apart by the seeds that they share. With `is_ratio` logarithms are fitted,
    and returned. None where the means tell cells apart: all have the same seeds, seeds have no visible effect, there
    are too few runs to see one, or values have no level.
    """
    values = [value for runs in cells for _, value in runs]
    places = {seed: place for place, seed in enumerate(dict.fromkeys(seed for runs in cells for seed, _ in runs))}
    dof = len(values) - len(cells) - len(places) + 1
    have_same = len({frozenset(seed for seed, _ in runs) for runs in cells}) <= 1
    if have_same or dof < 1 or not all(map(math.isfinite, values)) or (is_ratio and min(values) <= 0):
        return None
    import numpy as np

    found = np.array([math.log(value) if is_ratio else value for value in values])
    of_cell = np.array([at for at, runs in enumerate(cells) for _ in runs])
    of_seed = np.array([places[seed] for runs in cells for seed, _ in runs])
    cell_sizes, seed_sizes = np.bincount(of_cell), np.bincount(of_seed)

    def fitted(shrinkage: float) -> tuple[Any, Any]:
        levels, effects = np.bincount(of_cell, found) / cell_sizes, np.zeros(len(places))
        for _ in range(_MOST_FITS):
            before, effects = effects, np.bincount(of_seed, found - levels[of_cell]) / (seed_sizes + shrinkage)
            levels = np.bincount(of_cell, found - effects[of_seed]) / cell_sizes
            if np.abs(effects - before).max() <= _FITTED * np.abs(effects).max():
                break
        return levels, effects

    levels, effects = fitted(0.0)
    noise = ((found - levels[of_cell] - effects[of_seed]) ** 2).sum() / dof
    of_seeds = effects.var(ddof=1) - noise * (1 / seed_sizes).mean()
    return [float(each) for each in fitted(noise / of_seeds)[0]] if of_seeds > 0 else None


def median(values: Sequence[float]) -> float | None:
    """Return the middle value, or the mean of the two middle ones; None for an empty sequence."""
    if not values:
        return None
    ordered = sorted(values)
    half, odd = divmod(len(ordered), 2)
    if odd:
        return ordered[half]
    low, high = ordered[half - 1 : half + 1]
    return (low + high) / 2 if math.isfinite(low + high) else low / 2 + high / 2


def quantile(ordered: Sequence[float], share: float) -> float:
    """Return the `share` quantile of sorted values by interpolation (type 7 of Hyndman and Fan 1996, as in NumPy)."""
    position = (len(ordered) - 1) * share
    below = math.floor(position)
    above = min(below + 1, len(ordered) - 1)
    return ordered[below] + (ordered[above] - ordered[below]) * (position - below)


def iqr(values: Sequence[float]) -> float | None:
    """Return the interquartile range, third quartile less first; None for an empty sequence, 0 for a single value."""
    if not values:
        return None
    ordered = sorted(values)
    return quantile(ordered, 0.75) - quantile(ordered, 0.25)


def ratio_factor(half_width: float) -> float:
    """Return the factor from a ratio to the ends of its interval, given the half-width in logarithms."""
    return math.exp(min(half_width, _MAX_HALF_WIDTH))


Runs = Sequence[Sequence[float]]
"""The values of a side: for each run those of its measured epochs, or its single value."""

_MAX_AUTOCORRELATION = 0.9  # of neighbouring epochs: a short series cannot show more


@dataclass(frozen=True)
class RunValue:
    """The value of a run: the median of its epochs, the same on the scale of the contrast, and its variance.

    `scaled` is the logarithm of the median for a ratio, else the median; `variance` is what the epochs give `scaled`.
    """

    median: float
    scaled: float
    variance: float


@dataclass(frozen=True)
class Sample:
    """The runs of one side. Samples with an equal `key` are the same runs; None is that of no other.

    `times` are when the runs were measured, in seconds since any moment; empty where that is not known.
    """

    runs: Sequence[RunValue]
    is_ratio: bool
    key: Hashable = None
    times: Sequence[float] = ()

    @cached_property
    def values(self) -> list[float]:
        """The values of the runs on the scale of the contrast: logarithms for a ratio."""
        return [run.scaled for run in self.runs]

    @property
    def residuals(self) -> Residuals:
        """The noise between the runs."""
        return residuals(self.values)

    @property
    def typical(self) -> float:
        """The geometric mean over runs for a ratio, else the mean."""
        medians = [run.median for run in self.runs]
        return geometric_mean(medians) if self.is_ratio else mean(medians)

    @property
    def least_variance(self) -> float:
        """The variance of the mean over runs that their epochs alone explain."""
        return mean([run.variance for run in self.runs]) / len(self.runs)


def make_sample(
    runs: Runs, *, is_ratio: bool, name: str = "side", key: Hashable = None, times: Sequence[float] = ()
) -> Sample:
    """Return the sample of a side's runs; `name` is that of the side in errors.

    Raises `UsageError` for a side without runs, a run without values, and for values that cannot be compared.
    """
    if not runs or not all(runs):
        raise UsageError(f"The {name} of a comparison must have a measured value in each run, got {list(runs)}.")
    return Sample([_run_value(run, is_ratio, name) for run in runs], is_ratio, key, times)


def _run_value(run: Sequence[float], is_ratio: bool, name: str) -> RunValue:
    for value in run:
        if not math.isfinite(value):
            raise UsageError(f"Values of the {name} must be finite, got {value}.")
        if is_ratio and value <= 0:
            raise UsageError(f"Values of the {name} must be above 0 to have a ratio, got {value}.")
    middle = median(run)
    assert middle is not None  # a run without values is rejected
    return RunValue(middle, math.log(middle) if is_ratio else middle, _variance_of_median(run, is_ratio))


def geometric_mean(values: Sequence[float]) -> float:
    """Return the geometric mean of at least one value above 0; that of equal values is exactly the value."""
    first = values[0]
    return first * math.exp(mean([math.log(value / first) for value in values]))


def residuals(values: Sequence[float], *, share: float = 1.0) -> Residuals:
    """Return the residuals about the mean; `share` of the squares is one run's part."""
    middle = mean(values)
    return Residuals(share * math.fsum((value - middle) ** 2 for value in values), len(values) - 1.0)


def _variance_of_median(values: Sequence[float], is_ratio: bool) -> float:
    """Return the variance of a run's median that its epochs explain, of its logarithm for a ratio; 0 for one epoch.

    Under normal noise the median has π/2 times the variance of the mean (David and Nagaraja, *Order Statistics*, 2003),
    and that of the mean grows by (1 + r) / (1 - r) where neighbours have the correlation r (Bartlett, *JRSS* 8, 1946).
    """
    count = len(values)
    if count < 2:
        return 0.0
    middle = math.fsum(values) / count
    deviations = [value - middle for value in values]
    squares = math.fsum([each * each for each in deviations])
    if not squares:
        return 0.0
    autocorrelation = math.fsum([one * other for one, other in pairwise(deviations)]) / squares
    r = min(max(autocorrelation, 0.0), _MAX_AUTOCORRELATION)
    variance = math.pi / 2 * squares / (count - 1) / count * (1 + r) / (1 - r)
    return variance / middle**2 if is_ratio else variance

"""Descriptive statistics (means, medians, spreads), and an estimate with its interval. Pure functions."""

import math
from collections.abc import Sequence
from dataclasses import dataclass

__all__ = ["Estimate", "Interval", "iqr", "mean", "median", "quantile", "ratio_factor"]

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

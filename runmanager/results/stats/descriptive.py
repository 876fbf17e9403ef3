"""The statistics of a measurement: means, medians and spreads; what an estimate is. Pure."""

import math
from collections.abc import Sequence
from dataclasses import dataclass

__all__ = ["Estimate", "Interval", "iqr", "mean", "median", "quantile"]


@dataclass(frozen=True)
class Interval:
    """An interval of ratios or of differences, both ends included."""

    low: float
    high: float


@dataclass(frozen=True)
class Estimate:
    """A side's typical value, or a ratio or difference of two sides, with its 95% interval.

    `error` is the standard error of the value, of its logarithm for a ratio, and `freedom` with how many degrees of
    freedom it is known.
    """

    value: float
    low: float
    high: float
    error: float = 0.0
    freedom: float = 0.0

    @property
    def interval(self) -> Interval:
        return Interval(self.low, self.high)


def mean(values: Sequence[float]) -> float:
    """Of at least one value; sums that no float can hold, as of losses about to be infinite, do no harm."""
    try:
        return math.fsum(values) / len(values)
    except OverflowError:
        return math.fsum(value / len(values) for value in values)


def median(values: Sequence[float]) -> float | None:
    """The middle value, the mean of the two middle ones for an even count; None of nothing."""
    if not values:
        return None
    ordered = sorted(values)
    half, odd = divmod(len(ordered), 2)
    if odd:
        return ordered[half]
    low, high = ordered[half - 1 : half + 1]
    return (low + high) / 2 if math.isfinite(low + high) else low / 2 + high / 2


def quantile(ordered: Sequence[float], share: float) -> float:
    """The `share` quantile of sorted values by linear interpolation (type 7 of Hyndman and Fan 1996, as in NumPy)."""
    position = (len(ordered) - 1) * share
    below = math.floor(position)
    above = min(below + 1, len(ordered) - 1)
    return ordered[below] + (ordered[above] - ordered[below]) * (position - below)


def iqr(values: Sequence[float]) -> float | None:
    """The interquartile range: third quartile less first; None of nothing, 0 of a single value."""
    if not values:
        return None
    ordered = sorted(values)
    return quantile(ordered, 0.75) - quantile(ordered, 0.25)

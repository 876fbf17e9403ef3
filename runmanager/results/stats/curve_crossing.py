"""Where two curves cross, read from the points where one side is surely ahead. Pure functions of numbers."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

__all__ = ["Crossing", "CurvePoint", "find_crossings"]


@dataclass(frozen=True)
class CurvePoint:
    """The two curves at one value `x` > 0: the log of how far the candidate is ahead, and whether that is sure.

    `ahead` is 1 where the comparison says that the candidate is ahead, -1 where it says that the baseline is, and 0
    where the two cannot be told apart.
    """

    x: float
    log_ratio: float
    ahead: int


@dataclass(frozen=True)
class Crossing:
    """One crossing: it lies between the measured points `low` and `high`, about at `at`.

    `candidate_leads` says whether the candidate is the one ahead after it.
    """

    at: float
    low: float
    high: float
    candidate_leads: bool


def find_crossings(points: Sequence[CurvePoint]) -> list[Crossing]:
    """The crossings of two curves, in ascending order of `x`, as `points` are.

    A crossing lies between a point where one side is surely ahead and the next point where the other one surely is.
    Points that cannot be told apart prove no crossing, and none is looked for beyond the last sure point. The interval
    reaches from the one point to the other: how the curves run between them was not measured. It therefore holds the
    crossing wherever the two points are on the sides that they are said to be on. Intervals of the points that hold
    simultaneously with 95% confidence thus give intervals of all crossings that do so.
    """
    sure = [place for place, point in enumerate(points) if point.ahead]
    return [
        _between(points[left : right + 1])
        for left, right in pairwise(sure)
        if points[left].ahead != points[right].ahead
    ]


def _between(points: Sequence[CurvePoint]) -> Crossing:
    """The crossing between the first and the last of `points`, which are surely on different sides.

    The estimate follows straight lines of the log ratio over log x. Where noise makes them cross several times, it is
    the place that leaves as much of the range ahead as they do together.
    """
    first, last = points[0], points[-1]
    after = sum(
        math.log(right.x / left.x) * _share_below(first.ahead * left.log_ratio, first.ahead * right.log_ratio)
        for left, right in pairwise(points)
    )
    return Crossing(last.x / math.exp(after), first.x, last.x, last.ahead > 0)


def _share_below(left: float, right: float) -> float:
    """The share of a straight line from `left` to `right` that lies below 0."""
    if (left < 0) == (right < 0):
        return float(left < 0)
    return max(-left, -right) / abs(right - left)

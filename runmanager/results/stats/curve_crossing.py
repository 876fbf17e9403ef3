"""Crossings of two curves, from the points where one side is significantly ahead. Pure functions of numbers."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

__all__ = ["Crossing", "CurvePoint", "find_crossings"]


@dataclass(frozen=True)
class CurvePoint:
    """The two curves at one value `x` > 0: the log ratio by which the candidate is ahead, and its significance.

    `ahead` is 1 where the candidate is significantly ahead, -1 where the baseline is, and 0 where neither is.
    """

    x: float
    log_ratio: float
    ahead: int


@dataclass(frozen=True)
class Crossing:
    """A crossing between the measured points `low` and `high`, estimated at `at`.

    `candidate_leads` is whether the candidate is ahead after it.
    """

    at: float
    low: float
    high: float
    candidate_leads: bool


def find_crossings(points: Sequence[CurvePoint]) -> list[Crossing]:
    """Return the crossings of two curves; `points`, and the crossings, are in ascending order of `x`.

    A crossing lies between a point where one side is significantly ahead and the next point where the other side is.
    Points where neither is ahead prove no crossing, and no crossing is assumed beyond the last significant point. The
    interval reaches from the one point to the other: the curves between them were not measured. It therefore contains
    the crossing whenever the verdicts on the two points are true. Simultaneous 95% intervals of the points thus give
    simultaneous 95% intervals of all crossings.
    """
    significant = [index for index, point in enumerate(points) if point.ahead]
    return [
        _crossing_between(points[left : right + 1])
        for left, right in pairwise(significant)
        if points[left].ahead != points[right].ahead
    ]


def _crossing_between(points: Sequence[CurvePoint]) -> Crossing:
    """Return the crossing between the first and the last of `points`, which are on different sides.

    The estimate interpolates the log ratio linearly over log x. Where noise makes the lines cross several times, the
    estimate leaves the same share of the range ahead as the lines do in total.
    """
    first, last = points[0], points[-1]
    after = math.fsum(
        math.log(right.x / left.x) * _share_below(first.ahead * left.log_ratio, first.ahead * right.log_ratio)
        for left, right in pairwise(points)
    )
    return Crossing(last.x / math.exp(after), first.x, last.x, last.ahead > 0)


def _share_below(left: float, right: float) -> float:
    """Return the share of a straight line from `left` to `right` that lies below 0."""
    if (left < 0) == (right < 0):
        return float(left < 0)
    return max(-left, -right) / abs(right - left)

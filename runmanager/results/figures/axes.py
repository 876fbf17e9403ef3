"""Axes of figures: linear or log scales, ticks, and the positions of setting values along x."""

import itertools
import math
import sys
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any, Literal

from runmanager.results.figures.style import wrapped
from runmanager.text import format_value

if TYPE_CHECKING:
    from matplotlib.axes import Axes

_LOG_FROM = 20.0  # ratio of the largest value to the smallest above which a linear scale hides small differences
_MAX_DRAWABLE = 1e100
_MAX_TICKS = 6
_LINE_OFFSET = 0.028  # of the axis' width, between two lines at the same value: as wide as the caps of a whisker
_MAX_LINES_WIDTH = 0.5  # of the distance of two values, for all lines at one of them, so that they stay apart
_LABEL_CHARACTERS = 12


@dataclass(frozen=True)
class AxisPositions:
    """The x positions of at least two ordered `values`: numbers to scale, other values at equal distances.

    The `num_lines` lines are slightly offset from each other, so that their whiskers do not overlap.
    """

    values: Sequence[Any]
    num_lines: int

    @cached_property
    def are_numbers(self) -> bool:
        return is_numeric(self.values)

    @cached_property
    def is_log(self) -> bool:
        """Whether the axis has a log scale."""
        return self.are_numbers and is_log_spaced(self.values)

    def positions(self, line: int, values: Sequence[Any]) -> list[float]:
        """The x positions of some of the values for the line with this index."""
        shift = (line - (self.num_lines - 1) / 2) * self._line_offset
        if self.is_log:
            return [value * math.exp(shift) for value in values]
        return [(value if self.are_numbers else self.values.index(value)) + shift for value in values]

    @cached_property
    def _line_offset(self) -> float:
        """The distance of neighbouring lines, on the drawn scale."""
        if self.is_log:
            drawn = [math.log(value) for value in self.values]
        else:
            drawn = list(self.values) if self.are_numbers else [-0.5, *range(len(self.values)), len(self.values) - 0.5]
        closest = min(after - before for before, after in itertools.pairwise(drawn))
        return min(_LINE_OFFSET * (drawn[-1] - drawn[0]), _MAX_LINES_WIDTH * closest / self.num_lines)

    def set_ticks(self, axes: "Axes") -> None:
        """Set ticks at the values; many numbers get ticks at round numbers instead."""
        if not self.are_numbers:
            labels = [wrapped(format_value(value), _LABEL_CHARACTERS) for value in self.values]
            set_ticks(axes, "x", range(len(labels)), labels)
            axes.set_xlim(-0.5, len(labels) - 0.5)
            return
        set_number_scale(axes, "x", log=self.is_log)
        if len(self.values) <= _MAX_TICKS:
            set_ticks(axes, "x", self.values, [f"{value:,.10g}" for value in self.values])


def is_drawable(value: float) -> bool:
    """Whether a measured value can be drawn: a scale for values near the largest float would hide all others."""
    return abs(value) < _MAX_DRAWABLE


def is_numeric(values: Sequence[Any]) -> bool:
    """Whether all values are finite numbers that a float can hold."""
    return all(
        isinstance(value, int | float) and not isinstance(value, bool) and abs(value) <= sys.float_info.max
        for value in values
    )


def needs_log_scale(smallest: float, largest: float) -> bool:
    """Whether positive values are too far apart for a linear scale."""
    return 0 < _LOG_FROM * smallest < largest


def is_log_spaced(values: Collection[float]) -> bool:
    """Whether the steps between these numbers are more even on a log scale than on a linear one."""
    if not all(value > 0 for value in values):
        return False
    ordered = sorted(values)
    logs = [math.log(value) for value in ordered]
    if len(ordered) < 3:
        return ordered[-1] >= 10 * ordered[0]
    return _evenness(logs) > _evenness(ordered)


def _evenness(ordered: Sequence[float]) -> float:
    """The smallest step as a share of the largest."""
    steps = [after - before for before, after in itertools.pairwise(ordered)]
    return min(steps) / max(steps)


def set_number_scale(axes: "Axes", which: Literal["x", "y"], *, log: bool = False) -> None:
    """Format the ticks of a finished axis as plain numbers such as `1,000`, optionally on a log scale."""
    from matplotlib.ticker import LogLocator, MaxNLocator, NullLocator, StrMethodFormatter

    axis = axes.xaxis if which == "x" else axes.yaxis
    if log:
        axes.set(**{f"{which}scale": "log"})
        low, high = axes.get_xlim() if which == "x" else axes.get_ylim()
        decades = LogLocator(subs=(1, 2, 5) if high < 1000 * low else (1,))
        # A range of less than a decade would get one decade tick or none.
        axis.set_major_locator(MaxNLocator(5) if high < 5 * low else decades)
        axis.set_minor_locator(NullLocator())
    elif which == "x":
        axis.set_major_locator(MaxNLocator(5))
    axis.set_major_formatter(StrMethodFormatter("{x:,.10g}"))


def set_ticks(axes: "Axes", which: Literal["x", "y"], values: Sequence[float], labels: Sequence[str]) -> None:
    """Set labelled ticks at these values only."""
    from matplotlib.ticker import NullLocator

    axis = axes.xaxis if which == "x" else axes.yaxis
    axis.set_ticks(values, labels)
    axis.set_minor_locator(NullLocator())


def set_integer_ticks(axes: "Axes") -> None:
    """Set ticks along x at integers only."""
    from matplotlib.ticker import MaxNLocator

    axes.xaxis.set_major_locator(MaxNLocator(integer=True))

"""Where the values of an axis stand from left to right: numbers by their size, words side by side."""

import itertools
import math
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any, Literal

from runmanager.results.figures.style import wrapped
from runmanager.text import format_value

if TYPE_CHECKING:
    from matplotlib.axes import Axes

__all__ = [
    *(
        "AxisPositions",
        "is_drawable",
        "is_log_spaced",
        "is_numeric",
        "needs_log_scale",
        "set_number_scale",
        "set_ticks",
    ),
    "set_integer_ticks",
]

_LOG_FROM = 20.0  # times between the smallest and the largest: above it the small ones could not be told apart
_LARGEST = 1e100

_MAX_TICKS = 6
_APART = 0.028  # of the width, between two lines at one place: as much as a whisker's ends are wide
_CROWD = 0.5  # of the distance of two places, for all lines at one: else nobody sees which of the two they are at
_WORD_CHARACTERS = 12


@dataclass(frozen=True)
class AxisPositions:
    """At least two values in the order in which they stand, and how many lines go through them.

    The lines stand a little beside each other at each place, so that one's whiskers do not hide another's.
    """

    values: Sequence[Any]
    num_lines: int

    @cached_property
    def are_numbers(self) -> bool:
        return is_numeric(self.values)

    @cached_property
    def are_on_logs(self) -> bool:
        """Whether the scale is a log scale."""
        return self.are_numbers and is_log_spaced(self.values)

    def xs(self, line: int, values: Sequence[Any]) -> list[float]:
        """Where the line of that number, from 0, stands at some of the values."""
        shift = (line - (self.num_lines - 1) / 2) * self._apart
        if self.are_on_logs:
            return [value * math.exp(shift) for value in values]
        return [(value if self.are_numbers else self.values.index(value)) + shift for value in values]

    @cached_property
    def _apart(self) -> float:
        """How far lines that follow each other are apart, on the scale that is drawn."""
        if self.are_on_logs:
            drawn = [math.log(value) for value in self.values]
        else:
            drawn = list(self.values) if self.are_numbers else [-0.5, *range(len(self.values)), len(self.values) - 0.5]
        closest = min(after - before for before, after in itertools.pairwise(drawn))
        return min(_APART * (drawn[-1] - drawn[0]), _CROWD * closest / self.num_lines)

    def set_ticks(self, axes: "Axes") -> None:
        """Name the values along x, where there is room for that; numbers else as round ones."""
        if not self.are_numbers:
            words = [wrapped(format_value(value), _WORD_CHARACTERS) for value in self.values]
            set_ticks(axes, "x", range(len(words)), words)
            axes.set_xlim(-0.5, len(words) - 0.5)
            return
        set_number_scale(axes, "x", log=self.are_on_logs)
        if len(self.values) <= _MAX_TICKS:
            set_ticks(axes, "x", self.values, [f"{value:,.10g}" for value in self.values])


def is_drawable(value: float) -> bool:
    """Whether a measured value is one to draw; a scale for the largest that a float can hold is none for the others."""
    return abs(value) < _LARGEST


def is_numeric(values: Sequence[Any]) -> bool:
    """Whether all of these are numbers that have a place on an axis."""
    return all(
        isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value) for value in values
    )


def needs_log_scale(smallest: float, largest: float) -> bool:
    """Whether values above 0 lie too far apart for a linear scale."""
    return 0 < _LOG_FROM * smallest < largest


def is_log_spaced(values: Collection[float]) -> bool:
    """Whether the steps between these numbers are more alike on a log scale than on a linear one."""
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
    """Plain numbers along an axis on which everything is drawn, `1,000` and never a power of ten."""
    from matplotlib.ticker import LogLocator, MaxNLocator, NullLocator, StrMethodFormatter

    axis = axes.xaxis if which == "x" else axes.yaxis
    if log:
        axes.set(**{f"{which}scale": "log"})
        low, high = axes.get_xlim() if which == "x" else axes.get_ylim()
        decades = LogLocator(subs=(1, 2, 5) if high < 1000 * low else (1,))
        # Within a few times the smallest, a decade's own ticks would be one or none.
        axis.set_major_locator(MaxNLocator(5) if high < 5 * low else decades)
        axis.set_minor_locator(NullLocator())
    elif which == "x":
        axis.set_major_locator(MaxNLocator(5))
    axis.set_major_formatter(StrMethodFormatter("{x:,.10g}"))


def set_ticks(axes: "Axes", which: Literal["x", "y"], values: Sequence[float], labels: Sequence[str]) -> None:
    """Ticks at these places alone."""
    from matplotlib.ticker import NullLocator

    axis = axes.xaxis if which == "x" else axes.yaxis
    axis.set_ticks(values, labels)
    axis.set_minor_locator(NullLocator())


def set_integer_ticks(axes: "Axes") -> None:
    """Ticks along x at whole numbers alone."""
    from matplotlib.ticker import MaxNLocator

    axes.xaxis.set_major_locator(MaxNLocator(integer=True))

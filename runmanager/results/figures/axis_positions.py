"""Where the values of an axis stand from left to right: numbers by their size, words side by side."""

import itertools
import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any

from runmanager.results.figures.cell_grid import is_numeric
from runmanager.results.figures.labels import wrapped
from runmanager.results.figures.style import evenly_spaced_logs, numbers, ticks_at
from runmanager.text import format_value

if TYPE_CHECKING:
    from matplotlib.axes import Axes

__all__ = ["Places"]

_MAX_TICKS = 6
_APART = 0.028  # of the width, between two lines at one place: as much as a whisker's ends are wide
_CROWD = 0.5  # of the distance of two places, for all lines at one: else nobody sees which of the two they are at
_WORD_CHARACTERS = 12


@dataclass(frozen=True)
class Places:
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
        return self.are_numbers and evenly_spaced_logs(self.values)

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
            ticks_at(axes, "x", range(len(words)), words)
            axes.set_xlim(-0.5, len(words) - 0.5)
            return
        numbers(axes, "x", log=self.are_on_logs)
        if len(self.values) <= _MAX_TICKS:
            ticks_at(axes, "x", self.values, [f"{value:,.10g}" for value in self.values])

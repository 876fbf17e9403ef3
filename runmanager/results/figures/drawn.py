"""A figure as the report, a file and a notebook take it: its words, and how it is drawn when somebody wants it."""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from matplotlib.figure import Figure

__all__ = ["Drawn"]


@dataclass(frozen=True)
class Drawn:
    """One figure of a sweep.

    `name` tells it from the sweep's other figures and is fit for a file: `throughput`, `crossover-2`. `title` is a few
    words, `caption` says what is shown and how it was computed, `description` says in words what can be seen, for those
    who cannot see it.
    """

    name: str
    title: str
    caption: str
    description: str
    drawing: "Callable[[], Figure]" = field(repr=False)

    def draw(self) -> "Figure":
        """The figure, made anew, near-black on white; it is nobody's but the caller's, and belongs to no window."""
        from runmanager.results.figures.style import house_style

        with house_style():
            return self.drawing()

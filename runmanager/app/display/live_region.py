"""The part of a display that is redrawn in place, in a terminal or elsewhere.

It is the one use of rich's private API: the lock under which a `Live` redraws itself. Read against rich 13.8 to 15.0.
The refresh thread of `rich.live.Live` and `Live.refresh` hold `Live._lock` while they draw, but `Console.print` does
not take it: it measures what is on the screen, and the thread may draw before it prints.
"""

from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Protocol

from rich.console import Console, RenderableType
from rich.live import Live

__all__ = ["LiveRegion", "PausableLive", "terminal_region"]

_REDRAWS_PER_SECOND = 4  # each takes the driver a millisecond


class LiveRegion(Protocol):
    """The part of a display that is redrawn in place between `start` and `stop`."""

    def start(self) -> None:
        """Show the region and begin to redraw it."""
        ...

    def stop(self) -> None:
        """Stop redrawing the region."""
        ...

    def refresh(self) -> None:
        """Redraw the region as it is now, before lines are printed above it."""
        ...

    def paused(self) -> AbstractContextManager[object]:
        """A context in which only the calling thread draws."""
        ...


class PausableLive(Live):
    """A `rich.live.Live` whose refresh thread can be held back while a line is printed."""

    def paused(self) -> AbstractContextManager[object]:
        """A context in which only the calling thread draws."""
        return self._lock


def terminal_region(console: Console, render: Callable[[], RenderableType]) -> LiveRegion:
    """Return a region at the foot of the terminal. A thread redraws it, and `stop` removes it."""
    return PausableLive(console=console, transient=True, refresh_per_second=_REDRAWS_PER_SECOND, get_renderable=render)

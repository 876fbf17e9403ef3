"""The part of a display that is redrawn in place, in a terminal or elsewhere."""

from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Protocol

from rich.console import Console, RenderableType

from runmanager.app.display.rich_internals import PausableLive

__all__ = ["LiveRegion", "terminal_region"]

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


def terminal_region(console: Console, render: Callable[[], RenderableType]) -> LiveRegion:
    """Return a region at the foot of the terminal. A thread redraws it, and `stop` removes it."""
    return PausableLive(console=console, transient=True, refresh_per_second=_REDRAWS_PER_SECOND, get_renderable=render)

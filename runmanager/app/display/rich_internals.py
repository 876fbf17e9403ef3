"""The one use of rich's private API: the lock under which a `Live` redraws itself.

Read against rich 13.8 to 15.0. The refresh thread of `rich.live.Live` and `Live.refresh` hold `Live._lock` while they
draw, but `Console.print` does not take it: it measures what is on the screen, and the thread may draw before it prints.
"""

from contextlib import AbstractContextManager

from rich.live import Live

__all__ = ["PausableLive"]


class PausableLive(Live):
    """A `rich.live.Live` whose refresh thread can be held back while a line is printed."""

    def paused(self) -> AbstractContextManager[object]:
        """A context in which only the calling thread draws."""
        return self._lock

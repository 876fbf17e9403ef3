"""The output of a notebook's cell as a place for a display: one text, shown anew in place whenever it changes."""

import io
import sys
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass

from rich.console import Console, RenderableType

from runmanager.text import pluralize

__all__ = ["CellOutput", "in_kernel"]

_COLUMNS = 100  # fits beside a notebook's margin in a window of 1,200 pixels
_ROWS = 40  # of the part that moves
_FIRST_LINES = 20  # of what stays: with these and the last ones, the longest sweep's text is sent in a moment
_LAST_LINES = 180


def in_kernel() -> bool:
    """Whether this process is a notebook's kernel, whose output is shown by a page."""
    ipython = sys.modules.get("IPython")
    shell = None if ipython is None else ipython.get_ipython()
    return hasattr(shell, "kernel")


class CellOutput:
    """Lines that stay, and below them a part that moves, as one output of the running cell.

    It is plain text with terminal colours, which a page shows in its own scheme, light or dark. What is printed on
    `console` stays; `live_region` is what `RunDisplay` takes for the part that moves. All is shown when `draw` is
    called, by whoever waits for the next thing to happen: there is no thread.
    """

    def __init__(self) -> None:
        self._kept = io.StringIO()
        self.console = Console(
            file=self._kept,
            force_terminal=True,
            force_interactive=True,
            force_jupyter=False,
            color_system="standard",
            width=_COLUMNS,
            height=_ROWS,
            highlight=False,
        )
        self._moving: Callable[[], RenderableType] | None = None
        self._update: Callable[[str], None] | None = None
        self._drawn = ""

    def live_region(self, console: Console, shown: Callable[[], RenderableType]) -> "_CellRegion":
        """What stands below the lines while it is started."""
        return _CellRegion(self, shown)

    def start_region(self, shown: Callable[[], RenderableType]) -> None:
        """From now on show this below the lines, as it is at each `draw`."""
        self._moving = shown

    def stop_region(self) -> None:
        """Let the part that moved stand as it is now."""
        if self._moving is not None:
            self._kept.write(self._rendered(self._moving))
            self._moving = None
            self.draw()

    def draw(self) -> None:
        """Show how it stands now."""
        moving = "" if self._moving is None else self._rendered(self._moving)
        text = _shortened((self._kept.getvalue() + moving).rstrip("\n"))
        if text == self._drawn:
            return
        self._drawn = text
        if self._update is None:
            self._update = _display(text)
        else:
            self._update(text)

    def _rendered(self, shown: Callable[[], RenderableType]) -> str:
        with self.console.capture() as capture:
            self.console.print(shown())
        return capture.get()


@dataclass(frozen=True)
class _CellRegion:
    cell: CellOutput
    shown: Callable[[], RenderableType]

    def start(self) -> None:
        self.cell.start_region(self.shown)

    def paused(self) -> AbstractContextManager[object]:
        return nullcontext()  # nothing is drawn but by whoever prints

    def stop(self) -> None:
        self.cell.stop_region()


def _shortened(text: str) -> str:
    lines = text.split("\n")
    left_out = len(lines) - _FIRST_LINES - _LAST_LINES
    if left_out <= 0:
        return text
    return "\n".join([*lines[:_FIRST_LINES], f"… {pluralize(left_out, 'line')} …", *lines[-_LAST_LINES:]])


def _display(text: str) -> Callable[[str], None]:
    """Show a text as an output of the running cell; returns what replaces it."""
    from IPython.display import display

    handle = display({"text/plain": text}, raw=True, display_id=True)
    return lambda newer: handle.update({"text/plain": newer}, raw=True)

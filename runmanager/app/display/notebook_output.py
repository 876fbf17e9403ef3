"""A display in the output of a notebook cell: one text, replaced whenever it changes."""

import io
import sys
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass

from rich.console import Console, RenderableType

from runmanager.app.display.output_console import TextConsole
from runmanager.text import pluralize

__all__ = ["CellOutput", "in_kernel"]

_COLUMNS = 100  # fits next to a notebook's margin in a window of 1,200 pixels
_ROWS = 40  # of the live region
_FIRST_LINES = 20  # of a long text; only these and the last lines are sent, which stays fast
_LAST_LINES = 180


def in_kernel() -> bool:
    """Whether this process is a notebook kernel."""
    ipython = sys.modules.get("IPython")
    shell = None if ipython is None else ipython.get_ipython()
    return hasattr(shell, "kernel")


class CellOutput:
    """Permanent lines and a live region below them, as one output of the running cell.

    The output is text with terminal colours, which pages show in their light or dark scheme. Text printed on `console`
    is permanent; `live_region` is the factory that `RunDisplay` takes. No thread redraws: the caller's wait between two
    polls calls `draw`.
    """

    def __init__(self) -> None:
        self._permanent = io.StringIO()
        self.console = TextConsole(
            file=self._permanent,
            force_terminal=True,
            force_interactive=True,
            force_jupyter=False,
            color_system="standard",
            width=_COLUMNS,
            height=_ROWS,
        )
        self._render_region: Callable[[], RenderableType] | None = None
        self._update: Callable[[str], None] | None = None
        self._drawn = ""

    def live_region(self, console: Console, render: Callable[[], RenderableType]) -> "_CellRegion":
        """Return a region below the permanent lines."""
        return _CellRegion(self, render)

    def start_region(self, render: Callable[[], RenderableType]) -> None:
        """Show the result of `render` below the permanent lines at each `draw`."""
        self._render_region = render

    def stop_region(self) -> None:
        """Make the region permanent as it is now."""
        if self._render_region is not None:
            self._permanent.write(self._rendered(self._render_region))
            self._render_region = None
            self.draw()

    def draw(self) -> None:
        """Update the cell's output."""
        region = "" if self._render_region is None else self._rendered(self._render_region)
        text = _shortened((self._permanent.getvalue() + region).rstrip("\n"))
        if text == self._drawn:
            return
        self._drawn = text
        if self._update is None:
            self._update = _display(text)
        else:
            self._update(text)

    def _rendered(self, render: Callable[[], RenderableType]) -> str:
        with self.console.capture() as capture:
            self.console.print(render())
        return capture.get()


@dataclass(frozen=True)
class _CellRegion:
    cell: CellOutput
    render: Callable[[], RenderableType]

    def start(self) -> None:
        self.cell.start_region(self.render)

    def refresh(self) -> None:
        """Do nothing: `draw` shows the lines and the region of one moment."""

    def paused(self) -> AbstractContextManager[object]:
        return nullcontext()  # no thread redraws

    def stop(self) -> None:
        self.cell.stop_region()


def _shortened(text: str) -> str:
    lines = text.split("\n")
    num_omitted = len(lines) - _FIRST_LINES - _LAST_LINES
    if num_omitted <= 0:
        return text
    return "\n".join([*lines[:_FIRST_LINES], f"… {pluralize(num_omitted, 'line')} …", *lines[-_LAST_LINES:]])


def _display(text: str) -> Callable[[str], None]:
    """Show a text as an output of the running cell; return a function that replaces it."""
    from IPython.display import display

    handle = display({"text/plain": text}, raw=True, display_id=True)
    return lambda newer: handle.update({"text/plain": newer}, raw=True)

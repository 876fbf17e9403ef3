"""Consoles, and where a display is shown: permanent lines, and a region that is redrawn; a terminal or a notebook."""

import io
import os
import sys
import time
from collections.abc import Callable, Iterable, Mapping
from contextlib import AbstractContextManager, nullcontext
from typing import Any

from rich.console import Console, ConsoleOptions, RenderableType
from rich.live import Live
from rich.segment import Segment
from rich.text import Text

from runmanager.text import pluralize, printable, printable_line, wrapped

_WHOLE = 10_000  # characters, wider than any table


class TextConsole(Console):
    """A console for text as it is: without rich's markup, and nothing in it that a terminal obeys."""

    def __init__(self, **options: Any) -> None:
        super().__init__(markup=False, emoji=False, highlight=False, **options)

    def render(self, renderable: RenderableType, options: ConsoleOptions | None = None) -> Iterable[Segment]:
        """Yield the segments of a renderable; colours and the moves of the cursor are not part of their text."""
        for each in super().render(renderable, options):
            yield each if each.control else Segment(printable(each.text), each.style)


def make_console(environment: Mapping[str, str] = os.environ) -> TextConsole:
    """Return the console of this process, plain if the output is shown in a notebook.

    A kernel gives a `!command` a pseudo-terminal and forces colours, but redrawn lines pile up in the cell.
    """
    if is_in_notebook(environment):
        return TextConsole(force_terminal=False, no_color=True)
    # FORCE_COLOR forces colours without a terminal, as in a log, where lines still cannot be redrawn.
    interactive = None if sys.stdout.isatty() else False
    return TextConsole(force_interactive=interactive, width=width_of_output(environment))


def line_of(text: str, console: Console) -> Text:
    """Return a line wrapped between words, and not in a command, in a terminal; unwrapped in a log."""
    line = printable_line(text)
    return Text(wrapped(line, console.width) if console.is_terminal else line)


def width_of_output(environment: Mapping[str, str] = os.environ) -> int | None:
    """Return the width of what is printed: that of the terminal as None, and elsewhere one in which nothing is cut.

    The environment variable `COLUMNS` is the width of either.
    """
    return None if sys.stdout.isatty() or "COLUMNS" in environment else _WHOLE


def is_in_notebook(environment: Mapping[str, str]) -> bool:
    """Whether a notebook kernel started this process, judged by the environment variables that it sets."""
    return "JPY_PARENT_PID" in environment or "matplotlib_inline" in environment.get("MPLBACKEND", "")


_REDRAWS_PER_SECOND = 4  # each takes the driver a millisecond
_COLUMNS = 100  # fits next to a notebook's margin in a window of 1,200 pixels
_ROWS = 40  # of the live region
_FIRST_LINES = 20  # of a long text; only these and the last lines are sent, which stays fast
_LAST_LINES = 180


def output_of_process(*, quiet: bool = False) -> "ConsoleOutput":
    """Return the output of the running cell in a notebook kernel, elsewhere this process's console."""
    ipython = sys.modules.get("IPython")
    shell = None if ipython is None else ipython.get_ipython()
    output = CellOutput() if hasattr(shell, "kernel") else ConsoleOutput(make_console())
    output.console.quiet = quiet
    return output


class PausableLive(Live):
    """A `rich.live.Live` whose refresh thread can be held back while a line is printed.

    It is the one use of rich's private API: the lock under which a `Live` redraws itself. Read against rich 13.8 to
    15.0. The refresh thread and `Live.refresh` hold it while they draw, but `Console.print` does not take it: it
    measures what is on the screen, and the thread may draw before it prints.
    """

    def paused(self) -> AbstractContextManager[object]:
        """A context in which only the calling thread draws."""
        return self._lock


class ConsoleOutput:
    """A console, and a region at the foot of its terminal, which a thread redraws and `stop` removes."""

    def __init__(self, console: Console) -> None:
        self.console = console
        self._live: PausableLive | None = None

    def start(self, render: Callable[[], RenderableType]) -> None:
        """Show the result of `render` below the permanent lines, and begin to redraw it."""
        self._live = PausableLive(
            console=self.console, transient=True, refresh_per_second=_REDRAWS_PER_SECOND, get_renderable=render
        )
        self._live.start()

    def stop(self) -> None:
        """Stop redrawing the region."""
        if self._live is not None:
            self._live.stop()

    def refresh(self) -> None:
        """Redraw the region as it is now, before lines are printed above it."""
        if self._live is not None:
            self._live.refresh()

    def paused(self) -> AbstractContextManager[object]:
        """A context in which only the calling thread draws."""
        return nullcontext() if self._live is None else self._live.paused()

    def draw(self) -> None:
        """Show what has been printed, where that is not done at once."""

    def print_line(self, line: str) -> None:
        """Print a line without wrapping it, so that it can be copied."""
        self.console.print(printable(line), soft_wrap=True)
        self.draw()

    def wait(self, seconds: float) -> None:
        """Show what has been printed, and sleep."""
        self.draw()
        time.sleep(seconds)


class CellOutput(ConsoleOutput):
    """Permanent lines and a live region below them, as one output of the running cell.

    The output is text with terminal colours, which pages show in their light or dark scheme. Text printed on `console`
    is permanent. No thread redraws: the caller's wait between two polls calls `draw`.
    """

    def __init__(self) -> None:
        self._permanent = io.StringIO()
        console = TextConsole(
            file=self._permanent,
            force_terminal=True,
            force_interactive=True,
            force_jupyter=False,
            color_system="standard",
            width=_COLUMNS,
            height=_ROWS,
        )
        super().__init__(console)
        self._render: Callable[[], RenderableType] | None = None
        self._update: Callable[[str], None] | None = None
        self._drawn = ""

    def start(self, render: Callable[[], RenderableType]) -> None:
        self._render = render

    def stop(self) -> None:
        """Make the region permanent as it is now."""
        self._permanent.write(self._rendered_region())
        self._render = None
        self.draw()

    def refresh(self) -> None:
        """Do nothing: `draw` shows the lines and the region of one moment."""

    def draw(self) -> None:
        """Update the cell's output."""
        text = _shortened((self._permanent.getvalue() + self._rendered_region()).rstrip("\n"))
        if text == self._drawn:
            return
        self._drawn = text
        if self._update is None:
            self._update = _display(text)
        else:
            self._update(text)

    def _rendered_region(self) -> str:
        with self.console.capture() as capture:
            if self._render is not None:
                self.console.print(self._render())
        return capture.get()


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

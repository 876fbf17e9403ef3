"""The console of a command's output; lines can be redrawn in a terminal, but not in a notebook or a log."""

import os
import sys
from collections.abc import Iterable, Mapping
from typing import Any

from rich.console import Console, ConsoleOptions, RenderableType
from rich.segment import Segment
from rich.text import Text

from runmanager.text import printable, printable_line, wrapped

__all__ = ["TextConsole", "line_of", "make_console", "width_of_output"]

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

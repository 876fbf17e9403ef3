"""The screen of a command, and whether lines may move on it: in a terminal they may, below a notebook's cell not."""

import os
import sys
from collections.abc import Mapping

from rich.console import Console

__all__ = ["make_console"]


def make_console(environment: Mapping[str, str] = os.environ) -> Console:
    """The console of this process, plain where its output stands in a notebook.

    A kernel gives a `!command` a pseudo-terminal, and asks everybody for colours; but what moves the cursor there
    piles up in the cell.
    """
    if is_below_a_kernel(environment):
        return Console(highlight=False, force_terminal=False, no_color=True)
    # FORCE_COLOR asks for colours where there is no terminal, as in a log: nothing can move there all the same.
    return Console(highlight=False, force_interactive=None if sys.stdout.isatty() else False)


def is_below_a_kernel(environment: Mapping[str, str]) -> bool:
    """Whether a notebook's kernel started this process: it tells its children of its own parent, and how to plot."""
    return "JPY_PARENT_PID" in environment or "matplotlib_inline" in environment.get("MPLBACKEND", "")

"""The console of a command's output; lines can be redrawn in a terminal, but not in a notebook or a log."""

import os
import sys
from collections.abc import Mapping

from rich.console import Console

__all__ = ["make_console"]


def make_console(environment: Mapping[str, str] = os.environ) -> Console:
    """Return the console of this process, plain if the output is shown in a notebook.

    A kernel gives a `!command` a pseudo-terminal and forces colours, but redrawn lines pile up in the cell.
    """
    if is_in_notebook(environment):
        return Console(highlight=False, force_terminal=False, no_color=True)
    # FORCE_COLOR forces colours without a terminal, as in a log, where lines still cannot be redrawn.
    return Console(highlight=False, force_interactive=None if sys.stdout.isatty() else False)


def is_in_notebook(environment: Mapping[str, str]) -> bool:
    """Whether a notebook kernel started this process, judged by the environment variables that it sets."""
    return "JPY_PARENT_PID" in environment or "matplotlib_inline" in environment.get("MPLBACKEND", "")

"""Printing a command's output: rich tables and plain lines, for terminals and pipes."""

import sys
from collections.abc import Iterable
from typing import TYPE_CHECKING

from runmanager.app.display.error_line import print_error
from runmanager.text import fitted, printable, wrapped

if TYPE_CHECKING:
    from rich.console import Console, RenderableType

__all__ = ["console", "print_error", "print_text", "print_warning", "render", "warn_damaged", "wrap_lines"]


def console() -> "Console":
    """Return a console on stdout; in a pipe nothing is cut."""
    from rich.console import Console

    from runmanager.app.display.output_console import width_of_output

    return Console(highlight=False, width=width_of_output())


def render(target: "Console", renderable: "RenderableType", *lines: str) -> str:
    """Return `renderable`, and `lines` below it, as text for the console `target`."""
    with target.capture() as capture:
        target.print(renderable, crop=False)
        if lines:
            target.print()
        for line in lines:
            target.print(wrapped(printable(line), target.width), markup=False, soft_wrap=True)
    return capture.get()


def wrap_lines(*lines: str, indent: int = 0) -> str:
    """Join `lines`, each wrapped at words to the width of the terminal, less an `indent`; unwrapped in a pipe."""
    return "\n".join(fitted(line, sys.stdout, indent=indent) for line in lines)


def print_text(text: str) -> None:
    """Write to stdout."""
    sys.stdout.write(text)
    sys.stdout.flush()


def warn_damaged(damaged: Iterable[str]) -> None:
    """Print a warning for each unreadable file, as its rows are missing from the output."""
    for message in damaged:
        print_warning(f"not read: {message}")


def print_warning(line: str) -> None:
    """Print a warning on stderr."""
    print(fitted(f"warning: {printable(line)}", sys.stderr), file=sys.stderr)

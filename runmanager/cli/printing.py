"""Printing a command's output: rich tables and plain lines, for terminals and pipes."""

import sys
from collections.abc import Iterable
from typing import TYPE_CHECKING

from runmanager.app.display.error_line import print_error
from runmanager.records.host.standard_streams import print_line
from runmanager.text import fitted, printable, printable_json, printable_line, wrapped

if TYPE_CHECKING:
    from rich.console import Console, RenderableType

__all__ = [
    "console",
    "print_error",
    "print_exact",
    "print_json",
    "print_rendered",
    "print_text",
    "print_warning",
    "warn_damaged",
    "wrap_lines",
]


def console() -> "Console":
    """Return a console on stdout; in a pipe nothing is cut."""
    from runmanager.app.display.output_console import TextConsole, width_of_output

    return TextConsole(width=width_of_output())


def print_rendered(target: "Console", renderable: "RenderableType", *lines: str) -> None:
    """Print `renderable`, and `lines` below it, on the console `target`."""
    with target.capture() as capture:  # written at once, as by the other functions
        target.print(renderable, crop=False)
        if lines:
            target.print()
        for line in lines:
            target.print(wrapped(printable_line(line), target.width), soft_wrap=True)
    _write(capture.get())


def wrap_lines(*lines: str, indent: int = 0) -> str:
    """Join `lines`, each wrapped at words to the width of the terminal, less an `indent`; unwrapped in a pipe."""
    return "\n".join(fitted(printable_line(line), sys.stdout, indent=indent) for line in lines)


def print_text(text: str) -> None:
    """Write a text for people to stdout."""
    _write(printable(text))


def print_json(text: str) -> None:
    """Write JSON to stdout, what no terminal should get by its escapes."""
    _write(printable_json(text))


def print_exact(text: str) -> None:
    """Write a text for a program to stdout; a terminal gets it as a text for people."""
    _write(printable(text) if sys.stdout.isatty() else text)


def _write(text: str) -> None:
    sys.stdout.write(text)
    sys.stdout.flush()


def warn_damaged(damaged: Iterable[str]) -> None:
    """Print a warning for each unreadable file, as its rows are missing from the output."""
    for message in damaged:
        print_warning(f"not read: {message}")


def print_warning(line: str) -> None:
    """Print a warning on stderr."""
    print_line(f"warning: {printable_line(line)}", sys.stderr)

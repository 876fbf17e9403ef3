"""Printing what a command found: rich tables and plain lines, for people and for pipes."""

import functools
import shutil
import sys
import textwrap
from collections.abc import Iterable
from typing import TYPE_CHECKING

from runmanager.text import printable

if TYPE_CHECKING:
    from rich.console import Console, RenderableType

__all__ = ["console", "print_error", "print_text", "print_warning", "render", "warn_damaged", "wrap_lines"]


def console() -> "Console":
    """The terminal, or the pipe in its place."""
    from rich.console import Console

    return Console(highlight=False)


def render(where: "Console", shown: "RenderableType", *lines: str) -> str:
    """`shown` as text for that console, and `lines` below it."""
    with where.capture() as capture:
        where.print(shown)
        if lines:
            where.print()
        for line in lines:
            where.print(printable(line), markup=False)
    return capture.get()


def wrap_lines(*lines: str) -> str:
    """Sentences, each broken between words where it is too long for the terminal; a pipe gets a line a line."""
    if not sys.stdout.isatty():
        return "\n".join(lines)
    width = shutil.get_terminal_size().columns
    wrap = functools.partial(textwrap.fill, width=width, break_long_words=False, break_on_hyphens=False)
    return "\n".join(map(wrap, lines))


def print_text(text: str) -> None:
    """Write to stdout."""
    sys.stdout.write(text)
    sys.stdout.flush()


def warn_damaged(damaged: Iterable[str]) -> None:
    """Say on stderr what the tables for people say in a note: rows that are missing from the output."""
    for message in damaged:
        print_warning(f"not read: {message}")


def print_warning(line: str) -> None:
    """Say on stderr what is no part of the output."""
    print(f"warning: {printable(line)}", file=sys.stderr)


def print_error(line: str) -> None:
    """Say on stderr why the command did not do what it was asked."""
    print(f"error: {printable(line)}", file=sys.stderr)

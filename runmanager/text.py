"""Text for people: values and commands as they are typed, bounded lines, and nothing that steers a terminal."""

import json
import re
import shlex
from collections.abc import Sequence
from typing import Any

__all__ = [
    "MAX_LINE",
    "encodable",
    "error_line",
    "first_line",
    "format_value",
    "full_command",
    "in_backticks",
    "pluralize",
    "printable",
    "shell_command",
    "truncated",
]


def format_value(value: Any) -> str:
    """A setting's value in the words of a command: `null`, `true`, `false` where Python has others; lists as JSON."""
    if value is None:
        return "null"
    if isinstance(value, bool):
        return "true" if value else "false"
    return json.dumps(value) if isinstance(value, list | dict) else str(value)


def pluralize(count: int, one: str, several: str | None = None) -> str:
    """`1 run`, `1,200 runs`; `several` where it is more than an s: `pluralize(2, "run was", "runs were")`."""
    return f"{count:,} {one if count == 1 else several or f'{one}s'}"


def full_command(stored: Sequence[str]) -> tuple[str, ...]:
    """The words of a stored command as they were given: Python leaves itself out of what it tells a script."""
    program = ("python",) if stored and stored[0].endswith(".py") else ()
    return (*program, *stored)


def shell_command(stored: Sequence[str]) -> str:
    """A stored command as it is typed into a shell."""
    return shlex.join(full_command(stored))


def in_backticks(text: str) -> str:
    """Text that a sentence sets apart, as Markdown has it: within more backticks than it has itself in a row."""
    fence = "`" * (1 + max(map(len, re.findall("`+", text)), default=0))
    apart = " " if text.startswith("`") or text.endswith("`") else ""
    return f"{fence}{apart}{text}{apart}{fence}"


# Control characters but for tab and line feed; the marks that turn the direction of writing, by which a text can look
# like another; halves of a character, as of a name that is no UTF-8, which no terminal can be sent.
_STEERING = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u200e\u200f\u2028-\u202e\u2066-\u2069\ud800-\udfff]")


def printable(text: str) -> str:
    r"""The text with each such character as its escape in Python, as `\x1b`; `\r\n` is the end of a line."""
    return _STEERING.sub(_escape, text.replace("\r\n", "\n"))


def _escape(found: re.Match[str]) -> str:
    return found[0].encode("unicode_escape", "surrogatepass").decode()


MAX_LINE = 1000
"""Characters of a line that a record keeps, at most."""


def truncated(line: str) -> str:
    """The line, cut where it is longer than any can be, as one that quotes an error with its data in it."""
    if len(line) <= MAX_LINE:
        return line
    tail = f"… (cut: {len(line):,} characters)"
    return line[: MAX_LINE - len(tail)] + tail


def encodable(text: str) -> str:
    """A text that a file can hold: Python's own of files with odd names have characters that no encoding knows."""
    return text.encode(errors="backslashreplace").decode()


def first_line(text: str) -> str:
    """The first line that says anything, however long; empty where none does."""
    return next((line.strip() for line in encodable(text).splitlines() if line.strip()), "")


def error_line(error: BaseException) -> str:
    """An exception in a line, however long: `ValueError: lr must be above 0`; its kind alone where it says nothing."""
    try:
        said = first_line(str(error))
    except Exception:  # somebody's own may fail in saying what it is
        said = ""
    return f"{type(error).__name__}: {said}" if said else type(error).__name__

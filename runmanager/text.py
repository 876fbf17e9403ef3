"""Text for people: values and commands as they are typed, bounded lines, no terminal control characters."""

import json
import re
import shlex
import shutil
import textwrap
import unicodedata
from collections.abc import Sequence
from typing import Any, TextIO

__all__ = [
    "MAX_LINE",
    "encodable",
    "error_line",
    "first_line",
    "fitted",
    "format_value",
    "full_command",
    "full_message",
    "hidden_character",
    "in_backticks",
    "message_line",
    "pluralize",
    "printable",
    "shell_command",
    "truncated",
    "wrapped",
]


def format_value(value: Any) -> str:
    """Format a setting's value as on the command line: `null`, `true`, `false`, and lists and mappings as JSON."""
    if value is None:
        return "null"
    if isinstance(value, bool):
        return "true" if value else "false"
    return json.dumps(value) if isinstance(value, list | dict) else str(value)


def pluralize(count: int, one: str, several: str | None = None) -> str:
    """Format a count with its noun: `1 run`, `1,200 runs`; `pluralize(2, "run was", "runs were")` for other plurals."""
    return f"{count:,} {one if count == 1 else several or f'{one}s'}"


_APPLICATION = ("python", "-m", "runmanager")
_OF_GRIDS, _OF_RUNS = ("-m", "--multirun"), ("-r", "--run")
_DEMO = ("experiment=digits_quick", "name=", "output_root=", "--yes")
_SIDES = "hydra.sweeper.sides="
_OF_DUELS = ("measure=paired", "output_root=outputs", "epochs=1")


def full_command(stored: Sequence[str]) -> tuple[str, ...]:
    """Return the words of a stored command as they were typed: `sys.argv` lacks the `python` before a script."""
    program = ("python",) if stored and stored[0].endswith(".py") else ()
    return (*program, *stored)


def shell_command(stored: Sequence[str]) -> str:
    """Format a stored command as it is typed into a shell.

    The built-in job is recorded as its Hydra application, `python -m runmanager`, and typed as `runmanager sweep`,
    `runmanager run`, `runmanager demo` or `runmanager duel`. Without settings the first two only print their help.
    """
    words = stored[len(_APPLICATION) :]
    settings = [word for word in words if word not in (*_OF_GRIDS, *_OF_RUNS)]
    if tuple(stored[: len(_APPLICATION)]) != _APPLICATION or not settings:
        return shlex.join(full_command(stored))
    return shlex.join(["runmanager", *(_as_demo(settings) or _as_duel(settings) or _as_sweep(words, settings))])


def _as_sweep(words: Sequence[str], settings: Sequence[str]) -> list[str]:
    return ["sweep" if any(word in _OF_GRIDS for word in words) else "run", *settings]


def _as_demo(settings: Sequence[str]) -> list[str]:
    """The words of a demo, which begin as this command makes them; empty for any other."""
    if len(settings) < len(_DEMO) or not all(map(str.startswith, settings, _DEMO)):
        return []
    return ["demo", *(word for word in (*settings[1:3], *settings[4:]) if word != "output_root=outputs")]


def _as_duel(settings: Sequence[str]) -> list[str]:
    """The words of a duel without what this command adds: the two sides, then what both have; empty for no duel."""
    quoted = next((word.removeprefix(_SIDES) for word in settings if word.startswith(_SIDES)), "")
    sides = [re.sub(r"\\(.)", r"\1", side) for side in re.findall(r'"((?:[^"\\]|\\.)*)"', quoted)]
    others = [word for word in settings if word not in _OF_DUELS and not word.startswith(_SIDES)]
    return ["duel", *sides, *others] if sides else []


def in_backticks(text: str) -> str:
    """Quote text as Markdown code: between more backticks than it has in a row itself."""
    fence = "`" * (1 + max(map(len, re.findall("`+", text)), default=0))
    apart = " " if text.startswith("`") or text.endswith("`") else ""
    return f"{fence}{apart}{text}{apart}{fence}"


def wrapped(text: str, width: int) -> str:
    """Break a text into lines of `width` at spaces, and nowhere in a command between backticks, so it can be copied."""
    commands = re.sub(r"`[^`\n]*`", lambda found: found[0].replace(" ", _NO_BREAK), text)
    parts = (
        textwrap.fill(line, width, break_long_words=False, break_on_hyphens=False, subsequent_indent=_indent(line))
        for line in commands.split("\n")
    )
    return "\n".join(parts).replace(_NO_BREAK, " ")


def fitted(text: str, stream: TextIO | None, *, indent: int = 0) -> str:
    """Break a text into lines as wide as the terminal that `stream` is, less an `indent`; unchanged in a pipe."""
    if stream is None or not stream.isatty():
        return text
    return wrapped(text, max(shutil.get_terminal_size().columns - indent, _MIN_WIDTH))


def _indent(line: str) -> str:
    return line[: len(line) - len(line.lstrip(" "))]


_MIN_WIDTH = 20
_NO_BREAK = "\x00"  # stands for a space; no printable text contains it

# Control characters but for tab and line feed; bidirectional marks, with which a text can look like another one; lone
# surrogates (from names that are not UTF-8), which no terminal can be sent.
_UNPRINTABLE = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u200e\u200f\u2028-\u202e\u2066-\u2069\ud800-\udfff]")


def printable(text: str) -> str:
    r"""Replace characters that a terminal would obey by their Python escapes, like `\x1b`; `\r\n` becomes `\n`."""
    return _UNPRINTABLE.sub(_escape, text.replace("\r\n", "\n"))


def _escape(found: re.Match[str]) -> str:
    return found[0].encode("unicode_escape", "surrogatepass").decode()


def hidden_character(text: str) -> str:
    """Name the first character that is not to be seen or ends a line, and its place; empty without one."""
    for place, character in enumerate(text, start=1):
        if not character.isprintable():
            name = unicodedata.name(character, "")
            return f"U+{ord(character):04X}{name and f' ({name})'} as character {place}"
    return ""


MAX_LINE = 1000
"""Maximum length of a line in a record, in characters."""


def truncated(line: str) -> str:
    """Cut a line to `MAX_LINE` characters; an error message that quotes its data may be far longer."""
    if len(line) <= MAX_LINE:
        return line
    tail = f"… (cut: {len(line):,} characters)"
    return line[: MAX_LINE - len(tail)] + tail


def encodable(text: str) -> str:
    """Escape what UTF-8 cannot encode: Python's names of files that are not UTF-8 have lone surrogates."""
    return text.encode(errors="backslashreplace").decode()


def first_line(text: str) -> str:
    """Return the first line that is not blank, stripped; empty if there is none."""
    return next((line.strip() for line in encodable(text).splitlines() if line.strip()), "")


def error_line(error: BaseException) -> str:
    """Format an exception in one line, of any length: `ValueError: lr must be above 0`; the type alone if empty."""
    message = _message(error)
    return f"{type(error).__name__}: {message}" if message else type(error).__name__


def message_line(error: BaseException) -> str:
    """Format the message of an exception in one line, of any length; its type if it has none."""
    return _message(error) or type(error).__name__


def _message(error: BaseException) -> str:
    return first_line(full_message(error))


def full_message(error: BaseException) -> str:
    """Return the message of an exception, of any number of lines; empty if a custom `__str__` fails."""
    try:
        return str(error)
    except Exception:
        return ""

"""Settings and commands as people read and type them, wherever they are said: `null`, `true`, `[32, 16]`."""

import json
import re
import shlex
from collections.abc import Sequence
from typing import Any

__all__ = ["counted", "in_backticks", "spoken", "typed", "whole_command"]


def spoken(value: Any) -> str:
    """A setting's value in the words of a command: `null`, `true`, `false` where Python has others; lists as JSON."""
    if value is None:
        return "null"
    if isinstance(value, bool):
        return "true" if value else "false"
    return json.dumps(value) if isinstance(value, list | dict) else str(value)


def counted(count: int, one: str, several: str | None = None) -> str:
    """`1 run`, `1,200 runs`; `several` where it is more than an s: `counted(2, "run was", "runs were")`."""
    return f"{count:,} {one if count == 1 else several or f'{one}s'}"


def whole_command(stored: Sequence[str]) -> tuple[str, ...]:
    """The words of a stored command as they were given: Python leaves itself out of what it tells a script."""
    program = ("python",) if stored and stored[0].endswith(".py") else ()
    return (*program, *stored)


def typed(stored: Sequence[str]) -> str:
    """A stored command as it is typed into a shell."""
    return shlex.join(whole_command(stored))


def in_backticks(text: str) -> str:
    """Text that a sentence sets apart, as Markdown has it: within more backticks than it has itself in a row."""
    fence = "`" * (1 + max(map(len, re.findall("`+", text)), default=0))
    apart = " " if text.startswith("`") or text.endswith("`") else ""
    return f"{fence}{apart}{text}{apart}{fence}"

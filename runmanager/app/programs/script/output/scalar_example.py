"""An example of `--scalar` that reads a number which a script has printed."""

import os
import re
from pathlib import Path

from runmanager.app.programs.script.output.scalar_pattern import parse_scalars
from runmanager.errors import ConfigurationError
from runmanager.records.run.metric_direction import prefers_larger
from runmanager.text import shell_quote

__all__ = ["scalar_example"]

_LOG_BYTES = 2**16
_NUMBER = r"[-+]?(?:\d+\.?\d*|\.\d+)(?:[eE][-+]?\d+)?"
# A name begins where a word does: else a long line without spaces would be searched from each of its letters.
_SERIES = re.compile(
    r"(?<![\w./])(?P<name>[A-Za-z][\w./]*(?: [A-Za-z][\w./]*){0,3})(?P<sign>\s*[:=]\s*|\s+)"
    rf"(?P<value>{_NUMBER})(?![\w.])"
)
_GROUP = r"([-+.\deE]+)"


def scalar_example(log: Path) -> str:
    """Return `--scalar NAME=REGEX`, as it is typed, for the last named number in a log; empty if there is none.

    A name that tells whether larger values are better comes before others of its line.
    """
    try:
        with log.open("rb") as file:
            file.seek(max(0, file.seek(0, os.SEEK_END) - _LOG_BYTES))
            text = file.read(_LOG_BYTES).decode("utf-8", errors="replace")
    except OSError:
        return ""
    for line in reversed(text.splitlines()):
        found = list(_SERIES.finditer(line))
        for each in sorted(found, key=lambda each: prefers_larger(each["name"]) is None):
            if (prefers_larger(each["name"]) is not None or each["sign"].strip()) and (example := _example(each)):
                return example
    return ""


def _example(found: re.Match[str]) -> str:
    """The option for one number; empty if no expression finds it alone in its line."""
    name, sign = found["name"], found["sign"]
    words = f"{name}{sign}".replace(".", r"\.")
    for expression in (f"{words}{_GROUP}", rf"\b{words}{_GROUP}"):
        option = f"{name.replace(' ', '_')}={expression}"
        try:
            (pattern,) = parse_scalars([option])
        except ConfigurationError:
            continue  # what was printed is no part of an expression
        if list(pattern.values(found.string)) == [float(found["value"])]:
            return f"--scalar {shell_quote(option)}"
    return ""

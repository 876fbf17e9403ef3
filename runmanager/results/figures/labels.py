"""The words in a figure, in lines that leave room for what they stand beside."""

import re
import textwrap
from collections.abc import Sequence
from typing import Any, TypeVar

from runmanager.text import printable

__all__ = [
    "evenly",
    "few_of",
    "listed",
    "name_lines",
    "numbered",
    "plain",
    "shortened",
    "some_of",
    "wrapped",
]

_T = TypeVar("_T")

_LINE_CHARACTERS = 30  # less than half the width
_LABEL_CHARACTERS = 150


def plain(text: str) -> str:
    """Text of bounded length, for a figure: what would steer it is written out.

    A label that begins with an underscore would be hidden by matplotlib, so a space goes before it.
    """
    kept = shortened(printable(text).replace("\n", " "), _LABEL_CHARACTERS)
    return f" {kept}" if kept.startswith("_") else kept


def shortened(text: str, characters: int) -> str:
    """A text whose middle gives way where it is too long: names differ at their ends."""
    if len(text) <= characters:
        return text
    half = characters // 2
    return f"{text[:half]}…{text[half - characters + 1 :]}"


def wrapped(text: str, characters: int = _LINE_CHARACTERS) -> str:
    """A label in lines."""
    lines = textwrap.wrap(plain(text), characters, break_on_hyphens=False, drop_whitespace=False)
    return "\n".join(line.rstrip() for line in lines)  # a space at a line's end would set it off to the right


def name_lines(name: str, characters: int) -> str:
    """A name in lines that break after its dots and underscores."""
    lines = [""]
    for part in re.findall("[^._]+[._]*|[._]+", plain(name)):
        if lines[-1] and len(lines[-1] + part) > characters:
            lines.append("")
        lines[-1] += shortened(part, characters)
    return "\n".join(lines)


def few_of(count: int, most: int, which: str, how: str = "shown") -> str:
    """` (the 24 fastest of 45 shown)`; nothing where all are."""
    return f" (the {most} {which} of {count} {how})" if count > most else ""


def some_of(count: int, most: int, along: str = "") -> str:
    """` (24 of 80, at even steps)`; nothing where all are shown."""
    return f" ({most} of {count}, at even steps{along})" if count > most else ""


def evenly(ordered: Sequence[_T], most: int) -> Sequence[_T]:
    """At most so many, at even steps from the first to the last."""
    if len(ordered) <= most:
        return ordered
    return [ordered[round(at * (len(ordered) - 1) / (most - 1))] for at in range(most)]


def listed(names: Sequence[str]) -> str:
    """`lr, model and seed`."""
    return " and ".join([", ".join(names[:-1]), names[-1]] if len(names) > 1 else names)


def numbered(name: str, figures: Sequence[Any]) -> list[str]:
    """Names for several figures of one kind: `rounds`, `rounds-2`, `rounds-3`."""
    return [name if at == 1 else f"{name}-{at}" for at in range(1, len(figures) + 1)]

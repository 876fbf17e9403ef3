"""The words in a figure: what tells a row from the others, in lines that leave room for what they stand beside."""

import textwrap
import unicodedata
from collections.abc import Collection, Mapping, Sequence
from typing import Any

from runmanager.results.columns import Table
from runmanager.results.formats import human

__all__ = ["extra_inches", "few_of", "number", "numbered", "plain", "row_label", "wrapped"]

_LINE_CHARACTERS = 30  # less than half the width
_LABEL_CHARACTERS = 150
_LINE_INCHES = 0.16


def row_label(row: Mapping[str, Any], table: Table, *, without: Collection[str] = ()) -> str:
    """The settings that tell a row of a table from the others; its run's name, where none does."""
    names = [name for name in table.settings if name in table.shown and name not in without]
    return ", ".join(f"{name}={human(row[name])}" for name in names if row[name] is not None) or str(row.get("run", ""))


def plain(text: str) -> str:
    """Text that any figure can hold: without control characters, which no XML may have, and of bounded length.

    A label that begins with an underscore would be hidden by matplotlib, so a space goes before it.
    """
    kept = "".join("\N{REPLACEMENT CHARACTER}" if unicodedata.category(each) in ("Cc", "Cs") else each for each in text)
    if len(kept) > _LABEL_CHARACTERS:
        half = _LABEL_CHARACTERS // 2
        kept = f"{kept[:half]}…{kept[-half:]}"
    return f" {kept}" if kept.startswith("_") else kept


def wrapped(text: str, characters: int = _LINE_CHARACTERS) -> str:
    """A label in lines."""
    return textwrap.fill(plain(text), characters, break_on_hyphens=False, drop_whitespace=False)


def extra_inches(labels: Sequence[str]) -> float:
    """What the longest label is higher than a line."""
    return _LINE_INCHES * max((label.count("\n") for label in labels), default=0)


def few_of(count: int, most: int, which: str, how: str = "shown") -> str:
    """` (the 40 fastest of 45 shown)`; nothing where all are."""
    return f" (the {most} {which} of {count} {how})" if count > most else ""


def number(value: float) -> str:
    """Three digits, for a description."""
    rounded = float(f"{value:.3g}")
    return f"{rounded:,.0f}" if abs(rounded) >= 100 else f"{rounded:g}"


def numbered(name: str, figures: Sequence[Any]) -> list[str]:
    """Names for several figures of one kind: `rounds`, `rounds-2`, `rounds-3`."""
    return [name if at == 1 else f"{name}-{at}" for at in range(1, len(figures) + 1)]

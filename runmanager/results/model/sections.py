"""An account of something in titled sections of named values, as aligned text for people."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from runmanager.text import printable

__all__ = ["Section", "format_sections"]


@dataclass(frozen=True)
class Section:
    """A title over rows of fields, the first of which names the row; `headings` stand over the fields.

    `lines` are shown as they are, below the rows.
    """

    title: str
    rows: Sequence[Sequence[str]] = ()
    headings: Sequence[str] = ()
    lines: Sequence[str] = ()


def format_sections(first: str, sections: Iterable[Section]) -> str:
    """The account: its first line, then every section that has anything in it; nothing in it steers a terminal."""
    parts = [printable(first), *(_section_text(section) for section in sections if section.rows or section.lines)]
    return "\n\n".join(parts) + "\n"


def _section_text(section: Section) -> str:
    given = [section.headings, *section.rows] if section.headings else section.rows
    rows = [[printable(field) for field in row] for row in given]
    count = max(map(len, rows), default=0)
    widths = [max(len(row[at]) if at < len(row) else 0 for row in rows) for at in range(count)]
    lines = ["  " + "  ".join(field.ljust(width) for field, width in zip(row, widths, strict=False)) for row in rows]
    return "\n".join(
        [section.title, *(line.rstrip() for line in lines), *(f"  {printable(line)}" for line in section.lines)]
    )

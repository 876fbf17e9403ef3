"""Titled sections of named values, as aligned text for people."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from runmanager.text import padded, printable, printable_line, text_width

__all__ = ["Section", "format_sections"]


@dataclass(frozen=True)
class Section:
    """A title over rows of fields, with the name of the row first; `headings` are those of the fields.

    `lines` follow the rows unchanged.
    """

    title: str
    rows: Sequence[Sequence[str]] = ()
    headings: Sequence[str] = ()
    lines: Sequence[str] = ()


def format_sections(first_line: str, sections: Iterable[Section]) -> str:
    """Join the first line and all non-empty sections into text without control characters."""
    parts = [printable(first_line), *(_section_text(section) for section in sections if section.rows or section.lines)]
    return "\n\n".join(parts) + "\n"


def _section_text(section: Section) -> str:
    lines_of_fields = [section.headings, *section.rows] if section.headings else section.rows
    rows = [[printable_line(field) for field in row] for row in lines_of_fields]
    count = max(map(len, rows), default=0)
    widths = [max(text_width(row[index]) if index < len(row) else 0 for row in rows) for index in range(count)]
    lines = ["  " + "  ".join(padded(field, width) for field, width in zip(row, widths, strict=False)) for row in rows]
    return "\n".join(
        [
            printable_line(section.title),
            *(line.rstrip() for line in lines),
            *(f"  {printable_line(line.expandtabs())}" for line in section.lines),
        ]
    )

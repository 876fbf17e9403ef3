"""The formats of tables that commands print: text for the terminal, and CSV, JSON, Markdown, LaTeX and HTML."""

import sys
from enum import StrEnum
from typing import TYPE_CHECKING

from runmanager.cli.printing import print_exact, print_json, print_text

if TYPE_CHECKING:
    from runmanager.results.table_model.columns import Table

__all__ = ["DATA_FORMATS", "TableFormat", "max_text_rows", "print_table"]

_MAX_TERMINAL_ROWS = 50


def max_text_rows(*, show_all: bool) -> int | None:
    """Return how many rows of a table are printed, None for all: those to a file or a pipe are whole."""
    return None if show_all or not sys.stdout.isatty() else _MAX_TERMINAL_ROWS


class TableFormat(StrEnum):
    """Output formats of tables."""

    TEXT = "text"
    CSV = "csv"
    JSON = "json"
    MARKDOWN = "markdown"
    LATEX = "latex"
    HTML = "html"


DATA_FORMATS = (TableFormat.CSV, TableFormat.JSON)
"""Formats that hold rows only: notes and warnings go to stderr."""


def print_table(table: "Table", format_: TableFormat, *, title: str) -> None:
    """Print `table` as a file of the given format contains it."""
    from runmanager.results.tables import text_formats as writers

    match format_:
        case TableFormat.CSV:
            print_exact(writers.to_csv(table))
        case TableFormat.JSON:
            print_json(writers.to_json(table))
        case TableFormat.LATEX:
            print_text(writers.to_latex(table))
        case TableFormat.HTML:
            from runmanager.results.report.html_table import to_html

            print_exact(to_html(table, title=title))
        case _:
            print_text(writers.to_markdown(table))

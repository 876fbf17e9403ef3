"""Printing a command's output: rich tables and plain lines, for terminals and pipes, in each format of tables."""

import sys
from collections.abc import Iterable
from enum import StrEnum
from typing import TYPE_CHECKING, Any

from runmanager.records.host.standard_streams import print_line
from runmanager.text import fitted, printable, printable_json, printable_line, wrapped

if TYPE_CHECKING:
    from rich.console import Console, RenderableType

    from runmanager.results.table_model.columns import Table


def console() -> "Console":
    """Return a console on stdout; in a pipe nothing is cut."""
    from runmanager.app.display.output import TextConsole, width_of_output

    return TextConsole(width=width_of_output())


def print_rendered(target: "Console", renderable: "RenderableType", *lines: str) -> None:
    """Print `renderable`, and `lines` below it, on the console `target`."""
    with target.capture() as capture:  # written at once, as by the other functions
        target.print(renderable, crop=False)
        if lines:
            target.print()
        for line in lines:
            target.print(wrapped(printable_line(line), target.width), soft_wrap=True)
    _write(capture.get())


def wrap_lines(*lines: str, indent: int = 0) -> str:
    """Join `lines`, each wrapped at words to the width of the terminal, less an `indent`; unwrapped in a pipe."""
    return "\n".join(fitted(printable_line(line), sys.stdout, indent=indent) for line in lines)


def print_text(text: str) -> None:
    """Write a text for people to stdout."""
    _write(printable(text))


def print_json(text: str) -> None:
    """Write JSON to stdout, what no terminal should get by its escapes."""
    _write(printable_json(text))


def print_document(value: Any) -> None:
    """Write a value as JSON to stdout, one name a line."""
    import msgspec

    print_json(msgspec.json.format(msgspec.json.encode(value), indent=2).decode() + "\n")


def print_exact(text: str) -> None:
    """Write a text for a program to stdout; a terminal gets it as a text for people."""
    _write(printable(text) if sys.stdout.isatty() else text)


def _write(text: str) -> None:
    sys.stdout.write(text)
    sys.stdout.flush()


def warn_damaged(damaged: Iterable[str]) -> None:
    """Print a warning for each unreadable file, as its rows are missing from the output."""
    for message in damaged:
        print_warning(f"not read: {message}")


def print_warning(line: str) -> None:
    """Print a warning on stderr."""
    print_line(f"warning: {printable_line(line)}", sys.stderr)


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

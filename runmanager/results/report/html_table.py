"""Tables for HTML pages: rounded fields with their exact values, and the CSV lines of every row."""

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from runmanager.results.table_model.columns import Row, Table
from runmanager.results.table_model.formatting import human_columns, human_field, is_number
from runmanager.results.table_model.headings import heading, in_words
from runmanager.results.tables.sorting import OMITTED_FROM_RESULTS, omission_order
from runmanager.results.tables.text_formats import csv_fields, csv_text
from runmanager.text import printable_line

if TYPE_CHECKING:
    from markupsafe import Markup

__all__ = ["HtmlRow", "HtmlTable", "build_html_table"]

_REASON = "reason"
_COLOURED_COLUMNS = ("status", "verdict")
_WORST_FIRST = (
    *("failed", "crashed", "killed", "skipped", "running", "pending", "finished"),
    *("faster", "inconclusive"),
)
_LONG_TEXT = 60  # characters; longer fields get a wide column


@dataclass(frozen=True)
class HtmlRow:
    """The `<td>` elements of a row, and its lines of CSV: one for each run that it stands for.

    `runs` are the places of the row's runs in the page's data, separated by spaces; None if no figure selects the row.

    The page sorts and filters by an element's `data-value` if it has one, else by its text: a number in full precision,
    empty for a missing value. The elements are made here because a template takes several times as long.
    """

    fields: "Markup"
    csv: str
    runs: str | None = None


@dataclass(frozen=True)
class HtmlTable:
    """What `table.html` shows of a table.

    `file` is the name of the downloaded CSV, `headings` are the names of the columns in words, `numeric` are the
    right-aligned columns, `spare` the places of those that a narrow page may hide, in this order, and `example` is a
    filter that some rows match.
    """

    title: str
    file: str
    columns: Sequence[str]
    headings: Sequence[str]
    numeric: frozenset[str]
    spare: Sequence[int]
    example: str
    csv_header: str
    rows: Sequence[HtmlRow]
    legend: str
    notes: Sequence[str]


def build_html_table(
    table: Table,
    *,
    title: str,
    link: Callable[[Row], str | None] | None = None,
    file: str,
    whole: Table | None = None,
    of_row: Mapping[str, Sequence[Row]] | None = None,
    runs: Sequence[Sequence[int]] | None = None,
) -> HtmlTable:
    """Prepare `table` for a page; the copied CSV has the columns of the `whole` table, by default of `table` itself.
    `link` returns the address that the first field of a row leads to, if any.

    `of_row` maps the `run` of a row to the rows of the whole table that it stands for, by default the row itself.
    `runs` has for each row the places of its runs in the page's data.
    """
    from markupsafe import Markup

    columns = human_columns(table)
    numeric = frozenset(name for name in columns if is_number(table, name))
    exported = (whole or table).columns
    fields = [_field_writer(table, name, is_numeric=name in numeric) for name in columns]
    if link is not None:
        fields[0] = _linked_field_writer(table, columns[0], link)
    rows = [
        HtmlRow(
            Markup("".join([field(row) for field in fields])),  # noqa: S704  # of escaped fields
            _csv(exported, [row] if of_row is None else of_row[row["run"]]),
            None if runs is None else " ".join(map(str, runs[number])),
        )
        for number, row in enumerate(table.rows)
    ]
    return HtmlTable(
        title=title,
        file=file,
        columns=columns,
        headings=[printable_line(heading(name, table)) for name in columns],
        numeric=numeric,
        spare=_spare(table, columns),
        example=_example(table, next((name for name in columns if name in numeric), None)),
        csv_header=csv_text([exported]),
        rows=rows,
        legend=in_words(table.legend),
        notes=[in_words(note) for note in table.notes],
    )


def _spare(table: Table, columns: Sequence[str]) -> list[int]:
    """The places of the columns that a narrow page may hide, in this order; the first one and reasons stay."""
    order = dict.fromkeys(name for names in (*omission_order(table), OMITTED_FROM_RESULTS) for name in names)
    return [columns.index(name) for name in order if name in columns[1:] and name != _REASON]


def _field_writer(table: Table, column: str, *, is_numeric: bool) -> Callable[[Row], str]:
    """A function that writes the `<td>` element of a row in this column."""
    from markupsafe import escape

    def write(row: Row) -> str:
        text, exact = human_field(table, row, column), _exact_value(row[column])
        if column == _REASON:
            text, exact = in_words(text), row[column]
        if column in _COLOURED_COLUMNS:
            kind = f"word {_colour_class(text)}"
        else:
            kind = "text" if len(text) > _LONG_TEXT else "number" if is_numeric else ""
        class_ = f' class="{kind}"' if kind else ""
        data = "" if exact is None or exact == text else f' data-value="{escape(exact)}"'
        return f"<td{class_}{data}>{escape(text)}</td>"

    return write


def _linked_field_writer(table: Table, column: str, link: Callable[[Row], str | None]) -> Callable[[Row], str]:
    """A function that writes the `<td>` element of a row in this column of texts, as a link."""
    from markupsafe import escape

    def write(row: Row) -> str:
        text, address = escape(human_field(table, row, column)), link(row)
        linked = text if address is None else f'<a href="{escape(address)}">{text}</a>'
        return f"<td>{linked}</td>"

    return write


def _colour_class(text: str) -> str:
    """The status or verdict that gives a field its colour; the worst one if there are several, as for seeds."""
    return next((word for word in _WORST_FIRST if word in text), "")


def _exact_value(value: Any) -> str | None:
    """A number in JavaScript's notation, an empty string for a missing value, None for a text."""
    if value is None or value == "":
        return ""
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    if isinstance(value, int):
        return str(value)
    return "" if math.isnan(value) else repr(float(value)).replace("inf", "Infinity")


def _example(table: Table, column: str | None) -> str:
    known = (value for row in table.rows if column is not None and (value := _exact_value(row[column])))
    value = next(known, None)
    return "" if value is None else f"{column}>={value}"


def _csv(columns: Sequence[str], rows: Iterable[Row]) -> str:
    return csv_text(csv_fields(row, columns) for row in rows)

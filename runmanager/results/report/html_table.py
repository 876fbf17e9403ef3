"""A table as a page shows it: every field for people beside its whole value, every row with its lines of CSV."""

import csv
import io
import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from runmanager.results.model.columns import Table
from runmanager.results.model.formatting import human_columns, human_field, is_number
from runmanager.results.tables.writers import csv_fields

if TYPE_CHECKING:
    from markupsafe import Markup

__all__ = ["HtmlRow", "HtmlTable", "build_html_table"]

_COLOURED = ("status", "verdict")
_WORST_FIRST = (
    *("failed", "crashed", "killed", "skipped", "running", "pending", "finished"),
    *("faster", "inconclusive"),
)
_LONG = 60  # characters that want a wide column

Row = Mapping[str, Any]


@dataclass(frozen=True)
class HtmlRow:
    """A row's `<td>` elements, and the lines that it is in a file: of several runs where it stands for several.

    An element's `data-value` is what it is sorted and asked by where that is not its text: a number in full precision,
    empty for a missing value. Made here and not by the template, which takes several times as long for a large table.
    """

    fields: "Markup"
    csv: str


@dataclass(frozen=True)
class HtmlTable:
    """A table with its name for people and the name of its file.

    `numeric` are the columns to be set flush right, `example` is a condition that some rows fulfil.
    """

    title: str
    file: str
    columns: Sequence[str]
    numeric: frozenset[str]
    example: str
    csv_header: str
    rows: Sequence[HtmlRow]
    legend: str
    notes: Sequence[str]


def build_html_table(
    table: Table,
    *,
    title: str,
    file: str,
    whole: Table | None = None,
    of_row: Mapping[str, Sequence[Row]] | None = None,
) -> HtmlTable:
    """`table` for a page. What is copied from it has the columns of the `whole` table, by default of itself.

    `of_row` has the rows of the whole table that a row stands for, by its `run`; without it that is the row itself.
    """
    from markupsafe import Markup

    columns = human_columns(table)
    numeric = frozenset(name for name in columns if is_number(table, name))
    exported = (whole or table).columns
    fields = [_field_of(table, name, is_numeric=name in numeric) for name in columns]
    rows = [
        HtmlRow(
            Markup("".join([field(row) for field in fields])),
            _csv(exported, [row] if of_row is None else of_row[row["run"]]),
        )
        for row in table.rows
    ]
    return HtmlTable(
        title=title,
        file=file,
        columns=columns,
        numeric=numeric,
        example=_example(table, next((name for name in columns if name in numeric), None)),
        csv_header=_lines([exported]),
        rows=rows,
        legend=table.legend,
        notes=table.notes,
    )


def _field_of(table: Table, column: str, *, is_numeric: bool) -> Callable[[Row], str]:
    """How a column's fields are written."""
    from markupsafe import escape

    def field(row: Row) -> str:
        text, whole = human_field(table, row, column), _whole(row[column])
        if column in _COLOURED:
            kind = f"word {_colour(text)}"
        else:
            kind = "text" if len(text) > _LONG else "number" if is_numeric else ""
        styled = f' class="{kind}"' if kind else ""
        valued = "" if whole is None or whole == text else f' data-value="{whole}"'
        return f"<td{styled}{valued}>{escape(text)}</td>"

    return field


def _colour(text: str) -> str:
    """The word that decides the colour: of several states, as of a cell's seeds, the worst."""
    return next((word for word in _WORST_FIRST if word in text), "")


def _whole(value: Any) -> str | None:
    """A number as a browser reads it, nothing for a missing value, None for a text."""
    if value is None or value == "":
        return ""
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    if isinstance(value, int):
        return str(value)
    return "" if math.isnan(value) else repr(float(value)).replace("inf", "Infinity")


def _example(table: Table, column: str | None) -> str:
    known = (value for row in table.rows if column is not None and (value := _whole(row[column])))
    value = next(known, None)
    return "" if value is None else f"{column}>={value}"


def _csv(columns: Sequence[str], rows: Iterable[Row]) -> str:
    return _lines(csv_fields(row, columns) for row in rows)


def _lines(rows: Iterable[Sequence[Any]]) -> str:
    text = io.StringIO()
    csv.writer(text, lineterminator="\n").writerows(rows)
    return text.getvalue()

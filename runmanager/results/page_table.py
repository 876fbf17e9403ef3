"""A table as a page shows it: every field for people beside its whole value, every row with its lines of CSV."""

import csv
import io
import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from runmanager.results.columns import Table
from runmanager.results.formats import csv_field, human_columns, human_field, is_number

__all__ = ["PageField", "PageRow", "PageTable", "page_table"]

_COLOURED = ("status", "verdict")
_WORST_FIRST = ("failed", "crashed", "killed", "skipped", "running", "pending", "finished", "faster")
_LONG = 60  # characters that want a wide column


@dataclass(frozen=True)
class PageField:
    """What stands in a field.

    `whole` is what it is sorted and asked by: a number in full precision, empty for a missing value, None where that
    is the text itself. `kind` are words by which it is coloured and laid out.
    """

    text: str
    whole: str | None
    kind: str = ""


@dataclass(frozen=True)
class PageRow:
    """A row's fields, and the lines that it is in a file: of several runs where it stands for several."""

    fields: Sequence[PageField]
    csv: str


@dataclass(frozen=True)
class PageTable:
    """A table with its name for people and the name of its file; `numeric` are the columns to be set flush right."""

    title: str
    file: str
    columns: Sequence[str]
    numeric: frozenset[str]
    csv_header: str
    rows: Sequence[PageRow]
    legend: str
    notes: Sequence[str]

    @property
    def example(self) -> str:
        """A condition that some rows fulfil, by the first column of numbers; empty where there is none."""
        for at, name in enumerate(self.columns):
            if name in self.numeric:
                value = next(field.whole or field.text for row in self.rows if (field := row.fields[at]).whole != "")
                return f"{name}>={value}"
        return ""


def page_table(
    table: Table,
    *,
    title: str,
    file: str,
    whole: Table | None = None,
    of_row: Mapping[str, Sequence[Mapping[str, Any]]] | None = None,
) -> PageTable:
    """`table` for a page. What is copied from it has the columns of the `whole` table, by default of itself.

    `of_row` has the rows of the whole table that a row stands for, by its `run`; without it that is the row itself.
    """
    columns = human_columns(table)
    exported = (whole or table).columns
    fields = [_field_of(table, name) for name in columns]
    rows = [
        PageRow([field(row) for field in fields], _csv(exported, [row] if of_row is None else of_row[row["run"]]))
        for row in table.rows
    ]
    return PageTable(
        title=title,
        file=file,
        columns=columns,
        numeric=frozenset(name for name in columns if is_number(table, name)),
        csv_header=_lines([exported]),
        rows=rows,
        legend=table.legend,
        notes=table.notes,
    )


def _field_of(table: Table, column: str) -> Callable[[Mapping[str, Any]], PageField]:
    coloured = column in _COLOURED

    def field(row: Mapping[str, Any]) -> PageField:
        text, whole = human_field(table, row, column), _whole(row[column])
        return PageField(
            text,
            None if whole == text else whole,
            f"word {_colour(text)}" if coloured else "text" if len(text) > _LONG else "",
        )

    return field


def _colour(text: str) -> str:
    """The word that decides the colour: of several states, as of a cell's seeds, the worst."""
    return next((word for word in _WORST_FIRST if word in text), "")


def _whole(value: Any) -> str | None:
    if value is None or value == "":
        return ""
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    if isinstance(value, int):
        return str(value)
    return "" if math.isnan(value) else repr(float(value)).replace("inf", "Infinity")  # as a browser reads it


def _csv(columns: Sequence[str], rows: Iterable[Mapping[str, Any]]) -> str:
    return _lines([csv_field(row[column]) for column in columns] for row in rows)


def _lines(rows: Iterable[Sequence[Any]]) -> str:
    text = io.StringIO()
    csv.writer(text, lineterminator="\n").writerows(rows)
    return text.getvalue()

"""Sort orders of rows and of setting values."""

import dataclasses
import math
from collections.abc import Iterable
from typing import Any

from runmanager.errors import UsageError
from runmanager.results.table_model.columns import OUTCOMES, Table
from runmanager.text import format_value
from runmanager.validation import fault

__all__ = ["sort_key", "sorted_by", "sorted_values"]


def sorted_by(table: Table, column: str, *, better: str | None = None) -> Table:
    """The table sorted by `column`: largest first if more is better, else smallest first; missing values last.

    The direction of a metric is `better` (`max`, `min`), else the declared one, else that of its name; other columns
    have that of their name, or none. Rows with equal values keep their order. The column is added to the shown columns.

    Raises `UsageError` for a metric whose direction is not known, and for `better` with another column.
    """
    known = [row for row in table.rows if not _is_missing(row[column])]
    missing = [row for row in table.rows if _is_missing(row[column])]
    known.sort(key=lambda row: sort_key(row[column]), reverse=_is_larger_first(table, column, better))
    shown = table.shown if column in table.shown else (*table.shown, column)
    return dataclasses.replace(table, rows=[*known, *missing], shown=shown)


def _is_larger_first(table: Table, column: str, better: str | None) -> bool:
    if column in (*OUTCOMES, *table.logged, *table.foreign):
        return table.directions.required(column, better=better)
    if better is not None:
        raise UsageError(fault("--better", "go with a metric of epochs", f"'{column}'", "its direction is known"))
    return column not in table.settings and table.directions.known(column) is True


def _is_missing(value: Any) -> bool:
    return value is None or (isinstance(value, float) and math.isnan(value))


def sorted_values(values: Iterable[Any]) -> list[Any]:
    """The values of a setting in the order of tables and figures."""
    return sorted(values, key=sort_key)


def sort_key(value: Any) -> tuple[int, int | float, str]:
    """A key that sorts numbers first, then texts, then None: the values of one setting may be of all these types."""
    if value is None:
        return 2, 0.0, ""
    if isinstance(value, int | float):
        return 0, value, ""
    return 1, 0.0, format_value(value)

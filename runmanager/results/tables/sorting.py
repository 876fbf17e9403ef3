"""Sort orders of rows and of setting values."""

import dataclasses
import math
from collections.abc import Iterable
from typing import Any

from runmanager.records.run.metric_direction import prefers_larger
from runmanager.results.table_model.columns import Table
from runmanager.text import format_value

__all__ = ["sort_key", "sorted_by", "sorted_values"]


def sorted_by(table: Table, column: str) -> Table:
    """The table sorted by `column`: largest first if more is better, else smallest first; missing values last.

    Whether more is better was declared, or follows from the words of the column's name. Rows with equal values keep
    their order. The column is added to the shown columns.
    """
    known = [row for row in table.rows if not _is_missing(row[column])]
    missing = [row for row in table.rows if _is_missing(row[column])]
    is_larger_better = column not in table.settings and table.declared.get(column, prefers_larger(column)) is True
    known.sort(key=lambda row: sort_key(row[column]), reverse=is_larger_better)
    shown = table.shown if column in table.shown else (*table.shown, column)
    return dataclasses.replace(table, rows=[*known, *missing], shown=shown)


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

"""The order of a table's rows by any of its columns."""

import dataclasses
import math
from collections.abc import Iterable
from typing import Any

from runmanager.results.model.columns import Table, prefers_larger
from runmanager.text import format_value

__all__ = ["sort_key", "sorted_by", "sorted_values"]


def sorted_by(table: Table, column: str) -> Table:
    """The table in the order of `column`: best first where more is better, else the smallest; missing values last.

    Rows of one value stay in their order. The column is shown to people even if it is not one of theirs.
    """
    known = [row for row in table.rows if not _is_missing(row[column])]
    missing = [row for row in table.rows if _is_missing(row[column])]
    is_result = column not in table.settings
    known.sort(key=lambda row: sort_key(row[column]), reverse=is_result and prefers_larger(column) is True)
    shown = table.shown if column in table.shown else (*table.shown, column)
    return dataclasses.replace(table, rows=[*known, *missing], shown=shown)


def _is_missing(value: Any) -> bool:
    return value is None or (isinstance(value, float) and math.isnan(value))


def sorted_values(values: Iterable[Any]) -> list[Any]:
    """The values of a setting as every table and figure has them side by side."""
    return sorted(values, key=sort_key)


def sort_key(value: Any) -> tuple[int, int | float, str]:
    """Numbers by size, then words by their text, nothing last: one setting may be all of these, run by run."""
    if value is None:
        return 2, 0.0, ""
    if isinstance(value, int | float):
        return 0, value, ""
    return 1, 0.0, format_value(value)

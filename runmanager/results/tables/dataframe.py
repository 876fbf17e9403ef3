"""Tables as pandas DataFrames, with a suitable dtype for each column."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from runmanager.results.table_model.columns import Table
from runmanager.results.table_model.formatting import Spread

if TYPE_CHECKING:
    import pandas as pd

__all__ = ["to_dataframe"]

_COUNT_SUFFIX = "_count"
_STD_SUFFIX = "_std"
_OF_SEEDS = "seeds."  # before the name of such a column that a metric has itself
"""Suffix of a column with the standard deviations of another column's means."""

_TEXT_COLUMNS = frozenset(
    {"run", "status", "reason", "device", "device_name", "started_at", "run_dir", "axis", "metric", "verdict"}
)
_BOOL_COLUMNS = frozenset({"contended", "warmup"})
_SETTING_VALUE_COLUMNS = frozenset({"baseline", "candidate"})


def to_dataframe(table: Table, columns: Sequence[str] | None = None) -> "pd.DataFrame":
    """The table, or some `columns` of it, as a DataFrame; missing values are NaN.

    If rows stand for several runs, means are followed by their standard deviations in a column `<name>_std`, and where
    some of the runs lack a value by the number of those that have it, in `<name>_count`. Such a column goes under
    `seeds.` where the table has a column of this name.
    """
    import pandas as pd

    def added(name: str) -> str:
        while name in table.columns or name in series:
            name = f"{_OF_SEEDS}{name}"
        return name

    series: dict[str, pd.Series[Any]] = {}
    for name in table.columns if columns is None else columns:
        values = [row[name] for row in table.rows]
        series[name] = _series(name, values, is_setting=name in (*table.settings, *table.labels))
        spreads = [value.deviation if isinstance(value, Spread) else None for value in values]
        if any(isinstance(value, Spread) and value.count > 1 for value in values):
            series[added(f"{name}{_STD_SUFFIX}")] = _series(name, spreads, is_setting=False)
        if any(isinstance(value, Spread) and value.is_partial for value in values):
            counts = [value.count if isinstance(value, Spread) else value is not None for value in values]
            series[added(f"{name}{_COUNT_SUFFIX}")] = pd.Series(counts, dtype="int64")
    return pd.DataFrame(series, columns=list(series))


def _series(name: str, values: Sequence[Any], *, is_setting: bool) -> "pd.Series[Any]":
    """Numbers as int64, or float64 if one is missing; truth values as bool if all are known."""
    import pandas as pd

    if is_setting or name in _TEXT_COLUMNS | _BOOL_COLUMNS | _SETTING_VALUE_COLUMNS:
        # pandas infers these; None in an object column becomes NaN like every other missing value.
        series = pd.Series(values, dtype=None if values else object)
        return series.where(series.notna(), float("nan")) if series.dtype == object else series
    if any(value is None or isinstance(value, float) for value in values) or not values:
        return pd.Series([float("nan") if value is None else float(value) for value in values], dtype="float64")
    return pd.Series(values)

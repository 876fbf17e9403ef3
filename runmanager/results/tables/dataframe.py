"""A table as a pandas DataFrame, each column with the type that its values are of."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from runmanager.results.model.columns import Table
from runmanager.results.model.formatting import Spread

if TYPE_CHECKING:
    import pandas as pd

__all__ = ["STD_SUFFIX", "to_dataframe"]

STD_SUFFIX = "_std"
"""Ends the name of the column that has the standard deviations beside the means of another."""

_TEXTS = frozenset(
    {"run", "status", "reason", "device", "device_name", "started_at", "run_dir", "axis", "metric", "verdict"}
)
_TRUTHS = frozenset({"contended", "warmup"})
_VALUES = frozenset({"baseline", "candidate"})


def to_dataframe(table: Table, columns: Sequence[str] | None = None) -> "pd.DataFrame":
    """The table, or these columns of it. What is missing is NaN.

    Where rows stand for several runs, means are followed by their standard deviations in a column `<name>_std`.
    """
    import pandas as pd

    series: dict[str, pd.Series[Any]] = {}
    for name in table.columns if columns is None else columns:
        values = [row[name] for row in table.rows]
        series[name] = _series(name, values, is_setting=name in table.settings)
        spreads = [value.deviation if isinstance(value, Spread) else None for value in values]
        if any(isinstance(value, Spread) and value.count > 1 for value in values):
            series[f"{name}{STD_SUFFIX}"] = _series(name, spreads, is_setting=False)
    return pd.DataFrame(series, columns=list(series))


def _series(name: str, values: Sequence[Any], *, is_setting: bool) -> "pd.Series[Any]":
    """Numbers as int64, or as float64 where one is missing; truth values as bool where all are known."""
    import pandas as pd

    if is_setting or name in _TEXTS | _TRUTHS | _VALUES:
        # pandas infers these; None in a column of objects is made NaN like every other missing value.
        series = pd.Series(values, dtype=None if values else object)
        return series.where(series.notna(), float("nan")) if series.dtype == object else series
    if any(value is None or isinstance(value, float) for value in values) or not values:
        return pd.Series([float("nan") if value is None else float(value) for value in values], dtype="float64")
    return pd.Series(values)

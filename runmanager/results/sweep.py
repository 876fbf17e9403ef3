"""A stored sweep in a notebook: its tables as pandas DataFrames."""

from functools import cached_property
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING, Any

from runmanager.records.store import SweepContents
from runmanager.records.sweep import SweepRecord, open_sweep
from runmanager.results.comparison import CompareOptions, compare
from runmanager.results.page import render_template
from runmanager.results.page_table import page_table
from runmanager.results.reading import read_results
from runmanager.results.table import Table, epoch_rows, result_rows

if TYPE_CHECKING:
    import pandas as pd

__all__ = ["Sweep"]

_TEXTS = frozenset(
    {"run", "status", "reason", "device", "device_name", "started_at", "run_dir", "axis", "metric", "verdict"}
)
_TRUTHS = frozenset({"contended", "warmup"})
_VALUES = frozenset({"baseline", "candidate"})


class Sweep:
    """The sweep in a folder, as it stood when it was first looked at; make a new one to look again.

    Raises `UsageError` where the folder is no sweep's.
    """

    def __init__(self, folder: str | PathLike[str]) -> None:
        self.paths = open_sweep(Path(folder))

    @property
    def runs(self) -> "pd.DataFrame":
        """One row a run, the columns of results.csv; what is missing is NaN."""
        return _frame(self._results)

    @property
    def epochs(self) -> "pd.DataFrame":
        """One row an epoch of every run, the columns of epochs.csv; what is missing is NaN."""
        return _frame(epoch_rows(*self._read))

    def compare(
        self, axis: str | None = None, baseline: Any = None, *, metric: str = "samples_per_second"
    ) -> "pd.DataFrame":
        """One row a matched pair along `axis` (as `CompareOptions` say), columns of comparison.csv or of the metric.

        Raises `UsageError` for an axis, a baseline or a metric that the sweep does not have.
        """
        return _frame(compare(*self._read, CompareOptions(axis=axis, baseline=baseline, metric=metric)))

    def __repr__(self) -> str:
        return f"Sweep({str(self.paths.root)!r}): {len(self._results.rows)} runs"

    def _repr_html_(self) -> str:
        return render_template("table.html", table=page_table(self._results, title="Results", file="results.csv"))

    @cached_property
    def _read(self) -> tuple[SweepContents, SweepRecord | None]:
        return read_results(self.paths)

    @cached_property
    def _results(self) -> Table:
        return result_rows(*self._read)


def _frame(table: Table) -> "pd.DataFrame":
    import pandas as pd

    series = {name: _series(name, [row[name] for row in table.rows], name in table.settings) for name in table.columns}
    return pd.DataFrame(series, columns=table.columns)


def _series(name: str, values: list[Any], is_setting: bool) -> "pd.Series[Any]":
    """Numbers as int64, or as float64 where one is missing; truth values as bool where all are known."""
    import pandas as pd

    if is_setting or name in _TEXTS | _TRUTHS | _VALUES:
        # pandas infers these; None in a column of objects is made NaN like every other missing value.
        series = pd.Series(values, dtype=None if values else object)
        return series.where(series.notna(), float("nan")) if series.dtype == object else series
    if any(value is None for value in values) or not values:
        return pd.Series([float("nan") if value is None else value for value in values], dtype="float64")
    return pd.Series(values)

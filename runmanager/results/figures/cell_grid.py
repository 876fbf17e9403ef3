"""The cells of a sweep's grid as figures show them: the runs of all seeds together."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from runmanager.records.run.status import Status
from runmanager.results.findings.comparison_findings import named_settings
from runmanager.results.stats.descriptive import mean
from runmanager.results.table_model.columns import Row, Table
from runmanager.results.tables.seeds import seed_groups
from runmanager.text import pluralize

__all__ = ["GridCell", "grid_cells", "varying_columns"]


@dataclass(frozen=True)
class GridCell:
    """The rows of the results table that differ only in the seed."""

    label: str
    rows: Sequence[Row]

    @property
    def finished(self) -> list[Row]:
        """The rows of finished runs."""
        return [row for row in self.rows if row["status"] == Status.FINISHED]

    def mean(self, column: str) -> float | None:
        """The mean of a measured column over the finished runs that have it."""
        return self.mean_of(lambda row: row[column])

    def mean_of(self, value_of: Callable[[Row], float | None]) -> float | None:
        """The mean of a value of each row over the finished runs that have it."""
        known = [value for row in self.finished if (value := value_of(row)) is not None]
        return mean(known) if known else None

    def has(self, setting: str) -> bool:
        """Whether the cell has the setting, possibly set to null."""
        return setting not in self.rows[0].absent_settings

    def value(self, setting: str) -> Any:
        """The value of a setting in all runs of the cell."""
        return self.rows[0][setting]


def varying_columns(results: Table) -> list[str]:
    """The columns of the settings that differ between runs, without the seed."""
    return [name for name in results.settings if name in results.shown and name not in results.seeds]


def grid_cells(results: Table) -> list[GridCell]:
    """All cells in the order of their first rows."""
    return [GridCell(_label(rows, results), rows) for rows in seed_groups(results)]


def _label(rows: Sequence[Row], results: Table) -> str:
    """The settings that distinguish a cell; for a single cell, the run's name or the number of seeds."""
    settings = named_settings(rows[0], results, without=results.seeds)
    return settings or (str(rows[0]["run"]) if len(rows) == 1 else pluralize(len(rows), "seed"))

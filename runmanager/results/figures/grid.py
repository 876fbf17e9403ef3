"""The grid that a sweep's figures show: the settings that vary, and the runs of each cell with its seeds together."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from runmanager.records.states import Status
from runmanager.results.columns import Table
from runmanager.results.figures.words import row_label
from runmanager.results.pairing import SEED
from runmanager.results.seeds import seed_groups

__all__ = ["GridCell", "cells_of", "is_numeric", "varying_of"]


@dataclass(frozen=True)
class GridCell:
    """The rows of the results table that differ in the seed alone."""

    label: str
    rows: Sequence[Mapping[str, Any]]

    @property
    def finished(self) -> list[Mapping[str, Any]]:
        """Those of runs that finished."""
        return [row for row in self.rows if row["status"] == Status.FINISHED]

    def value(self, setting: str) -> Any:
        """What all its runs have of a setting."""
        return self.rows[0][setting]


def varying_of(results: Table) -> list[str]:
    """The columns of the settings that differ between runs, but for the seed."""
    return [name for name in results.settings if name in results.shown and name != SEED]


def cells_of(results: Table) -> list[GridCell]:
    """All cells, in the order of their first rows."""
    return [GridCell(row_label(rows[0], results, without=(SEED,)), rows) for rows in seed_groups(results)]


def is_numeric(values: Sequence[Any]) -> bool:
    """Whether all of these are numbers."""
    return all(isinstance(value, int | float) and not isinstance(value, bool) for value in values)

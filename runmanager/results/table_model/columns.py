"""Tables of results: their rows, and the columns that other programs rely on."""

from collections.abc import Collection, Container, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

from runmanager.records.run.measurement import MEASUREMENTS, named
from runmanager.records.run.run_record import EpochRecord
from runmanager.results.table_model.directions import Directions

__all__ = [
    "BASE_SETTINGS",
    "EFFECTS",
    "FIXED_COLUMNS",
    "MISSING",
    "Row",
    "Table",
    "column_of",
    "effect_column",
    "setting_name",
    "setting_of",
]

MISSING = "N/A"
"""The text of a missing value, for people."""

BASE_SETTINGS = ("lr", "batch_size", "num_workers", "device")
"""The tutorials' four axes: columns of every results table, even if they do not vary."""

RUN_COLUMNS = ("run", "status", "reason")
RESULT_COLUMNS = named(MEASUREMENTS)
EPOCH_COLUMNS = ("run", *(name for name in EpochRecord.__struct_fields__ if name not in ("metrics", "units")))
COMPARISON_COLUMNS = (
    *("axis", "baseline", "candidate", "baseline_samples_per_second", "candidate_samples_per_second", "speedup"),
    *("ci_low", "ci_high", "verdict", "reason", "baseline_epochs", "candidate_epochs"),
)
EFFECTS = ("speedup", "ratio", "difference")
"""The columns with the effect of a pair: one of these, depending on the metric."""

_MEASURED = {*RUN_COLUMNS, *RESULT_COLUMNS}
_OF_OTHER_METRICS = ("metric", *(f"{side}_{what}" for side in ("baseline", "candidate") for what in ("value", "runs")))
_RESERVED = ("nulls", "seeds", "note")  # columns of tables for people; `nulls` stays reserved for written tables
FIXED_COLUMNS = frozenset((*RUN_COLUMNS, *RESULT_COLUMNS, *EPOCH_COLUMNS, *_RESERVED))
"""The columns of the results and epochs tables whose names do not depend on the sweep."""

_TAKEN = {*FIXED_COLUMNS, *COMPARISON_COLUMNS, *EFFECTS, *_OF_OTHER_METRICS}


@dataclass(frozen=True, slots=True)
class Row:
    """A row of a table: its `values` by column, None where one is missing.

    `absent_settings` are the columns of the settings that the row's cell does not have. Any other setting without a
    value is set to null. `is_continued`: a finished run with more epochs continues the row's run, or all of its runs.
    """

    values: dict[str, Any]
    absent_settings: Collection[str] = ()
    is_continued: bool = False

    def __getitem__(self, column: str) -> Any:
        return self.values[column]


@dataclass(frozen=True)
class Table:
    """Rows under named columns.

    `settings` are the columns that hold settings; `derived` are those of them whose values follow from others. `seeds`
    are those of the settings that are seeds, also of seeds that are the same in all runs and have no column. `shown`
    are the columns for people, the most important first where the width is limited; files for programs have all
    columns. Shown columns that are empty in every row are left out, unless `shows_empty`. `foreign` are columns of
    numbers that another program measured and named, `logged` those of the metrics and rates that the runs' own programs
    logged; `directions` are those that were declared, by column. `notes` are lines about the whole table, `legend`
    explains its values. `num_unread` counts the runs without a row, whose records cannot be read. `labels` are the
    columns with the tags and notes of people. `metric` is the one that a command for the sweep has asked to rank cells
    by.
    """

    columns: list[str]
    rows: Sequence[Row]
    settings: tuple[str, ...] = ()
    derived: tuple[str, ...] = ()
    seeds: tuple[str, ...] = ()
    foreign: tuple[str, ...] = ()
    logged: tuple[str, ...] = ()
    directions: Directions = field(default_factory=Directions)
    shown: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()
    legend: str = ""
    shows_empty: bool = False
    num_unread: int = 0
    labels: tuple[str, ...] = ()
    metric: str | None = None


def column_of(setting: str) -> str:
    """Return the column of a setting: its dotted name, under `settings.` where that is the name of another column."""
    return f"settings.{setting}" if setting in _TAKEN else setting


def setting_name(column: str) -> str:
    """Return the setting of a column, as given in a command: `optimizer` for `optimizer.name`."""
    name = column.removeprefix("settings.")
    return (name if column == column_of(name) else column).removesuffix(".name")


def setting_of(text: str, settings: Container[str]) -> str | None:
    """Return which of the `settings` a text names: by dotted name, by column, or by group (`model` for `model.name`).

    A script's setting may have the dashes of its flag. None for the name of a measured column.
    """
    if text in _MEASURED:
        return None
    setting = text.removeprefix("settings.")
    name = setting if text == column_of(setting) else text
    return next((each for each in (name, f"{name}.name", name.replace("-", "_")) if each in settings), None)


def effect_column(columns: Iterable[str]) -> str:
    """Return the column of a comparison that has the effect."""
    return next(name for name in columns if name in EFFECTS)

"""Orders of a table: of its rows, of setting values, and in which columns are omitted where the width is limited."""

import dataclasses
import math
from collections.abc import Iterable, Sequence
from typing import Any

from runmanager.errors import UsageError
from runmanager.records.run.measurement import LOSSES, MEASUREMENTS, OUTCOMES, named
from runmanager.records.run.metric_names import by_preference
from runmanager.records.run.status import Reason, Status, is_complete
from runmanager.results.table_model.columns import Row, Table
from runmanager.results.table_model.formatting import Spread, human_columns
from runmanager.results.tables.results_table import NOTE
from runmanager.results.tables.shown_rows import SEEDS
from runmanager.text import format_value
from runmanager.validation import fault

_OF_DEVICES = ("device", "device_name")
OMITTED_FIRST = (
    *named(sorted((each for each in MEASUREMENTS if each.spare), key=lambda each: each.spare or 0)),
    *("candidate_samples_per_second", "baseline_samples_per_second"),
    *("precision", "flop_per_step", "operations_per_step", "operations_per_second", "bytes_per_second"),
)
"""Columns that are omitted in this order if space is short; settings, status and results of comparisons never are."""
OMITTED_FROM_RESULTS = ("epoch_seconds",)
"""Omitted from a results table if a number would not fit otherwise: the samples per second have the same content."""


def best_first(table: Table) -> Table:
    """A results table for people: the best cell first, unless devices are compared, whose times are the result.

    Rows without a result keep their order, after the others.
    """
    column = ranked_column(table)
    used = [row.values for row in table.rows if row.values.get("status") != Status.SKIPPED]
    # `auto` may be the same device as `cpu`, so the setting alone does not tell.
    if column is None or all(len({values.get(name) for values in used} - {None}) > 1 for name in _OF_DEVICES):
        return table
    known = [row for row in table.rows if _is_result(row, column)]
    others = [row for row in table.rows if not _is_result(row, column)]
    known.sort(key=lambda row: sort_key(row[column]), reverse=bool(table.directions.known(column)))
    return dataclasses.replace(table, rows=[*known, *others])


def ranked_column(table: Table) -> str | None:
    """The column by which people rank the rows of a results table: the preferred metric whose direction is known.

    The one that a command has asked for comes first. None where no finished run has any. Losses count only where all
    rows have the same loss.
    """
    asked = [name for name in (f"metrics.{table.metric}", table.metric) if table.metric and name in table.columns]
    of_loss = [name for name in table.settings if name.removeprefix("settings.").partition(".")[0] == "loss"]
    has_several_losses = any(len({sort_key(row[name]) for row in table.rows}) > 1 for name in of_loss)
    outcomes = [name for name in OUTCOMES if name in table.columns and not (has_several_losses and name in LOSSES)]
    for name in (*asked, *by_preference([*outcomes, *table.logged])):
        if table.directions.known(name) is not None and any(_is_result(row, name) for row in table.rows):
            return name
    return None


def _is_result(row: Row, column: str) -> bool:
    """Whether a row may be the best one: a mean over the runs that happen to have a value is no result of the cell."""
    value = row[column]
    is_finished = bool(row.values.get(SEEDS)) or is_complete(row.values.get("status"), row.values.get("reason"))
    return is_finished and not _is_missing(value) and not (isinstance(value, Spread) and value.is_partial)


def sorted_by(table: Table, column: str, *, better: str | None = None) -> Table:
    """The table sorted by `column`: largest first if more is better, else smallest first; missing values last.
    By a result, what a search has pruned comes behind all that is complete.

    The direction of a metric is `better` (`max`, `min`), else the declared one, else that of its name; other columns
    have that of their name, or none. Rows with equal values keep their order. The column is added to the shown columns.

    Raises `UsageError` for a metric whose direction is not known, and for `better` with another column.
    """
    known = [row for row in table.rows if not _is_missing(row[column])]
    missing = [row for row in table.rows if _is_missing(row[column])]
    known.sort(key=lambda row: sort_key(row[column]), reverse=_is_larger_first(table, column, better))
    if column in (*OUTCOMES, *table.logged):
        known.sort(key=_is_pruned)
    shown = table.shown if column in table.shown else (*table.shown, column)
    return dataclasses.replace(table, rows=[*known, *missing], shown=shown)


def _is_pruned(row: Row) -> bool:
    """Whether a search has ended a run, or all runs of a cell, early, whose result then is behind every other one."""
    return row.values.get("reason") == Reason.PRUNED


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


def omission_order(table: Table) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Return the columns that may be omitted, in this order: first those of the package, then logged metrics.

    Of results, the metric by which they are ranked always stays; reasons and states that say nothing go first. Of rows
    without a run, as in a pivot or a list of sweeps, the last columns go first.
    """
    if "verdict" in table.columns:
        return OMITTED_FIRST, ()
    names, ranked = human_columns(table), ranked_column(table)
    logged = tuple(name for name in _omitted_logged(table, names) if name != ranked)
    if not all("run" in row.values for row in table.rows):
        return tuple(reversed(names[1:])), logged
    notes = [name for name in table.labels if name.endswith(NOTE)]  # long; tags are short
    is_fine = all(is_complete(row.values.get("status"), row.values.get("reason")) for row in table.rows)
    states = [*([] if any(map(_is_pruned, table.rows)) else ["reason"]), *(["status"] if is_fine else [])]
    omittable = (*reversed(table.foreign), *states, *OMITTED_FIRST, *notes)
    return tuple(name for name in omittable if name != ranked and name not in logged), logged


def _omitted_logged(table: Table, names: Sequence[str]) -> tuple[str, ...]:
    """The logged metrics in the order in which they are omitted: the last one first.

    The first metric stays longer than the time of an epoch, which the samples per second make up for.
    """
    first, others = table.logged[:1], table.logged[1:]
    times = OMITTED_FROM_RESULTS if first and "samples_per_second" in names else ()
    return (*reversed(others), *times, *first)

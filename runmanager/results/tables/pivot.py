"""Pivot tables: one setting per row, one per column, and in each field the median of a metric over finished runs."""

from collections import Counter, defaultdict
from collections.abc import Hashable, Sequence
from dataclasses import dataclass
from typing import Any

from runmanager.errors import UsageError
from runmanager.records.run.status import Status
from runmanager.records.settings.values import hashable
from runmanager.results.table_model.columns import MISSING, Row, Table
from runmanager.results.table_model.formatting import Median
from runmanager.results.tables.names import split_names
from runmanager.results.tables.results_table import row_notes
from runmanager.results.tables.sorting import sorted_values
from runmanager.text import format_value

__all__ = ["PivotAxes", "parse_pivot", "pivot"]

_DEFAULT_METRIC = "epoch_seconds"
_MAX_NAMED = 5


@dataclass(frozen=True)
class PivotAxes:
    """What a pivot has down and across, and the metric of its fields; None: `epoch_seconds`."""

    rows: str
    columns: str
    metric: str | None = None


def parse_pivot(text: str) -> PivotAxes:
    """Parse `ROWS:COLUMNS[:METRIC]`. Raises `UsageError`."""
    words = split_names(text, ":")
    if len(words) not in (2, 3) or not all(words):
        raise UsageError(
            f"`--pivot` must be ROWS:COLUMNS or ROWS:COLUMNS:METRIC, got '{text}'; as in batch_size:device."
        )
    if words[0] == words[1]:
        raise UsageError(f"`--pivot` must have two different settings, got '{text}'; as in batch_size:device.")
    return PivotAxes(*words)


def pivot(table: Table, axes: PivotAxes) -> Table:
    """A table with a row for each value of the column `axes.rows`, and a column for each value of `axes.columns`.

    If any field is a median of several runs, fields show their count, and files have a column of counts for each
    column. Raises `UsageError` for a metric that the table lacks or that is not a number.
    """
    metric = axes.metric or _DEFAULT_METRIC
    if metric not in table.columns:  # a table that is not of our runs
        there = ", ".join(table.foreign[:_MAX_NAMED]) or ", ".join(table.columns)
        raise UsageError(f"`--pivot` must name its metric here, got '{axes.rows}:{axes.columns}'; add one of: {there}.")
    fields: defaultdict[tuple[Hashable, Hashable], list[float]] = defaultdict(list)
    for row in table.rows:
        value = row[metric]
        if value is None or row.values.get("status", Status.FINISHED) != Status.FINISHED:
            continue
        if isinstance(value, bool) or not isinstance(value, int | float):
            raise UsageError(f"`--pivot` must have a metric of numbers, got '{metric}'; as in :val_accuracy.")
        fields[hashable(row[axes.rows]), hashable(row[axes.columns])].append(value)
    headings = _headings(axes.columns, _values(table, axes.columns))
    rows = [_row(axes.rows, value, metric, headings, fields) for value in _values(table, axes.rows)]
    has_counts = any(len(values) > 1 for values in fields.values())
    counts = [f"runs of {heading}" for heading in headings.values()] if has_counts else []
    return Table(
        columns=[axes.rows, *headings.values(), *counts],
        rows=rows,
        settings=(axes.rows,),
        logged=tuple(headings.values()) if metric in table.logged else (),
        shown=(axes.rows, *headings.values()),
        notes=tuple(_notes(table, metric)),
        legend=_legend(metric, has_counts),
        shows_empty=True,
    )


def _headings(column: str, values: Sequence[Any]) -> dict[Hashable, str]:
    """A heading for each value; values with the same text, such as 1 and "1", are written as their repr."""
    texts = [format_value(value) for value in values]
    counts = Counter(texts)
    labels = [text if counts[text] == 1 else repr(value) for text, value in zip(texts, values, strict=True)]
    return {hashable(value): f"{column}={label}" for value, label in zip(values, labels, strict=True)}


def _values(table: Table, column: str) -> list[Any]:
    return sorted_values({hashable(row[column]): row[column] for row in table.rows}.values())


def _row(
    column: str,
    value: Any,
    metric: str,
    headings: dict[Hashable, str],
    fields: dict[tuple[Hashable, Hashable], list[float]],
) -> Row:
    row: dict[str, Any] = {column: value}
    for key, heading in headings.items():
        values: Sequence[float] = fields.get((hashable(value), key), ())
        row[heading] = Median.of(values, metric) if values else None
        row[f"runs of {heading}"] = len(values)
    return Row(row)


def _notes(table: Table, metric: str) -> list[str]:
    """The notes of the table; without those on speed if the metric is none."""
    of_speed = [] if metric.endswith(("_seconds", "_per_second")) else row_notes(table.rows)
    return [note for note in table.notes if note not in of_speed]


def _legend(metric: str, has_counts: bool) -> str:
    medians = ": the median over finished runs; n is the number of runs if more than one"
    return f"{metric}{medians if has_counts else ' of each finished run'}. {MISSING}: no finished run has it."

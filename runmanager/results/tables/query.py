"""Queries on a results table: which rows and columns it has, by names in options, in which order, or a pivot."""

import dataclasses
import re
from collections import Counter, defaultdict
from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from runmanager.errors import UsageError
from runmanager.records.run.metric_names import BETTER
from runmanager.records.run.status import Status, is_complete
from runmanager.records.settings.values import hashable
from runmanager.records.storage.reader import SweepContents
from runmanager.records.sweep.sweep_record import SweepRecord
from runmanager.results.compare.comparison_table import ComparisonTable
from runmanager.results.load.cells import gather_cells
from runmanager.results.load.run_summary import SweepSummary
from runmanager.results.load.several_sweeps import NamedSweep
from runmanager.results.table_model.columns import MISSING, Row, Table, column_of
from runmanager.results.table_model.formatting import Median, human_field, is_number
from runmanager.results.tables.results_table import legend_of, result_rows, row_notes
from runmanager.results.tables.shown_rows import (
    collapse_seeds,
    cross_sweep_rows,
    without_shorter_runs,
    without_skipped_cells,
)
from runmanager.results.tables.sorting import best_first, sort_key, sorted_by, sorted_values
from runmanager.results.tables.where_condition import AVAILABLE_COLUMNS_HINT, Condition, parse_condition
from runmanager.text import format_value, pluralize
from runmanager.validation import did_you_mean, fault, field_faults, limits

_ALL_EPOCHS = {"epochs", "settings.epochs", "run"}  # who names them means each number of epochs
_OF_SKIPPED = {"status", "reason", "run"}  # who names them means skipped cells too
_MAX_VALUES = 5  # of a column, named in a note


_DEFAULT_METRIC = "epoch_seconds"
_MAX_NAMED = 5


_QUOTE = "`"


def split_names(text: str, separator: str) -> list[str]:
    """Split names at the separators outside backticks, and remove the backticks and the spaces around each name."""
    outside = rf"{re.escape(separator)}(?=(?:[^`]*`[^`]*`)*[^`]*$)"
    return [unquoted(name.strip()) for name in re.split(outside, text)]


def in_list(name: str) -> str:
    """Return a name as it stands in a list with commas: in backticks if it contains one."""
    return f"{_QUOTE}{name}{_QUOTE}" if "," in name else name


def unquoted(name: str) -> str:
    """Return a name without the backticks around it."""
    is_quoted = len(name) > 1 and name.startswith(_QUOTE) and name.endswith(_QUOTE)
    return name[1:-1] if is_quoted else name


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
        if value is None or not is_complete(row.values.get("status", Status.FINISHED), row.values.get("reason")):
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


@dataclass(frozen=True)
class TableQuery:
    """The rows, columns and order to show of a table, or its pivot; a query without any of them gives the whole table.

    `each` keeps one row per run where the runs of a cell that differ in the seed would be one row. `better` is the
    direction of the metric `sort`, `max` or `min` (None: as declared, else that of its name).
    """

    where: Condition | None = None
    sort: str | None = None
    columns: tuple[str, ...] = ()
    pivot: PivotAxes | None = None
    each: bool = False
    better: str | None = field(default=None, metadata=limits(choices=BETTER, key="--better"))

    @classmethod
    def parse(
        cls,
        *,
        where: str | None = None,
        sort: str | None = None,
        columns: str | None = None,
        pivot: str | None = None,
        each: bool = False,
        better: str | None = None,
    ) -> "TableQuery":
        """Parse the values of the command's options. Raises `UsageError` for invalid or incompatible values."""
        others = (("--sort", sort), ("--better", better), ("--columns", columns), ("--each", each or None))
        if pivot is not None and (unused := [option for option, value in others if value is not None]):
            raise UsageError(f"`--pivot` must go without `{unused[0]}`, got both; it has its own rows and columns.")
        if better is not None and sort is None:
            raise UsageError(fault("--better", "go with `--sort`", "none", "name the metric"))
        names = None if columns is None else tuple(split_names(columns, ","))
        if names is not None and not all(names):
            raise UsageError(f"`--columns` must be names joined by commas, got '{columns}'; as in lr,val_accuracy.")
        query = cls(
            None if where is None else parse_condition(where),
            None if sort is None else unquoted(sort),
            names or (),
            None if pivot is None else parse_pivot(pivot),
            each,
            better,
        )
        if faults := field_faults(query):
            raise UsageError("\n".join(faults))
        return query

    @property
    def words(self) -> tuple[str, ...]:
        """Every name in the query that may be a column or a setting."""
        in_condition = self.where.words if self.where else ()
        in_pivot = (self.pivot.rows, self.pivot.columns, self.pivot.metric) if self.pivot else ()
        return tuple(word for word in (*in_condition, self.sort, *self.columns, *in_pivot) if word)

    def of_sweep(
        self,
        sweep: SweepSummary | SweepContents,
        plan: SweepRecord | None,
        *,
        collapses: bool = False,
        shows_all: bool = False,
    ) -> Table:
        """The queried part of a sweep's results table.

        With `collapses`, for people, runs that differ only in the seed become one row, unless the query names the seed
        or the run; runs that a longer one continues are left out, unless it names the epochs or the run, and skipped
        cells, unless it names the state or the run, both unless `shows_all`; and the best cell comes first.
        Raises `UsageError`, with the nearest name, for a name that is neither a column nor a setting.
        """
        resolved = _resolve_in_sweep(sweep, plan, self.words)
        return self._applied(resolved, collapses=collapses, leaves_out=collapses and not shows_all)

    def of_sweeps(self, sweeps: Sequence[NamedSweep], *, collapses: bool = False, shows_all: bool = False) -> Table:
        """The queried part of the results of several sweeps in one table, otherwise as `of_sweep`."""
        settings = [name for each in sweeps for name in each.cells().names()] if self.words else []
        table = cross_sweep_rows(sweeps, requested=self.words)
        resolved = _resolve(table, self.words, others=_with_groups(settings))
        return self._applied(resolved, collapses=collapses, leaves_out=collapses and not shows_all)

    def of_table(self, table: Table) -> Table:
        """The queried part of any table. Raises `UsageError`, with the nearest name, for an unknown column."""
        return self._applied(_resolve(table, self.words), collapses=False)

    def of_comparison(self, comparison: ComparisonTable) -> ComparisonTable:
        """The pairs that meet the condition; intervals and verdicts stay those of all pairs. Raises as `of_table`."""
        found = self.of_table(comparison)
        assert isinstance(found, ComparisonTable)  # no query replaces the kind of table but a pivot
        return found

    def _applied(self, resolved: "_ResolvedTable", *, collapses: bool, leaves_out: bool = False) -> Table:
        is_for_people, named = collapses, (*self.columns, *([self.sort] if self.sort else []))
        collapses = (
            collapses
            and not self.each
            and not any(resolved.columns.get(name) in ("run", *resolved.table.seeds) for name in named)
        )
        if self.where is not None:
            resolved = resolved.filtered(self.where)
        if leaves_out and not self.each and not _ALL_EPOCHS & {*self.words}:
            resolved = resolved.changed(without_shorter_runs)
        if leaves_out and self.pivot is None and not _OF_SKIPPED & {*self.words}:
            resolved = resolved.changed(without_skipped_cells)  # before seeds become one row: it counts runs
        if self.pivot is not None:
            return pivot(resolved.table, resolved.pivot_axes(self.pivot))
        sort = None if self.sort is None else resolved.column(self.sort, "--sort")
        if collapses:
            needed = {*resolved.table.shown, *self.columns, *resolved.columns.values(), sort or ""}
            resolved = resolved.changed(partial(collapse_seeds, only=needed))
        if sort is not None:
            resolved = resolved.changed(lambda table: sorted_by(table, sort, better=self.better))
        elif is_for_people:
            resolved = resolved.changed(best_first)
        return resolved.with_columns(self.columns, "--columns").table if self.columns else resolved.table


@dataclass(frozen=True)
class _ResolvedTable:
    """A table, the column that each word of a query refers to, and all names that a query could use."""

    table: Table
    columns: Mapping[str, str]
    known: Sequence[str]

    def column(self, word: str, option: str) -> str:
        """The column that a word of `option` refers to. Raises `UsageError`, with the nearest name, if none does."""
        if word in self.columns:
            return self.columns[word]
        hint = did_you_mean(word, self.known, max_names=1) or AVAILABLE_COLUMNS_HINT
        raise UsageError(f"`{option}` must name a column of the table, got '{word}'; {hint}")

    def filtered(self, condition: Condition) -> "_ResolvedTable":
        """The rows that meet the condition, with a note of how many they are.

        Raises `UsageError`, with the nearest name, for an unknown column in the condition.
        """
        holds = condition.over(self.columns, known=self.known)
        rows = [row for row in self.table.rows if holds(row)]
        runs = pluralize(len(self.table.rows), "pair" if "verdict" in self.table.columns else "run")
        count = pluralize(len(rows), f"of {runs} matches {condition.text}.", f"of {runs} match {condition.text}.")
        if not rows:
            count += self._existing_values(condition.words)
        of_all = row_notes(self.table.rows)
        notes = (count, *(note for note in self.table.notes if note not in of_all), *row_notes(rows))
        return self.changed(lambda table: dataclasses.replace(table, rows=rows, notes=notes))

    def _existing_values(self, words: Sequence[str]) -> str:
        """The values of the columns that a condition names, for a condition that no row meets."""
        columns = dict.fromkeys(self.columns[word] for word in words if word in self.columns)
        ranges = [f"{name} is {text}" for name in columns if (text := _value_range(self.table, name))]
        return f" Here {'; '.join(ranges)}." if ranges else ""

    def pivot_axes(self, axes: PivotAxes) -> PivotAxes:
        """The columns that the words of a pivot refer to. Raises `UsageError` for an unknown column."""
        rows, columns = (self.column(word, "--pivot") for word in (axes.rows, axes.columns))
        return PivotAxes(rows, columns, None if axes.metric is None else self.column(axes.metric, "--pivot"))

    def with_columns(self, words: Sequence[str], option: str) -> "_ResolvedTable":
        """These columns alone, in this order, in every format. Raises `UsageError` for an unknown column."""
        columns = [self.column(word, option) for word in dict.fromkeys(words)]
        legend = legend_of(columns, self.table.legend)
        return self.changed(
            lambda table: dataclasses.replace(
                table, columns=columns, shown=tuple(columns), legend=legend, shows_empty=True
            )
        )

    def changed(self, change: Callable[[Table], Table]) -> "_ResolvedTable":
        """A copy whose table is `change(table)`."""
        return dataclasses.replace(self, table=change(self.table))


def _value_range(table: Table, column: str) -> str:
    """A short list or the range of a column's values; empty for a table without rows."""
    a_row_each = {hashable(row[column]): row for row in table.rows}
    ordered = sorted(a_row_each.values(), key=lambda row: sort_key(row[column]))
    texts = [human_field(table, row, column) for row in ordered]
    if len(texts) <= _MAX_VALUES:
        return " or ".join(texts)
    if is_number(table, column):
        known = [text for text, row in zip(texts, ordered, strict=True) if row[column] is not None]
        return f"{known[0]} to {known[-1]}"
    return f"{', '.join(texts[:_MAX_VALUES])} or {pluralize(len(texts) - _MAX_VALUES, 'other')}"


def _resolve_in_sweep(
    sweep: SweepSummary | SweepContents, plan: SweepRecord | None, words: Sequence[str]
) -> _ResolvedTable:
    """The results table, with a column for each of the `words` that is a setting; `model` refers to `model.name`."""
    if not words:
        return _resolve(result_rows(sweep, plan), words)
    settings = gather_cells(sweep.runs, sweep.damaged, plan).names()
    return _resolve(result_rows(sweep, plan, requested=words), words, others=_with_groups(settings))


def _with_groups(settings: Sequence[str]) -> list[str]:
    """The settings, and the groups that stand for one of them."""
    return [*settings, *(name.removesuffix(".name") for name in settings if name.endswith(".name"))]


def _resolve(table: Table, words: Sequence[str], *, others: Sequence[str] = ()) -> _ResolvedTable:
    """Find the column of `table` that each word refers to; `others` are further valid names."""
    columns = {
        word: column
        for word in words
        for column in (word.replace("-", "_"), f"{word}.name", column_of(word), word)  # the last one that exists
        if column in table.columns
    }
    return _ResolvedTable(table, columns, list(dict.fromkeys([*table.columns, *others])))

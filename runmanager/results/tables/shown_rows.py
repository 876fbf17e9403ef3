"""The rows that people get: one for all seeds of a cell, mean ± standard deviation, without shorter runs.

And the rows of several sweeps in one table, with the name of each row's sweep.
"""

import dataclasses
from collections import Counter
from collections.abc import Collection, Hashable, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any, TypeVar

from runmanager.records.run.status import Status, is_complete
from runmanager.records.settings.values import differing_settings, hashable
from runmanager.records.storage.versioned_file import gc_paused
from runmanager.results.compare.comparison_table import ComparisonRow, ComparisonTable, rows_by_sides
from runmanager.results.compare.verdict import INCONCLUSIVE
from runmanager.results.load.cells import CellsWith
from runmanager.results.load.run_summary import RunSummary, damage_notes
from runmanager.results.load.several_sweeps import SWEEP, NamedSweep
from runmanager.results.table_model.columns import (
    BASE_SETTINGS,
    RESULT_COLUMNS,
    Directions,
    LoggedColumns,
    Row,
    Table,
    column_of,
    logged_columns,
    result_columns,
    setting_name,
)
from runmanager.results.table_model.formatting import Spread
from runmanager.results.tables.results_table import (
    label_notes,
    labelled,
    labels_of,
    result_rows,
    results_legend,
    row_notes,
    shown_columns,
)
from runmanager.text import format_value, pluralize

SEEDS = "seeds"
"""The column with the number of runs that a row's means are of."""

_LEGEND = "A row is the mean ± standard deviation over its finished seeds."
_PARTIAL = "n: only so many have the value; such a mean is never the best."
_SETTING = "settings."
_MAX_NOTES = 10
_MAX_UNMEASURED = 2  # notes on pairs


def collapse_seeds(table: Table, *, each: str = "--each shows the runs.", only: Collection[str] | None = None) -> Table:
    """A results table with one row for all seeds of a cell; unchanged if no two runs differ only in the seed.

    A measured value becomes a `Spread` over the finished runs that have it. `each` is a sentence for the legend that
    says how to see the single runs. `only` are the columns that are needed (None: all): of a large table most are not,
    and are left empty.
    """
    groups = seed_groups(table)
    if len(groups) == len(table.rows):
        return table
    settings = [name for name in table.settings if name not in table.seeds]
    measured = (*_AVERAGED, *table.logged)
    averaged = [name for name in measured if only is None or name in only or name == "epoch_seconds"]
    unneeded = dict.fromkeys(name for name in measured if name not in averaged)
    rows = [_collapsed(runs, averaged, unneeded, table.labels) for runs in groups]
    rows.sort(key=lambda row: (row["epoch_seconds"] is None, row["epoch_seconds"] or 0.0))
    shown = [name for name in table.shown if name not in table.seeds]
    shown.insert(1 + max((shown.index(name) for name in settings if name in shown), default=-1), SEEDS)
    return dataclasses.replace(
        table,
        columns=list(dict.fromkeys(SEEDS if name in table.seeds else name for name in table.columns)),
        rows=rows,
        settings=tuple(settings),
        shown=tuple(shown if len(shown) > 1 else ("run", *shown)),
        legend=" ".join([_LEGEND, *([_PARTIAL] if _has_partial(rows, shown) else []), each, table.legend]),
    )


def _has_partial(rows: Iterable[Row], columns: Iterable[str]) -> bool:
    return any(
        isinstance(value := row.values.get(name), Spread) and value.is_partial for row in rows for name in columns
    )


def seed_groups(table: Table) -> list[list[Row]]:
    """Groups of rows of a results table that differ only in the seed, in the order of their first rows."""
    if not set(table.seeds).intersection(table.settings):
        return [[row] for row in table.rows]
    settings = [name for name in table.settings if name not in (*table.seeds, *table.derived)]
    groups: dict[Hashable, list[Row]] = {}
    for row in table.rows:
        groups.setdefault(tuple(hashable(row[name]) for name in settings), []).append(row)
    return list(groups.values())


def _collapsed(
    runs: Sequence[Row], averaged: Iterable[str], unneeded: Mapping[str, None], labels: Iterable[str]
) -> Row:
    finished = [row for row in runs if is_complete(row["status"], row["reason"])]
    if len(runs) == 1:
        return Row({**runs[0].values, SEEDS: len(finished)}, runs[0].absent_settings)
    values = {**runs[0].values, **unneeded}
    values[SEEDS] = len(finished)
    values["status"] = _counted([run["status"] for run in runs])
    reasons = [run["reason"] for run in runs if run["reason"] is not None]
    values["reason"] = _counted(reasons) if reasons else None
    began = [run["contended"] for run in runs if run["contended"] is not None]
    values["contended"] = any(began) if began else None
    for name in averaged:
        known = [value for run in finished if (value := run.values[name]) is not None]
        values[name] = Spread.of(known, is_partial=len(known) < len(finished)) if known else None
    for name in labels:
        values[name] = "; ".join(dict.fromkeys(run[name] for run in runs if run[name] is not None)) or None
    return Row(values, runs[0].absent_settings)


_NOT_AVERAGED = ("num_parameters", "device_name", "contended", "started_at", "run_dir")
_AVERAGED = tuple(name for name in RESULT_COLUMNS if name not in _NOT_AVERAGED)


def _counted(values: Sequence[str]) -> str:
    """The value if all are equal, else the count of each: `2 finished, 1 failed`."""
    counts = Counter(values)
    return values[0] if len(counts) == 1 else ", ".join(f"{count} {value}" for value, count in counts.items())


ALL_SHOWS = "--all shows"
"""What shows the rows that are left out, for commands with that option."""

_T = TypeVar("_T", bound=Table)


def without_shorter_runs(table: _T, shown_by: str = ALL_SHOWS) -> _T:
    """Return a table without the rows of runs that longer ones continue, with a note of what shows them.

    A cell of which only some seeds are continued keeps all its rows: its mean is that of all seeds.
    """
    whole = [seeds for seeds in seed_groups(table) if all(row.is_continued for row in seeds)]
    left_out = {id(row) for seeds in whole for row in seeds}
    rows = [row for row in table.rows if id(row) not in left_out]
    count = len(table.rows) - len(rows)
    if not count:
        return table
    of = "pair" if "verdict" in table.columns else "run"
    shorter = pluralize(count, f"{of} with fewer epochs is", f"{of}s with fewer epochs are")
    note = f"{shorter} left out, as longer runs continue them; {shown_by} {'it' if count == 1 else 'them'}."
    return dataclasses.replace(table, rows=rows, notes=(*table.notes, note))


def without_skipped_cells(table: Table, shown_by: str = ALL_SHOWS) -> Table:
    """Return a results table without the rows of skipped cells, with a note in one line of which they are and why."""
    skipped = [row for row in table.rows if row["status"] == Status.SKIPPED]
    if not skipped:
        return table
    others = [row for row in table.rows if row["status"] != Status.SKIPPED]
    reasons = ", ".join(Counter(str(row["reason"]) for row in skipped if row["reason"]))
    which = pluralize(len(skipped), "cell{} is", "cells{} are").format(_what_sets_apart(table, skipped, others))
    note = f"{which} skipped{f' ({reasons})' if reasons else ''}; {shown_by} {'it' if len(skipped) == 1 else 'them'}."
    return dataclasses.replace(table, rows=others, notes=(note, *table.notes))


def without_unmeasured_sides(table: ComparisonTable, shown_by: str = ALL_SHOWS) -> ComparisonTable:
    """Return a comparison without the pairs of two sides that none of them measures, and those without any value.

    A note says which they are, or how many of more than a few. Why none is measured is an answer of the comparison.
    """
    notes, left_out = list[str](), set[int]()
    for (candidate, baseline), rows in rows_by_sides(table.rows).items():
        is_measured = any(row.effect is not None for row in rows)
        omitted = [row for row in rows if _has_no_value(row)] if is_measured else rows
        if omitted:
            left_out.update(map(id, omitted))
            which = pluralize(len(omitted), "pair {}is", "pairs {}are").format(f"of {candidate} and {baseline} ")
            notes.append(f"{which} not measured; {shown_by} {'it' if len(omitted) == 1 else 'them'}.")
    if len(notes) > _MAX_UNMEASURED:
        notes = [f"{len(left_out)} pairs are not measured; {shown_by} them."]
    kept = [row for row in table.rows if id(row) not in left_out]
    return dataclasses.replace(table, rows=kept, notes=(*notes, *table.notes))


def _has_no_value(row: ComparisonRow) -> bool:
    return all(row[name] is None for name in row.metric.value_columns)


def pairs_with_answer(table: ComparisonTable) -> ComparisonTable:
    """Return a comparison without the pairs that are not measured, and without a stand-in axis that has no answer."""
    measured = [row for row in table.rows if row.effect]
    has_answer = any(row.is_stand_in and row["verdict"] != INCONCLUSIVE for row in measured)
    return dataclasses.replace(table, rows=[row for row in measured if has_answer or not row.is_stand_in])


def _what_sets_apart(table: Table, rows: Sequence[Row], others: Sequence[Row]) -> str:
    """Return the settings that all of the `rows` share and none of the others has, as ` with device=cuda`."""
    names = [name for name in table.settings if name not in table.derived] if others else ["device"]
    found = []
    for name in names:
        values = {format_value(row.values.get(name)) for row in rows}
        if len(values) == 1 and not values & {format_value(row[name]) for row in others}:
            found.append(f"{setting_name(name)}={values.pop()}")
    return f" with {', '.join(found)}" if found else ""


@gc_paused()
def cross_sweep_rows(sweeps: Sequence[NamedSweep], *, requested: Sequence[str] = ()) -> Table:
    """The rows of `result_rows` of several sweeps: fastest epoch first, with a column `sweep` after `run`.

    A setting that differs within a sweep or between two is a column; it is empty for a sweep that does not have it.
    `run_dir` is the whole path. The labels of a sweep are those of all its runs.
    """
    cells = [each.cells() for each in sweeps]
    varying, telling = _varying(cells)
    words = [*map(column_of, varying), *requested]
    logged = _logged(sweeps, cells)
    tables = [result_rows(each.summary, each.plan, requested=words, among=logged) for each in sweeps]
    settings = _union([_renamed(name) for name in table.settings] for table in tables)
    metrics, rates = tuple(logged.metrics.values()), tuple(logged.rates.values())
    rows = [row for each, table in zip(sweeps, tables, strict=True) for row in _rows(each, table, settings)]
    rows.sort(key=lambda row: ((seconds := row["epoch_seconds"]) is None, seconds or 0.0))
    shown = [name for name in BASE_SETTINGS if name in telling]
    shown += [name for name in telling if name not in BASE_SETTINGS]
    directions = _directions(sweeps, tables)
    table = Table(
        columns=["run", SWEEP, "status", "reason", *settings, *result_columns(rows), *metrics, *rates],
        rows=rows,
        settings=(SWEEP, *settings),
        derived=tuple(_union([_renamed(name) for name in table.derived] for table in tables)),
        seeds=tuple(_union([_renamed(name) for name in table.seeds] for table in tables)),
        logged=(*metrics, *rates),
        directions=directions,
        shown=(SWEEP, *shown_columns([_renamed(column_of(name)) for name in shown] or ["run"], metrics, rates)),
        notes=(*directions.notes(), *row_notes(rows), *_notes(sweeps, tables), *_damage(sweeps)),
        legend=results_legend(logged, rows),
        num_unread=sum(table.num_unread for table in tables),
    )
    return _labelled(table, sweeps)


def _union(lists: Iterable[Iterable[str]]) -> list[str]:
    return list(dict.fromkeys(name for names in lists for name in names))


def _renamed(column: str) -> str:
    """The column of a setting in this table, where `sweep` is another column."""
    return f"{_SETTING}{SWEEP}" if column == SWEEP else column


def _varying(cells: Sequence[CellsWith[RunSummary]]) -> tuple[list[str], list[str]]:
    """The settings that differ within a sweep or between two, in order of appearance, and those shown to people.

    These have the choice of a config group in place of the settings that follow from it.
    """
    constant = []
    for each in filter(lambda each: each.cells, cells):
        known = {**each.shared, **each.cells[0].own}
        if each.default_device is not None:
            known.setdefault("device", each.default_device)
        constant.append({name: value for name, value in known.items() if name not in each.varying})
    within = _union([*each.leading_choices, *each.varying] for each in cells)
    varying = [*within, *(name for name in differing_settings(constant) if name not in within)]
    choices = _union(each.choices for each in cells)
    if not choices:
        return varying, varying
    settings = [name for name in varying if name not in choices]
    together = [replace(cell, own={**each.shared, **cell.own}) for each in cells for cell in each.cells]
    telling = CellsWith(together, {}, settings, None, choices=choices, axes=_union(each.axes for each in cells)).telling
    return varying, [*telling, *(name for name in settings if name in BASE_SETTINGS and name not in telling)]


def _logged(sweeps: Sequence[NamedSweep], cells: Sequence[CellsWith[RunSummary]]) -> LoggedColumns:
    """The columns of what the runs of all sweeps logged, so that a name means the same in every row."""
    names = [
        each.summary.logged_names[index]
        for each in sweeps
        for index in dict.fromkeys(run.logged for run in each.summary.runs)
    ]
    metrics, units = _union(each.metrics for each in names), _union(each.units for each in names)
    settings = _union(each.names() for each in cells) if metrics or units else []
    return logged_columns(metrics, units, [*settings, SWEEP])


def _rows(sweep: NamedSweep, table: Table, settings: Sequence[str]) -> Sequence[Row]:
    """The rows of one sweep's table with the columns of all."""
    here = {_renamed(name) for name in table.settings}
    absent = [name for name in settings if name not in here]
    missing: Mapping[str, Any] = dict.fromkeys(absent)
    root = str(sweep.summary.paths.root)
    rows = []
    for row in table.rows:
        values = row.values
        if SWEEP in table.settings:
            values = {_renamed(name): value for name, value in values.items()}
        values.update(missing)  # made for this table alone
        values[SWEEP] = sweep.name
        if values["run_dir"] is not None:
            values["run_dir"] = f"{root}/{values['run_dir']}"
        rows.append(Row(values, [*row.absent_settings, *absent], row.is_continued))
    return rows


def _directions(sweeps: Sequence[NamedSweep], tables: Sequence[Table]) -> Directions:
    """The directions that the runs of each sweep declare; two sweeps may contradict each other."""
    declared: dict[str, dict[str, str]] = {}
    for each, table in zip(sweeps, tables, strict=True):
        for column, words in table.directions.declared.items():
            for word, run in words.items():
                declared.setdefault(column, {}).setdefault(word, f"{each.name}/{run}")
    return Directions(declared)


def _notes(sweeps: Sequence[NamedSweep], tables: Sequence[Table]) -> list[str]:
    """The notes on each sweep's table, but for those on all rows, on its labels and on damage."""
    lines = []
    for each, table in zip(sweeps, tables, strict=True):
        of_all = {*row_notes(table.rows), *table.directions.notes(), *damage_notes(each.summary.damaged)}
        of_all |= {*label_notes(each.summary.labels.of_sweep)}
        lines += [f"{each.name}: {note}" for note in table.notes if note not in of_all]
    more = len(lines) - _MAX_NOTES
    return [*lines[:_MAX_NOTES], *([f"{more} more notes; the table of each sweep alone has them."] if more > 0 else [])]


def _damage(sweeps: Sequence[NamedSweep]) -> list[str]:
    return [note for each in sweeps for note in damage_notes(each.summary.damaged)]


def _labelled(table: Table, sweeps: Sequence[NamedSweep]) -> Table:
    """The table with the labels of each run, after those of its sweep."""
    labels = {each.name: each.summary.labels for each in sweeps}
    if not any(each.runs or each.tags or each.note for each in labels.values()):
        return table
    of_rows = ((labels[row[SWEEP]], row) for row in table.rows)
    return labelled(table, [each.of_sweep.with_more(labels_of(row, each)) for each, row in of_rows])

"""The results of several sweeps in one table, with the name of each row's sweep."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from runmanager.records.settings.values import differing_settings
from runmanager.records.storage.bulk_reading import gc_paused
from runmanager.results.load.cells import CellsWith
from runmanager.results.load.run_summary import RunSummary, damage_notes
from runmanager.results.load.several_sweeps import SWEEP, NamedSweep
from runmanager.results.table_model.columns import (
    BASE_SETTINGS,
    Directions,
    LoggedColumns,
    Row,
    Table,
    column_of,
    logged_columns,
    result_columns,
)
from runmanager.results.tables.results_table import (
    label_notes,
    labelled,
    labels_of,
    result_rows,
    results_legend,
    row_notes,
    shown_columns,
)

_MAX_NOTES = 10
_SETTING = "settings."


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

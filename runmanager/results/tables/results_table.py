"""The results table (one row per run, with its labels) and the epochs table of a stored sweep."""

import dataclasses
from collections.abc import Iterable, Mapping, Sequence
from itertools import zip_longest
from typing import Any

from runmanager.records.files.paths import folder_name
from runmanager.records.run.measurement import MEASUREMENTS, OUTCOMES, Taken, by_unit, named
from runmanager.records.run.program_report import restored_with
from runmanager.records.run.run_record import InferenceRecord
from runmanager.records.run.status import Status
from runmanager.records.storage.labels import Labels, SweepLabels
from runmanager.records.storage.reader import SweepContents
from runmanager.records.storage.versioned_file import gc_paused
from runmanager.records.sweep.sweep_record import SweepRecord
from runmanager.results.compare.caveats import hidden_cost_notes
from runmanager.results.load.cells import CellsWith, continued_runs, gather_cells
from runmanager.results.load.contention import contention
from runmanager.results.load.run_summary import (
    OVERALL_RATE,
    SUMMARY_COLUMNS,
    RunSummary,
    SweepSummary,
    damage_notes,
    metric_names,
    summarize,
    unit_names,
)
from runmanager.results.table_model.columns import (
    BASE_SETTINGS,
    EPOCH_COLUMNS,
    RESULT_COLUMNS,
    RUN_COLUMNS,
    Directions,
    LoggedColumns,
    Row,
    Table,
    column_of,
    logged_columns,
    result_columns,
    setting_of,
)
from runmanager.text import pluralize

_TIMES_LEGEND = "Times and throughput: medians over epochs without warm-up."
_TIMES = frozenset(named(each for each in MEASUREMENTS if each.taken is Taken.MEDIAN))
_LOGGED_LEGEND = "Logged metrics: the last value."
_SHOWN = [each for each in MEASUREMENTS if each.spare is not None]
_SHOWN_OUTCOMES = ("status", "reason", "epochs", *named(by_unit(each for each in _SHOWN if each.name in OUTCOMES)))
_SHOWN_TIMES = named(each for each in _SHOWN if each.taken is Taken.MEDIAN)
_SHOWN_REST = tuple(name for name in named(_SHOWN) if name not in (*_SHOWN_OUTCOMES, *_SHOWN_TIMES))
_SHOWN_EPOCHS = EPOCH_COLUMNS[:6]  # up to the outcomes
_SHOWN_EPOCH_TIMES = ("epoch_seconds", "warmup")
_MAX_NAMED = 5


@gc_paused()
def result_rows(
    sweep: SweepSummary | SweepContents,
    plan: SweepRecord | None,
    *,
    requested: Sequence[str] = (),
    among: LoggedColumns | None = None,
) -> Table:
    """The rows of results.csv: fastest epoch first, then runs without a measured epoch in order of start.

    Times and throughput are medians over the measured epochs; `run_seconds` is the time of the whole run, up to its
    last epoch if it was killed. The last columns are what the programs logged. Cells of `plan` without a folder are
    rows with the status `pending`. Each word in `requested` that is a setting gets a column even if the setting does
    not vary; other words are ignored. `among` are the columns of what was logged in several sweeps, where the table is
    one of theirs.
    """
    summary = summarize(sweep, plan) if isinstance(sweep, SweepContents) else sweep
    runs = summary.runs
    cells = gather_cells(runs, summary.damaged, plan)
    asked = _requested_settings(cells, requested)
    columns = [(name, column_of(name)) for name in dict.fromkeys([*cells.file_columns, *asked])]
    following = [name for name in cells.following if name not in asked]
    runs_folder = summary.paths.runs.name
    logged, of_names = _logged_columns(summary, cells, among)
    in_metrics, in_rates = tuple(logged.metrics.values()), tuple(logged.rates.values())
    no_logged = dict.fromkeys((*in_metrics, *in_rates))
    contention_causes = contention([run.exposure for run in runs])
    continued = continued_runs(runs)
    rows = []
    for cell, causes in zip_longest(cells.cells, contention_causes):  # cells with a run come first
        values: dict[str, Any] = {"run": cell.run, "status": Status.PENDING.value, "reason": None}
        absent: list[str] = []
        for name, column in columns:
            values[column] = value = cells.value(cell, name, _ABSENT)
            if value is _ABSENT:
                values[column] = None
                absent.append(column)
        if cell.stored is None:
            values.update(_NO_RESULTS | no_logged)
        else:
            values.update(zip(SUMMARY_COLUMNS, cell.stored.values, strict=True))
            of_run = of_names[cell.stored.logged]
            if len(of_run) < len(no_logged):
                values.update(no_logged)
            values.update(zip(of_run, cell.stored.logged_values, strict=True))
            values["run_dir"] = f"{runs_folder}/{cell.stored.folder}"
            values["contended"] = None if causes is None else bool(causes)
        rows.append(Row(values, absent, cell.run in continued))
    rows.sort(key=lambda row: ((seconds := row["epoch_seconds"]) is None, seconds or 0.0))
    settings = tuple(column for _, column in columns)
    directions = declared_directions(summary)
    table = Table(
        columns=[*RUN_COLUMNS, *settings, *result_columns(rows), *in_metrics, *in_rates],
        rows=rows,
        settings=settings,
        derived=tuple(column for name, column in columns if name in cells.choices or name in following),
        seeds=tuple(map(column_of, cells.seeds)),
        logged=(*in_metrics, *in_rates),
        directions=directions.of_columns(_metrics_of_columns(logged)),
        shown=shown_columns(_shown_settings(cells), in_metrics, in_rates),
        notes=(
            *label_notes(summary.labels.of_sweep),
            *_removed_notes(plan, runs),
            *_warmup_notes(runs),
            *_attempt_notes(runs),
            *_deviation_notes(runs),
            *_clock_notes(runs),
            *directions.notes(),
            *_adopted_notes(runs),
            *row_notes(rows),
            *_unobserved_notes(runs),
            *damage_notes(summary.damaged),
        ),
        legend=results_legend(logged, rows),
        num_unread=_num_unread(summary),
        metric=plan.metric if plan and isinstance(plan.metric, str) else None,
    )
    labels = summary.labels
    return labelled(table, [labels_of(row, labels) for row in rows]) if labels.runs else table


def labels_of(row: Row, labels: SweepLabels) -> Labels:
    """The labels of the folder that a row's run has, or will have."""
    if row["run_dir"]:
        return labels.of(str(row["run_dir"]).rpartition("/")[2])
    return labels.runs.get(row["run"]) or labels.of(folder_name(row["run"]))


def has_times(rows: Sequence[Row]) -> bool:
    """Whether any run has a measured epoch, with its time."""
    return any(row["epoch_seconds"] is not None for row in rows)


def legend_of(columns: Iterable[str], legend: str) -> str:
    """Return what a legend says about these columns of its table."""
    return legend if not _TIMES.isdisjoint(columns) else legend.replace(_TIMES_LEGEND, "").strip()


def results_legend(logged: LoggedColumns, rows: Sequence[Row]) -> str:
    """Return the legend of a results table with these logged columns and rows."""
    times = [_TIMES_LEGEND] if has_times(rows) else []
    if not logged.metrics:
        return " ".join(times)
    renamed = [column for name, column in logged.metrics.items() if column != name]
    named = ", ".join(renamed[:_MAX_NAMED]) + (", …" if len(renamed) > _MAX_NAMED else "")
    others = f" `metrics.` marks those that have the name of another column or a setting: {named}." if renamed else ""
    return " ".join([*times, f"{_LOGGED_LEGEND}{others}"])


def shown_columns(settings: Sequence[str], metrics: Sequence[str], rates: Sequence[str]) -> tuple[str, ...]:
    """The columns of a results table for people, with these settings and logged columns."""
    return (*settings, *_SHOWN_OUTCOMES, *metrics, *_SHOWN_TIMES, *rates, *_SHOWN_REST)


def epoch_rows(sweep: SweepContents, plan: SweepRecord | None = None) -> Table:
    """The rows of epochs.csv: every epoch of every run, runs in order of start."""
    cells = gather_cells(sweep.runs, sweep.damaged, plan)
    names = [(name, column_of(name)) for name in cells.file_columns]
    epochs = [epoch for run in sweep.runs for epoch in run.epochs]
    logged = logged_columns(metric_names(epochs), unit_names(epochs), cells.names())
    no_logged = dict.fromkeys((*logged.metrics.values(), *logged.counts.values()))
    rows = []
    for cell in cells.cells:
        if cell.stored is None:
            continue
        settings = {column: cells.value(cell, name) for name, column in names}
        for epoch in cell.stored.epochs:
            values: dict[str, Any] = {"run": cell.run}
            values.update((column, getattr(epoch, column)) for column in EPOCH_COLUMNS[1:])
            values["samples"] = epoch.known_samples
            values |= settings | no_logged
            values.update((logged.metrics[name], value) for name, value in (epoch.metrics or {}).items())
            values.update((logged.counts[unit], count) for unit, count in (epoch.units or {}).items())
            rows.append(Row(values))
    columns = tuple(column for _, column in names)
    in_metrics = tuple(logged.metrics.values())
    return Table(
        columns=[*EPOCH_COLUMNS, *columns, *no_logged],
        rows=rows,
        settings=columns,
        logged=in_metrics,
        shown=(*_SHOWN_EPOCHS, *in_metrics, *_SHOWN_EPOCH_TIMES),
        notes=tuple(damage_notes(sweep.damaged)),
    )


def inference_rows(sweep: SweepContents) -> Table:
    """The rows of inference.csv: each batch size of every run that has measured inference, runs in order of start."""
    columns = [name for name in InferenceRecord.__struct_fields__ if name != "num_calls"]
    rows = [
        Row({"run": run.record.name} | {name: getattr(each, name) for name in columns})
        for run in sweep.runs
        for each in run.record.measurements.inference or ()
    ]
    return Table(columns=["run", *columns], rows=rows)


def _logged_columns(
    summary: SweepSummary, cells: CellsWith[RunSummary], among: LoggedColumns | None
) -> tuple[LoggedColumns, Mapping[int, Sequence[str]]]:
    """The columns of what the runs logged, in order of first appearance, and those of each of the `logged_names`."""
    indices = dict.fromkeys(run.logged for run in summary.runs)
    names = [summary.logged_names[index] for index in indices]
    metrics = [name for each in names for name in each.metrics]
    units = [unit for each in names for unit in each.units]
    columns = among or logged_columns(metrics, units, cells.names() if metrics or units else ())
    return columns, {
        index: [*(columns.metrics[name] for name in each.metrics), *(columns.rates[unit] for unit in each.units)]
        for index, each in zip(indices, names, strict=True)
    }


def declared_directions(summary: SweepSummary) -> Directions:
    """The directions that the runs declare, each with the first run that does."""
    first: dict[int, str] = {}
    for run in summary.runs:
        first.setdefault(run.logged, run.name)
    return Directions.collected((name, summary.logged_names[index].better) for index, name in first.items())


def _metrics_of_columns(logged: LoggedColumns) -> dict[str, str]:
    """The metric of each column that has one."""
    return {name: name for name in OUTCOMES} | {column: name for name, column in logged.metrics.items()}


def _num_unread(summary: SweepSummary) -> int:
    """The number of runs too damaged to have a row; of other damaged runs only the epochs are lost."""
    damaged = {damage.path.name for damage in summary.damaged if damage.path.parent == summary.paths.runs}
    return len(damaged - {run.folder for run in summary.runs})


_ABSENT = object()
_NO_RESULTS: dict[str, Any] = dict.fromkeys(RESULT_COLUMNS)


def _shown_settings(cells: CellsWith[RunSummary]) -> list[str]:
    """The columns that identify runs: the settings that tell them apart, or the run's name if none does."""
    telling = [name for name in BASE_SETTINGS if name in cells.telling]
    telling += [name for name in cells.telling if name not in BASE_SETTINGS]
    return [column_of(name) for name in telling] or ["run"]


def _requested_settings(cells: CellsWith[RunSummary], requested: Sequence[str]) -> list[str]:
    names = frozenset(cells.names() if requested else ())
    return [name for word in requested if (name := setting_of(word, names)) is not None]


def row_notes(rows: Sequence[Row]) -> list[str]:
    """The notes computed from the rows of a results table alone; a filtered table has its own."""
    return [*hidden_cost_notes(rows), *_contention_notes(rows)] if rows and OVERALL_RATE in rows[0].values else []


def _contention_notes(rows: Sequence[Row]) -> list[str]:
    """A note on contended runs, as the terminal may omit the column."""
    began = [began for row in rows if (began := row.values.get("contended")) is not None]
    num_contended = sum(began)
    if not num_contended:
        return []
    of_runs = f"of {len(began)} runs"
    which = "The run was" if len(began) == 1 else pluralize(num_contended, f"{of_runs} was", f"{of_runs} were")
    return [f"{which} contended: other load was on the machine, so times may be too long."]


def _warmup_notes(runs: Sequence[RunSummary]) -> list[str]:
    """A note on finished runs whose epochs are all warm-up, which explains their missing times."""
    unmeasured = [run for run in runs if run.num_unmeasured and Status(run.status) is Status.FINISHED]
    if not unmeasured:
        return []
    lengths = {run.num_unmeasured for run in unmeasured}
    what = "The only epoch was warm-up" if lengths == {1} else "Every epoch was warm-up"
    names = [run.name for run in unmeasured[:_MAX_NAMED]]
    more = len(unmeasured) - len(names)
    return [f"{what}, so times are missing: {', '.join(names)}{f' and {more} more' if more else ''}."]


def _removed_notes(plan: SweepRecord | None, runs: Sequence[RunSummary]) -> list[str]:
    """A note on cells whose runs were removed by command, as a rerun leaves them out."""
    count = len(plan.removed) if plan else 0
    if not count:
        return []
    again = restored_with({run.kind for run in runs}, "it" if count == 1 else "them")
    return [f"{pluralize(count, 'cell was removed', 'cells were removed')}{': ' if again else ''}{again}."]


def _attempt_notes(runs: Sequence[RunSummary]) -> list[str]:
    """Notes on epochs that were made in another environment, which explain why they do not count."""
    lines = [f"{run.name}: {line}." for run in runs for line in run.attempt_notes]
    return _first_lines(lines)


def _deviation_notes(runs: Sequence[RunSummary]) -> list[str]:
    """Notes on deviations of runs from their settings."""
    lines = [f"{run.name}: {line}." for run in runs for line in run.deviations]
    return _first_lines(lines)


def _clock_notes(runs: Sequence[RunSummary]) -> list[str]:
    """Notes on devices that were throttled, or whose clock changed between the epochs of a run."""
    return _first_lines([f"{run.name}: {line}." for run in runs for line in run.clock_notes])


def _adopted_notes(runs: Sequence[RunSummary]) -> list[str]:
    """A note on runs of other programs, as their status is less certain."""
    count = sum(run.is_adopted for run in runs)
    if not count:
        return []
    which = (
        "The run was"
        if len(runs) == count == 1
        else pluralize(count, f"of {len(runs):,} runs was", f"of {len(runs):,} runs were")
    )
    return [
        f"{which} adopted: `finished` means that it left metrics; how it ended was not recorded, nothing was timed."
    ]


def _first_lines(lines: Sequence[str]) -> list[str]:
    """The first few lines, and the number of the others."""
    more = len(lines) - _MAX_NAMED
    return [*lines[:_MAX_NAMED], *([f"{more} more like these, in the runs' run.json."] if more > 0 else [])]


def _unobserved_notes(runs: Sequence[RunSummary]) -> list[str]:
    """A note on runs with status `running` on other hosts, whose processes cannot be checked from here."""
    unobserved = [run.last_seen for run in runs if run.last_seen]
    if not unobserved:
        return []
    more = f" and {len(unobserved) - _MAX_NAMED} more" if len(unobserved) > _MAX_NAMED else ""
    names = f"{', '.join(unobserved[:_MAX_NAMED])}{more}"
    return [f"Running on another host, as recorded: {names}. `runmanager watch` checks whether they are alive."]


TAGS, NOTE = "tags", "note"
_PREFIX = "labels."  # of a column whose name another one has, such as a setting `tags`


def join_tags(labels: Labels) -> str | None:
    """Return the tags as one text; None where there are none."""
    return ", ".join(labels.tags) or None


def labelled(table: Table, labels: Sequence[Labels]) -> Table:
    """The table with the labels of each of its rows, in columns after all others; only for labels that a row has."""
    values = {TAGS: [join_tags(each) for each in labels], NOTE: [each.note or None for each in labels]}
    names = {kind: _free_name(kind, table.columns) for kind, texts in values.items() if any(texts)}
    rows = list(table.rows)
    for kind, name in names.items():
        rows = [
            Row({**row.values, name: text}, row.absent_settings, row.is_continued)
            for row, text in zip(rows, values[kind], strict=True)
        ]
    columns = tuple(names.values())
    return dataclasses.replace(
        table, columns=[*table.columns, *columns], rows=rows, labels=columns, shown=(*table.shown, *columns)
    )


def _free_name(name: str, columns: Sequence[str]) -> str:
    while name in columns:
        name = f"{_PREFIX}{name}"
    return name


def label_notes(labels: Labels) -> list[str]:
    """The labels of a whole sweep as notes on its table."""
    tags = [f"Tags of the sweep: {', '.join(labels.tags)}."] if labels.tags else []
    return [*tags, *([f"Note on the sweep: {labels.note}"] if labels.note else [])]

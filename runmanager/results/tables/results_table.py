"""The results table, one row a run, and the epochs table, one row an epoch, from what is stored."""

from collections.abc import Sequence
from itertools import zip_longest
from typing import Any

from runmanager.records.run.status import Status
from runmanager.records.storage.gc_paused import gc_paused
from runmanager.records.storage.reader import SweepContents
from runmanager.records.sweep.record import SweepRecord
from runmanager.results.compare.hidden_costs import hidden_cost_notes
from runmanager.results.load.cells import CellsWith, gather_cells
from runmanager.results.load.contention import contention
from runmanager.results.load.run_summary import (
    OVERALL,
    SUMMARY_COLUMNS,
    RunSummary,
    SweepSummary,
    damage_notes,
    summarize,
)
from runmanager.results.model.columns import (
    BASE_SETTINGS,
    EPOCH_COLUMNS,
    MISSING,
    NULLS,
    RESULT_COLUMNS,
    RUN_COLUMNS,
    Table,
    column_of,
    setting_of,
)
from runmanager.text import pluralize

__all__ = ["Table", "epoch_rows", "result_rows", "row_notes"]

LEGEND = (
    f"{MISSING} is not measured. Times and throughput are medians over the measured epochs: warm-up epochs "
    "(the first, and any before the step time settles) do not count."
)
_SHOWN_RESULTS = (
    *("status", "reason", "epochs", "accuracy", "val_accuracy", "loss", "val_loss", "epoch_seconds"),
    *("samples_per_second", "peak_memory_bytes", "contended"),
)
_SHOWN_EPOCHS = ("run", "epoch", "loss", "accuracy", "val_loss", "val_accuracy", "epoch_seconds", "warmup")
_MAX_NAMED = 5


@gc_paused()
def result_rows(sweep: SweepSummary | SweepContents, plan: SweepRecord | None, *, asked: Sequence[str] = ()) -> Table:
    """The rows of results.csv: fastest epoch first, runs without a measured epoch last, in order of start.

    Times and throughput are medians over the measured epochs, `run_seconds` is the whole run's (as far as it got,
    where it did not end by itself). Cells of `plan` that have no folder yet are rows with the status `pending`.
    Settings that are `asked` for have a column too, whether they vary or not; other words are left to the caller.
    """
    summary = summarize(sweep, plan) if isinstance(sweep, SweepContents) else sweep
    runs = summary.runs
    cells = gather_cells(runs, summary.damaged, plan)
    columns = [(name, column_of(name)) for name in _settings(cells, asked)]
    runs_folder = summary.paths.runs.name
    met = contention([run.exposure for run in runs])
    rows = []
    for cell, causes in zip_longest(cells.cells, met):  # the runs come first among the cells
        row: dict[str, Any] = {"run": cell.run, "status": Status.PENDING.value, "reason": None}
        nulls: list[str] = []
        for name, column in columns:
            row[column] = value = cells.value(cell, name, _ABSENT)
            if value is _ABSENT:
                row[column] = None
            elif value is None:
                nulls.append(column)
        row[NULLS] = nulls
        row.update(_NO_RESULTS)
        if cell.stored is not None:
            row.update(zip(SUMMARY_COLUMNS, cell.stored.values, strict=True))
            row["run_dir"] = f"{runs_folder}/{cell.stored.folder}"
            row["contended"] = None if causes is None else bool(causes)
        rows.append(row)
    rows.sort(key=lambda row: (row["epoch_seconds"] is None, row["epoch_seconds"] or 0.0))
    settings = tuple(column for _, column in columns)
    return Table(
        columns=[*RUN_COLUMNS, *settings, *RESULT_COLUMNS],
        rows=rows,
        settings=settings,
        shown=(*_shown_settings(cells), *_SHOWN_RESULTS),
        notes=(
            *_warmup_notes(runs),
            *_attempt_notes(runs),
            *_deviation_notes(runs),
            *row_notes(rows),
            *_sight_notes(runs),
            *damage_notes(summary.damaged),
        ),
        legend=LEGEND,
        num_unread=_num_unread(summary),
    )


def epoch_rows(sweep: SweepContents, plan: SweepRecord | None = None) -> Table:
    """The rows of epochs.csv: every epoch of every run, runs in order of start."""
    cells = gather_cells(sweep.runs, sweep.damaged, plan)
    names = [(name, column_of(name)) for name in cells.columns]
    rows = []
    for cell in cells.cells:
        if cell.stored is None:
            continue
        settings = {column: cells.value(cell, name) for name, column in names}
        for epoch in cell.stored.epochs:
            row: dict[str, Any] = {"run": cell.run}
            row.update((column, getattr(epoch, column)) for column in EPOCH_COLUMNS[1:])
            rows.append(row | settings)
    columns = tuple(column for _, column in names)
    return Table(
        columns=[*EPOCH_COLUMNS, *columns],
        rows=rows,
        settings=columns,
        shown=_SHOWN_EPOCHS,
        notes=tuple(damage_notes(sweep.damaged)),
        legend=f"{MISSING} is not measured.",
    )


def _num_unread(summary: SweepSummary) -> int:
    """How many runs are damaged so that they are not even among the rows; of others the epochs alone are."""
    damaged = {damage.path.name for damage in summary.damaged if damage.path.parent == summary.paths.runs}
    return len(damaged - {run.folder for run in summary.runs})


_ABSENT = object()
_NO_RESULTS: dict[str, Any] = dict.fromkeys(RESULT_COLUMNS)


def _shown_settings(cells: CellsWith[RunSummary]) -> list[str]:
    """The columns that tell the runs apart for people: the settings that vary, or the run's name where none does."""
    varying = [name for name in BASE_SETTINGS if name in cells.varying]
    varying += [name for name in cells.varying if name not in BASE_SETTINGS]
    return [column_of(name) for name in varying] or ["run"]


def _settings(cells: CellsWith[RunSummary], asked: Sequence[str]) -> list[str]:
    if not asked:
        return cells.columns
    names = frozenset(cells.names())
    wanted = (setting_of(word, names) for word in asked)
    return list(dict.fromkeys([*cells.columns, *(name for name in wanted if name is not None)]))


def row_notes(rows: Sequence[dict[str, Any]]) -> list[str]:
    """What the rows of a results table say together; a part of the rows says it of itself."""
    return [*hidden_cost_notes(rows), *_contention_notes(rows)] if rows and OVERALL in rows[0] else []


def _contention_notes(rows: Sequence[dict[str, Any]]) -> list[str]:
    """A line that stays where the column had to give way."""
    began = [row["contended"] for row in rows if row.get("contended") is not None]
    met = sum(began)
    if not met:
        return []
    which = (
        "The run was" if len(began) == 1 else pluralize(met, f"of {len(began)} runs was", f"of {len(began)} runs were")
    )
    return [f"{which} contended: other load was on the machine, so times may be too long."]


def _warmup_notes(runs: Sequence[RunSummary]) -> list[str]:
    """Which runs have epochs, but none that is measured: their empty times are no fault of theirs."""
    unmeasured = [run for run in runs if run.num_unmeasured]
    if not unmeasured:
        return []
    lengths = {run.num_unmeasured for run in unmeasured}
    what = "The only epoch was warm-up" if lengths == {1} else "Every epoch was warm-up"
    names = [run.name for run in unmeasured[:_MAX_NAMED]]
    more = len(unmeasured) - len(names)
    return [f"{what}, so there are no times: {', '.join(names)}{f' and {more} more' if more else ''}."]


def _attempt_notes(runs: Sequence[RunSummary]) -> list[str]:
    """Which epochs were made elsewhere than the record says, so that nobody wonders why they do not count."""
    lines = [f"{run.name}: {line}." for run in runs for line in run.of_attempts]
    return _first(lines, "Like these: {} more, in the runs' run.json.")


def _deviation_notes(runs: Sequence[RunSummary]) -> list[str]:
    """What runs did otherwise than their settings ask."""
    lines = [f"{run.name}: {line}." for run in runs for line in run.deviations]
    return _first(lines, "Like these: {} more, in the runs' run.json.")


def _first(lines: Sequence[str], rest: str) -> list[str]:
    """The first few lines, and in `rest` how many more there are."""
    more = len(lines) - _MAX_NAMED
    return [*lines[:_MAX_NAMED], *([rest.format(more)] if more > 0 else [])]


def _sight_notes(runs: Sequence[RunSummary]) -> list[str]:
    """Which runs say `running` where nobody here can see whether they do."""
    unseen = [run.heard for run in runs if run.heard]
    if not unseen:
        return []
    more = f" and {len(unseen) - _MAX_NAMED} more" if len(unseen) > _MAX_NAMED else ""
    said = f"{', '.join(unseen[:_MAX_NAMED])}{more}"
    return [f"Running on another host, as they say: {said}. `runmanager watch` sees whether they live."]

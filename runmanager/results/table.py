"""The results table, one row a run, and the epochs table, one row an epoch, from what is stored."""

from collections.abc import Callable, Iterable, Sequence
from itertools import zip_longest
from operator import attrgetter
from typing import Any

from runmanager.records.attempts import said_of_attempts
from runmanager.records.collecting import collector_at_rest
from runmanager.records.heartbeat import last_heard
from runmanager.records.run import EpochRecord, RunRecord
from runmanager.records.states import Status
from runmanager.records.store import StoredRun, SweepContents
from runmanager.records.sweep import SweepRecord
from runmanager.results.cells import Cells, gather_cells
from runmanager.results.columns import (
    BASE_SETTINGS,
    EPOCH_COLUMNS,
    MISSING,
    PHASE_COLUMNS,
    RESULT_COLUMNS,
    RUN_COLUMNS,
    Table,
    column_of,
)
from runmanager.results.contention import contention
from runmanager.results.statistics import iqr, median

__all__ = ["Table", "epoch_rows", "measured_epochs", "result_rows"]

LEGEND = (
    f"{MISSING} is not measured or not set. Times and throughput are medians over the measured epochs: warm-up epochs "
    "(the first, and any before the step time settles) do not count."
)
_SHOWN_RESULTS = (
    *("status", "reason", "epochs", "accuracy", "val_accuracy", "loss", "val_loss", "epoch_seconds"),
    *("samples_per_second", "peak_memory_bytes", "contended"),
)
_SHOWN_EPOCHS = ("run", "epoch", "loss", "accuracy", "val_loss", "val_accuracy", "epoch_seconds", "warmup")
_MAX_NAMED = 5


@collector_at_rest()
def result_rows(sweep: SweepContents, plan: SweepRecord | None) -> Table:
    """The rows of results.csv: fastest epoch first, runs without a measured epoch last, in order of start.

    Times and throughput are medians over the measured epochs, `run_seconds` is the whole run's (as far as it got,
    where it did not end by itself). Cells of `plan` that have no folder yet are rows with the status `pending`.
    """
    cells = gather_cells(sweep, plan)
    columns = [(name, column_of(name)) for name in cells.columns]
    runs_folder = sweep.paths.runs.name
    rows = []
    for cell, causes in zip_longest(cells.cells, contention(sweep.runs)):  # the runs come first among the cells
        row: dict[str, Any] = {"run": cell.run, "status": Status.PENDING.value, "reason": None}
        for name, column in columns:
            row[column] = cells.value(cell, name)
        row.update(_NO_RESULTS)
        if cell.stored is not None:
            row.update(_run_row(cell.stored))
            row["run_dir"] = f"{runs_folder}/{cell.stored.paths.name}"
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
            *_warmup_notes(sweep.runs),
            *_attempt_notes(sweep.runs),
            *_deviation_notes(sweep.runs),
            *_contention_notes(rows),
            *_sight_notes(sweep.runs),
            *damage_notes(sweep),
        ),
        legend=LEGEND,
    )


def epoch_rows(sweep: SweepContents, plan: SweepRecord | None = None) -> Table:
    """The rows of epochs.csv: every epoch of every run, runs in order of start."""
    cells = gather_cells(sweep, plan)
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
        notes=tuple(damage_notes(sweep)),
        legend=f"{MISSING} is not measured or not set.",
    )


def measured_epochs(run: StoredRun) -> list[EpochRecord]:
    """The epochs that count in medians: timed, and not warm-up."""
    return [epoch for epoch in run.epochs if not epoch.warmup and epoch.epoch_seconds is not None]


def damage_notes(sweep: SweepContents) -> list[str]:
    """What could not be read, one line each."""
    return [f"Not read: {damage.message}" for damage in sweep.damaged]


_NO_RESULTS: dict[str, Any] = dict.fromkeys(RESULT_COLUMNS)


def _run_row(run: StoredRun) -> dict[str, Any]:
    """What the run's record and epochs say, under their columns."""
    record, epochs = run.record, run.epochs
    row: dict[str, Any] = {
        "status": record.status.value,
        "reason": None if record.reason is None else record.reason.value,
        "epochs": len(epochs) - (len(epochs) > 0 and epochs[0].epoch == 0),
        "run_seconds": record.run_seconds,
        "peak_memory_bytes": record.peak_memory_bytes,
        "num_parameters": record.num_parameters,
        "device_name": record.environment.device_name,
        "started_at": record.started_at,
    }
    if epochs:
        last = epochs[-1]
        row["loss"], row["accuracy"] = last.loss, last.accuracy
        row["val_loss"], row["val_accuracy"] = last.val_loss, last.val_accuracy
        if record.run_seconds is None:
            row["run_seconds"] = last.run_seconds
        row.update(_times(measured_epochs(run)))
    return row


_MEDIANS = ("epoch_seconds", "samples_per_second", "wall_seconds", *PHASE_COLUMNS)
_medians_of = attrgetter(*_MEDIANS)


def _times(measured: Sequence[EpochRecord]) -> dict[str, float | None]:
    """Each column's median over the epochs that have it, and the spread of `epoch_seconds`."""
    values = zip(*map(_medians_of, measured), strict=True)
    known = {name: [v for v in column if v is not None] for name, column in zip(_MEDIANS, values, strict=False)}
    times = {name: median(column) for name, column in known.items()}
    return times | {"epoch_seconds_iqr": iqr(known.get("epoch_seconds", []))}


def _shown_settings(cells: Cells) -> list[str]:
    """The columns that tell the runs apart for people: the settings that vary, or the run's name where none does."""
    varying = [name for name in BASE_SETTINGS if name in cells.varying]
    varying += [name for name in cells.varying if name not in BASE_SETTINGS]
    return [column_of(name) for name in varying] or ["run"]


def _contention_notes(rows: Sequence[dict[str, Any]]) -> list[str]:
    """A line that stays where the column had to give way."""
    began = [row["contended"] for row in rows if row["contended"] is not None]
    met = sum(began)
    if not met:
        return []
    which = "The run was" if len(began) == 1 else f"{met} of {len(began)} runs were"
    return [f"{which} contended: other load was on the machine, so times may be too long."]


def _warmup_notes(runs: Sequence[StoredRun]) -> list[str]:
    """Which runs have epochs, but none that is measured: their empty times are no fault of theirs."""
    unmeasured = [
        run for run in runs if run.epochs and run.epochs[-1].epoch > 0 and all(epoch.warmup for epoch in run.epochs)
    ]
    if not unmeasured:
        return []
    lengths = {sum(epoch.epoch > 0 for epoch in run.epochs) for run in unmeasured}
    what = "The only epoch was warm-up" if lengths == {1} else "Every epoch was warm-up"
    names = [run.record.name for run in unmeasured[:_MAX_NAMED]]
    more = len(unmeasured) - len(names)
    return [f"{what}, so there are no times: {', '.join(names)}{f' and {more} more runs' if more else ''}."]


def _attempt_notes(runs: Sequence[StoredRun]) -> list[str]:
    """Which epochs were made elsewhere than the record says, so that nobody wonders why they do not count."""
    return _named(runs, said_of_attempts, "So it is of {} more runs or stretches of epochs.")


def _deviation_notes(runs: Sequence[StoredRun]) -> list[str]:
    """What runs did otherwise than their settings ask."""
    return _named(runs, lambda record: record.deviations, "Like these: {} more, in the runs' run.json.")


def _named(runs: Sequence[StoredRun], lines_of: Callable[[RunRecord], Iterable[str]], rest: str) -> list[str]:
    """A sentence for each line about a run, the first few in full, and in `rest` how many more there are."""
    lines = [f"{run.record.name}: {line}." for run in runs for line in lines_of(run.record)]
    more = len(lines) - _MAX_NAMED
    return [*lines[:_MAX_NAMED], *([rest.format(more)] if more > 0 else [])]


def _sight_notes(runs: Sequence[StoredRun]) -> list[str]:
    """Which runs say `running` where nobody here can see whether they do."""
    unseen = [run for run in runs if run.record.is_out_of_sight]
    if not unseen:
        return []
    names = ", ".join(map(_heard_of, unseen[:_MAX_NAMED]))
    more = f" and {len(unseen) - _MAX_NAMED} more runs" if len(unseen) > _MAX_NAMED else ""
    return [f"Running on another host, as they say: {names}{more}. `runmanager watch` sees whether they live."]


def _heard_of(run: StoredRun) -> str:
    assert run.record.owner is not None
    return f"{run.record.name} on {run.record.owner.host} ({last_heard(run.beat)})"

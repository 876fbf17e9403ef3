"""Adopting a folder: its runs become a sweep of this package, recorded as far as its files tell."""

import datetime
import fnmatch
import math
import os
from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import msgspec

from runmanager.app.adopt.found_runs import FoundRun, find_runs, is_own_sweep
from runmanager.errors import UsageError
from runmanager.records.files.atomic_files import read_bytes, replace_file
from runmanager.records.files.file_errors import require_writable
from runmanager.records.files.paths import SweepPaths, folder_name
from runmanager.records.run.run_record import EpochRecord, RunRecord
from runmanager.records.run.status import Reason, Status
from runmanager.records.settings.signature import readable_name, short_signature, signature
from runmanager.records.settings.values import differing_settings, flatten
from runmanager.records.storage.reader import read_sweep
from runmanager.records.storage.versioned_file import encode_record
from runmanager.records.sweep.sweep_record import PlannedCell, SweepCommand, plan_cell, write_cells
from runmanager.results.program_files.folder_metrics import ProgramMetrics
from runmanager.results.program_files.metric_tables import ProgramMetric
from runmanager.text import encodable, in_backticks, shell_join
from runmanager.validation import suggestion

_MAX_NAMED = 5


_NOTE = "adopted: how the run ended was not recorded, and nothing of it was timed"
_NO_METRICS = "adopted: it left no metrics, and how it ended was not recorded"


def adopted_record(
    run: FoundRun, *, name: str, signature: str, metrics: Sequence[ProgramMetric], deviations: tuple[str, ...] = ()
) -> RunRecord:
    """Return the record of a run that another program made, with these of its metrics.

    It is `finished` where it left any, else `crashed`. It has no time but that of its first event: no tool measured
    the others. `summary` has the metrics that do not belong to epochs.
    """
    last_epoch = max((max(each.series.by_epoch, default=0) for each in metrics), default=0)
    summary = {each.name: _finite(each.series.last) for each in metrics if not _is_of_epochs(each, last_epoch)}
    has_metrics = bool(run.metrics.metrics)
    return RunRecord(
        name=name,
        signature=signature,
        status=Status.FINISHED if has_metrics else Status.CRASHED,
        reason=None if has_metrics else Reason.VANISHED,
        message="" if has_metrics else _NO_METRICS,
        config=run.settings,
        started_at=_moment(run.metrics),
        unsigned=(),
        notes=(*((_NOTE,) if has_metrics else ()), *map(encodable, run.metrics.notes)),
        deviations=deviations,
        summary=summary or msgspec.UNSET,
        origins={each.name: each.origin for each in metrics} or msgspec.UNSET,
        adopted=encodable(str(run.folder)),
        choices=run.choices or msgspec.UNSET,
    )


def adopted_epochs(metrics: Sequence[ProgramMetric]) -> list[EpochRecord]:
    """Return a record for each epoch that a metric has a value of; epochs that the program counts from 0 count from 1.

    Nothing in it is timed. A value that is not finite is None.
    """
    numbers = sorted({epoch for each in metrics for epoch in each.series.by_epoch})
    shift = 1 if numbers[:1] == [0] else 0
    columns = {each.name for each in metrics if each.is_column}
    records = []
    for number in numbers:
        values = {
            each.name: _finite(each.series.by_epoch[number]) for each in metrics if number in each.series.by_epoch
        }
        logged = {name: value for name, value in values.items() if name not in columns}
        epoch = EpochRecord(number + shift, metrics=logged or msgspec.UNSET)
        records.append(msgspec.structs.replace(epoch, **{name: values[name] for name in columns & values.keys()}))
    return records


def describe_early_ends(runs: Sequence[FoundRun]) -> list[tuple[str, ...]]:
    """Return a line for each run whose metrics end before those of others: it was stopped, or was a shorter one."""
    ends = [_end_of(run) for run in runs]
    latest = {unit: max(end for each, end in ends if each == unit) for unit in dict(ends)}
    return [
        (f"its metrics end at {unit} {end}, those of other runs at up to {latest[unit]}",)
        if run.metrics.metrics and end < latest[unit]
        else ()
        for run, (unit, end) in zip(runs, ends, strict=True)
    ]


def _end_of(run: FoundRun) -> tuple[str, int]:
    """Return where a run's metrics end: `epoch` or `step`, and its number as the program counts."""
    series = [each.series for each in run.metrics.metrics]
    if any(each.by_epoch for each in series):
        return "epoch", max(max(each.by_epoch, default=0) for each in series)
    return "step", max((each.last_step or 0 for each in series), default=0)


def _is_of_epochs(metric: ProgramMetric, last_epoch: int) -> bool:
    """Whether the records of epochs hold the last value: tables take that of a column from the last epoch."""
    epochs = metric.series.by_epoch
    if not epochs or metric.series.has_stray:
        return False
    return not metric.is_column or max(epochs) == last_epoch


def _finite(value: float) -> float | None:
    return value if math.isfinite(value) else None


def _moment(metrics: ProgramMetrics) -> str | None:
    """Return the time of the first event in ISO 8601; None where no file has it, or has an impossible one."""
    try:
        known = metrics.started_at
        return None if known is None else datetime.datetime.fromtimestamp(known, datetime.UTC).isoformat()
    except (OverflowError, ValueError, OSError):
        return None


@dataclass(frozen=True)
class Adoption:
    """A sweep of adopted runs: how many there are by status, and what was left out or could not be read.

    `renamed` has the names that tables show for metrics, by those in the files, where they differ.
    """

    paths: SweepPaths
    counts: dict[str, int]
    notes: tuple[str, ...] = ()
    renamed: Mapping[str, str] = field(default_factory=dict)


def default_name(folder: Path) -> str:
    """Return the name for a sweep of this folder's runs; Hydra's `multirun/2026-11-22/21-36-42` needs its date too."""
    parts = folder.resolve().parts
    is_time = bool(parts) and fnmatch.fnmatchcase(parts[-1], "[0-2][0-9]-[0-5][0-9]-[0-5][0-9]*")
    return "_".join(parts[-2:] if is_time else parts[-1:]).strip("/") or "adopted"


def adopt_folder(folder: Path, sweep: SweepPaths, *, metrics: Collection[str] = ()) -> Adoption:
    """Make a sweep of the runs below `folder`; runs of a sweep that was adopted before are replaced or added.

    `metrics` are the names, or patterns like `val*`, of those to keep; by default all. Runs of equal settings are one
    cell: the last of them that left metrics counts. Raises `UsageError` where there is nothing to adopt, or if the
    sweep has runs that were not adopted.
    """
    _refuse(folder, sweep)
    folder = folder.resolve()
    notes: list[str] = []
    found = list(find_runs(folder, notes))
    notes = [note for note in notes if not note.startswith(f"{sweep.root} ")]  # itself, below the folder
    if not found:
        why = f", {notes[0]}" if notes else ""
        raise UsageError(
            "DIR must hold results of Hydra, TensorBoard or Lightning (.hydra/config.yaml, event files, metrics.csv), "
            f"got none in '{folder}'{why}."
        )
    _refuse_unknown(metrics, found)
    cells = _distinct(found, notes)
    with require_writable("`--output-root`", sweep.root.parent, way_out="give another one with --output-root"):
        planned = _write_plan(cells, folder, sweep)
        early = describe_early_ends(list(cells.values()))
        records = [
            _write_run(sweep, planned[identity], run, metrics, deviations)
            for (identity, run), deviations in zip(cells.items(), early, strict=True)
        ]
    notes += [
        f"{record.name}: {note}"
        for record, run in zip(records, cells.values(), strict=True)
        for note in run.metrics.notes
    ]
    renamed = {
        each.series.name: each.name
        for run in cells.values()
        for each in run.metrics.metrics
        if each.name != each.series.name and each.is_column and (not metrics or _matches(each, metrics))
    }
    return Adoption(sweep, Counter(record.status.value for record in records), tuple(notes), renamed)


def _refuse(folder: Path, sweep: SweepPaths) -> None:
    if not folder.is_dir():
        got = "a file" if folder.exists() else "nothing there"
        raise UsageError(f"DIR must be a folder with results of other programs, got '{folder}': {got}.")
    if is_own_sweep(folder):
        raise UsageError(
            f"DIR must hold results that were made without runmanager, got a sweep, '{folder}'; "
            f"{in_backticks(shell_join(['runmanager', 'table', str(folder)]))} reads it."
        )
    if not is_own_sweep(sweep.root):
        if os.path.lexists(sweep.root) and not (sweep.root.is_dir() and not any(sweep.root.iterdir())):
            raise UsageError(
                f"`--name` must be that of a new folder, got '{sweep.root}', which exists; give another one."
            )
    elif own := [run.name for run in read_sweep(sweep, epochs_of=lambda _: False).runs if not run.is_adopted]:
        raise UsageError(
            f"`--name` must be a new sweep or one of adopted runs, got '{sweep.root}' with its own run {own[0]}; "
            "give another name."
        )


def _refuse_unknown(metrics: Collection[str], found: Sequence[FoundRun]) -> None:
    known = dict.fromkeys(each.name for run in found for each in run.metrics.metrics)
    for pattern in metrics:
        if not fnmatch.filter(known, pattern):
            raise UsageError(f"`--metric` must name metrics of the runs, got '{pattern}'; {suggestion(pattern, known)}")


def _distinct(found: Iterable[FoundRun], notes: list[str]) -> dict[str, FoundRun]:
    """Return one run of each cell, by signature, with a note for the others."""
    cells: dict[str, FoundRun] = {}
    left_out: list[str] = []
    for run in found:
        identity = signature(run.settings, unsigned=())
        if (other := cells.get(identity)) is None:
            cells[identity] = run
        else:
            cells[identity], old = (run, other) if run.metrics.metrics or not other.metrics.metrics else (other, run)
            left_out.append(f"{old.folder} has the settings of {cells[identity].folder}, and a cell counts once")
    more = len(left_out) - _MAX_NAMED
    notes += [*left_out[:_MAX_NAMED], *([f"{more:,} more have the settings of others"] if more > 0 else [])]
    return cells


def _write_plan(cells: dict[str, FoundRun], folder: Path, sweep: SweepPaths) -> dict[str, PlannedCell]:
    """Write sweep.json; return its cells by signature."""
    settings = {identity: flatten(run.settings) for identity, run in cells.items()}
    varying = differing_settings(list(settings.values()))
    planned: list[PlannedCell] = []
    for identity, run in cells.items():
        own = {name: settings[identity][name] for name in varying if name in settings[identity]}
        name = f"{readable_name(own)}-{short_signature(identity)}"
        cell = plan_cell(identity, folder_name(name), run.settings, unsigned=(), choices=run.choices, name=name)
        planned.append(cell)
    command = ("runmanager", "adopt", encodable(str(folder)), "--name", sweep.name)
    record = write_cells(sweep, planned, SweepCommand(command, default_device=None))
    return {cell.signature: cell for cell in record.planned}


def _write_run(
    sweep: SweepPaths, cell: PlannedCell, run: FoundRun, wanted: Collection[str], deviations: tuple[str, ...]
) -> RunRecord:
    """Write the folder of a run: its epochs first, so that a record never lacks them. Equal files are left alone."""
    metrics = [each for each in run.metrics.metrics if not wanted or _matches(each, wanted)]
    record = adopted_record(run, name=cell.name, signature=cell.signature, metrics=metrics, deviations=deviations)
    paths = sweep.run(cell.run)
    paths.root.mkdir(parents=True, exist_ok=True)
    epochs = list(adopted_epochs(metrics))
    record = msgspec.structs.replace(record, num_records=len(epochs))
    _replace(paths.epochs, _encoded(epochs))
    _replace(paths.record, encode_record(record))
    return record


def _matches(metric: ProgramMetric, patterns: Iterable[str]) -> bool:
    return any(fnmatch.fnmatchcase(metric.name, pattern) for pattern in patterns)


def _encoded(epochs: Iterable[EpochRecord]) -> bytes:
    return b"".join(msgspec.json.encode(epoch) + b"\n" for epoch in epochs)


def _replace(path: Path, content: bytes) -> None:
    try:
        is_equal = read_bytes(path) == content
    except FileNotFoundError:
        is_equal = False
    if not is_equal:
        replace_file(path, content)

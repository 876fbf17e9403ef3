"""Adopting a folder: its runs become a sweep of this package; the folder itself is only read."""

import fnmatch
import os
from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import msgspec

from runmanager.app.adopt.adopted_record import adopted_epochs, adopted_record, describe_early_ends
from runmanager.app.adopt.found_runs import FoundRun, find_runs, is_own_sweep
from runmanager.errors import UsageError
from runmanager.records.files.atomic_files import read_bytes, replace_file
from runmanager.records.files.file_errors import require_writable
from runmanager.records.files.paths import SweepPaths, folder_name
from runmanager.records.run.run_record import EpochRecord, RunRecord
from runmanager.records.settings.naming import readable_name
from runmanager.records.settings.signature import short_signature, signature
from runmanager.records.settings.values import differing_settings, flatten
from runmanager.records.storage.reader import read_sweep
from runmanager.records.storage.versioned_file import encode_record
from runmanager.records.sweep.sweep_record import PlannedCell, plan_cell, write_cells
from runmanager.results.program_files.metric_naming import ProgramMetric
from runmanager.text import encodable, in_backticks, shell_join
from runmanager.validation import suggestion

__all__ = ["Adoption", "adopt_folder", "default_name"]

_MAX_NAMED = 5


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
    record = write_cells(sweep, planned, axes=None, command=command, default_device=None)
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

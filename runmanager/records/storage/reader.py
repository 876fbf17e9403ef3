"""Reading runs and sweeps from their folders; damaged ones are reported."""

import datetime
import os
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec

from runmanager.errors import RecordError
from runmanager.records.files.atomic_files import whole_lines
from runmanager.records.files.file_errors import UNDECODABLE, UNREADABLE, damaged_file_error
from runmanager.records.files.paths import EPOCHS, RECORD, RunPaths, SweepPaths
from runmanager.records.run.attempts import last_sign_of_life
from runmanager.records.run.heartbeat import Beat, HeartbeatObserver, read_beat
from runmanager.records.run.program_report import ProgramReport, with_report
from runmanager.records.run.run_record import EpochRecord, RunRecord, Turn, read_turns
from runmanager.records.run.status import Status
from runmanager.records.storage.labels import NO_LABELS, SweepLabels
from runmanager.records.storage.versioned_file import PARTIAL_DECODER, SharedParts, decode_file, gc_paused
from runmanager.text import encodable

_RECORD_DECODER = msgspec.json.Decoder(RunRecord)
_REPORT_DECODER = msgspec.json.Decoder(ProgramReport)
_EPOCH_DECODER = msgspec.json.Decoder(EpochRecord)


def read_record(paths: RunPaths, *, shared: SharedParts | None = None) -> RunRecord:
    """Read the run's record as stored. Raises `RecordError` if it is missing, damaged or newer than this package.

    `shared` saves time and memory when many records are read.
    """
    path = f"{paths.root}/{RECORD}"
    _check_name(paths)
    if shared is None:
        record = decode_file(path, _RECORD_DECODER)
    else:
        partial = decode_file(path, PARTIAL_DECODER)
        try:
            record = shared.complete(partial)
        except UNDECODABLE as error:
            raise damaged_file_error(path, error) from error
    _require_valid_times(path, record)
    return record


def read_report(paths: RunPaths) -> ProgramReport | None:
    """Read what the run's program reported; None if there is no such file. Raises `RecordError` for a damaged one."""
    return decode_file(paths.reported, _REPORT_DECODER) if paths.reported.exists() else None


def with_program_report(paths: RunPaths, record: RunRecord) -> RunRecord:
    """Return a stored record with what its program reported, if it says `running`; an ended one has all of it.

    Raises `RecordError` for a damaged report.
    """
    return with_report(record, read_report(paths)) if record.status is Status.RUNNING else record


def with_known_report(paths: RunPaths, record: RunRecord) -> RunRecord:
    """Return a stored record as `with_program_report` does, or as it is if the report is damaged."""
    try:
        return with_program_report(paths, record)
    except RecordError:
        return record


def _check_name(run: RunPaths) -> None:
    """Raise `RecordError` if the folder's name is not UTF-8, so that no file can contain it."""
    try:
        run.name.encode()
    except UnicodeEncodeError:
        path = encodable(str(run.root))
        raise RecordError(f"{path} must have a name in UTF-8, got another one; rename the folder.") from None


def read_epochs(paths: RunPaths, record: RunRecord | None = None) -> list[EpochRecord]:
    """Read the run's epochs in order, without a torn last line.

    Raises `RecordError` for a damaged line, and if a run that is finished by this `record` has lost lines.
    """
    try:
        epochs = _EPOCH_DECODER.decode_lines(whole_lines(f"{paths.root}/{EPOCHS}"))
    except UNREADABLE as error:
        raise damaged_file_error(paths.epochs, error) from error
    if record is not None and len(epochs) < (expected := _least(record)):
        raise _lost_epochs_error(paths, expected, len(epochs))
    return epochs


def require_epochs(paths: RunPaths, record: RunRecord) -> None:
    """Raise `RecordError` if the run is finished by this record and has lost epochs; they are counted, not decoded."""
    if not (expected := _least(record)):
        return
    try:
        num_records = whole_lines(f"{paths.root}/{EPOCHS}").count(b"\n")
    except OSError as error:
        raise damaged_file_error(paths.epochs, error) from error
    if num_records < expected:
        raise _lost_epochs_error(paths, expected, num_records)


def _least(record: RunRecord) -> int:
    return record.num_records or 0 if record.status is Status.FINISHED else 0


def _lost_epochs_error(paths: RunPaths, expected: int, found: int) -> RecordError:
    return RecordError(f"{paths.epochs} is damaged: the run finished with {expected} lines in it, got {found}")


@dataclass(frozen=True)
class StoredRun:
    """A run as read: its record with true status (see `RunRecord.observed`), its epochs and its turns in order.

    `beat` is the last heartbeat of a run without a recorded end. With `is_damaged`, its epochs or turns could not be
    read and are empty.
    """

    paths: RunPaths
    record: RunRecord
    epochs: Sequence[EpochRecord] = ()
    beat: Beat | None = None
    turns: Sequence[Turn] = ()
    is_damaged: bool = False

    @property
    def name(self) -> str:
        return self.record.name

    @property
    def folder(self) -> str:
        return self.paths.name

    @property
    def status(self) -> str:
        return self.record.status.value

    @property
    def is_complete(self) -> bool:
        """Whether the run counts: it has finished, and a search has not pruned it."""
        return self.record.is_complete

    @property
    def signature(self) -> str:
        return self.record.signature

    @property
    def settings(self) -> dict[str, Any]:
        return self.record.settings

    @property
    def choices(self) -> dict[str, Any]:
        return self.record.choices or {}

    @property
    def continued_from(self) -> str:
        """The name of the run that this one continues with more epochs; empty if there is none."""
        return self.record.continued_from or ""

    @property
    def is_adopted(self) -> bool:
        """Whether another program made the run, so that its device and its times are not known."""
        return self.record.adopted is not msgspec.UNSET

    @property
    def world_size(self) -> int:
        """The number of ranks that made the run together."""
        return self.record.world_size or 1

    @property
    def own_settings(self) -> dict[str, Any]:
        return self.record.settings


@dataclass(frozen=True)
class Damage:
    """A damaged run folder, with an error message; `is_duplicate`: another folder has the same cell."""

    path: Path
    message: str
    is_duplicate: bool = False


@dataclass(frozen=True)
class SweepContents:
    """The content of a sweep's `runs/`: runs in order of start, and what is damaged; and its labels, where read."""

    paths: SweepPaths
    runs: Sequence[StoredRun]
    damaged: Sequence[Damage] = ()
    labels: SweepLabels = NO_LABELS


def read_last_sign_of_life(paths: RunPaths, record: RunRecord) -> str | None:
    """Read the last time (ISO 8601) at which the process of a run without a recorded end was certainly alive.

    None for a run that never started.
    """
    try:
        epochs = read_epochs(paths)
    except RecordError:
        epochs = []
    return last_sign_of_life(record, epochs, read_beat(paths.heartbeat))


def read_run(paths: RunPaths) -> StoredRun:
    """Read one run with its epochs and turns. Raises `RecordError`."""
    record = with_program_report(paths, read_record(paths))
    epochs, turns = read_epochs(paths, record), _turns_of(paths, record)
    return StoredRun(paths, record.observed(), epochs, _last_beat(paths, record), turns)


def _turns_of(paths: RunPaths, record: RunRecord) -> Sequence[Turn]:
    """Read the turns of a run that took any; for other runs, the disk is not accessed."""
    return () if record.session is None else read_turns(paths)


def read_sweep(
    paths: SweepPaths,
    *,
    observer: HeartbeatObserver | None = None,
    epochs_of: Callable[[RunRecord], bool] = lambda _: True,
) -> SweepContents:
    """Read all runs of a sweep. A damaged run is reported, and is left out only if its record is damaged.

    `observer` has watched runs of other hosts, and may know that they are gone. `epochs_of` decides by a run's stored
    record whether its epochs and turns are read; otherwise they are empty.
    """
    runs: list[StoredRun] = []
    damaged: list[Damage] = []
    shared = SharedParts()
    with gc_paused():
        for name in readable_names(paths, damaged):
            run = read_tolerantly(paths.run(name), damaged, shared=shared, observer=observer, epochs_of=epochs_of)
            if run is not None:
                runs.append(run)
    runs.sort(key=lambda run: order_of_start(run.record.started_at, run.record.name))
    return SweepContents(paths, runs, damaged)


def read_tolerantly(
    run: RunPaths,
    damaged: list[Damage],
    *,
    shared: SharedParts | None = None,
    observer: HeartbeatObserver | None = None,
    epochs_of: Callable[[RunRecord], bool] = lambda _: True,
) -> StoredRun | None:
    """Read one run like `read_sweep`; append damage to `damaged`. Return None if the record cannot be read.

    An empty folder is no damage: Hydra has made it for a run that is about to begin.
    """
    try:
        stored = read_record(run, shared=shared)
    except RecordError as error:
        if not _is_empty(run.root):
            damaged.append(Damage(run.root, str(error)))
        return None
    try:
        stored = with_program_report(run, stored)
    except RecordError as error:
        damaged.append(Damage(run.root, str(error)))
    epochs: Sequence[EpochRecord] = ()
    turns: Sequence[Turn] = ()
    is_damaged = False
    if epochs_of(stored):
        try:
            epochs = read_epochs(run, stored)
            turns = _turns_of(run, stored)
        except RecordError as error:
            is_damaged = True
            damaged.append(Damage(run.root, str(error)))
    record = stored.observed() if observer is None else observer.observed(run, stored)
    return StoredRun(run, record, epochs, _last_beat(run, stored), turns, is_damaged)


def _is_empty(folder: Path) -> bool:
    try:
        return not os.listdir(folder)
    except OSError:
        return False


def order_of_start(started_at: str | None, name: str) -> tuple[str, str]:
    """Return the sort key of a run: its start, then its name; runs that have not begun come last."""
    return started_at or "~", name


def _last_beat(paths: RunPaths, stored: RunRecord) -> Beat | None:
    return read_beat(paths.heartbeat) if stored.status is Status.RUNNING else None


def run_name(paths: RunPaths) -> str:
    """Return the name of the run in a folder; that of the folder where there is no record that can be read."""
    try:
        return read_record(paths).name
    except RecordError:
        return paths.name


def run_names(paths: SweepPaths) -> list[str]:
    """Return the names of the folders under `runs/`, sorted, without hidden ones (`.new-…` are being claimed)."""
    return _scan(paths)[0]


def readable_names(paths: SweepPaths, damaged: list[Damage]) -> list[str]:
    """Return the names as `run_names` does; append the links under `runs/`, which are not followed, to `damaged`."""
    names, links = _scan(paths)
    damaged += (Damage(path, f"{path} must be a folder, got a link, which is not followed.") for path in links)
    return names


def _scan(paths: SweepPaths) -> tuple[list[str], list[Path]]:
    """Return the names of the folders of runs, and what is a link in their place."""
    names, links = [], []
    try:
        if paths.runs.is_symlink():
            return [], [paths.runs]
        with os.scandir(paths.runs) as entries:
            for entry in entries:
                if entry.name.startswith("."):
                    continue
                if entry.is_symlink():
                    links.append(Path(entry.path))
                elif entry.is_dir(follow_symlinks=False):
                    names.append(entry.name)
    except (FileNotFoundError, NotADirectoryError):
        return [], []
    return sorted(names), sorted(links)


def _require_valid_times(path: str, record: RunRecord) -> None:
    """Raise `RecordError` for a record with an invalid time of day."""
    for time in _times_of(record):
        if time is not None and not _is_time(time):
            raise RecordError(f"{path} is damaged: a time of day must be in ISO 8601, got {time!r}")


def _times_of(record: RunRecord) -> Iterator[str | None]:
    yield from (record.started_at, record.resumed_at, record.ended_at)
    for attempt in record.earlier:
        yield from (attempt.started_at, attempt.ended_at)


def _is_time(text: str) -> bool:
    try:
        datetime.datetime.fromisoformat(text)
    except ValueError:
        return False
    return True

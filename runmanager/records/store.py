"""The run folder on disk: writing it as its one owner, reading it and whole sweeps as anybody."""

import os
import shutil
from collections.abc import Callable, Container, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol, TypeVar

import msgspec

from runmanager.errors import RecordError, UsageError
from runmanager.records.attempts import last_sign
from runmanager.records.claims import give_back
from runmanager.records.collecting import collector_at_rest
from runmanager.records.damage import UNDECODABLE, UNREADABLE, damaged
from runmanager.records.files import LineAppender, content_of, replace_file, whole_lines
from runmanager.records.heartbeat import Beat, HeartbeatObserver, read_beat
from runmanager.records.paths import EPOCHS, RECORD, RunPaths, SweepPaths
from runmanager.records.run import SCHEMA_VERSION, EpochRecord, RunRecord
from runmanager.records.sharing import PARTLY_DECODER, SharedParts
from runmanager.records.states import Status
from runmanager.records.turns import Turn, read_turns
from runmanager.records.validity import refuse_name, refuse_times

__all__ = [
    "Damage",
    "RunFolder",
    "StoredRun",
    "SweepContents",
    "decode_file",
    "encode_record",
    "last_moment",
    "order_of_start",
    "read_epochs",
    "read_record",
    "read_run",
    "read_sweep",
    "read_tolerantly",
    "run_names",
]


class RunFolder:
    """The files of a run in the hands of their one writer: the process that claimed it, until it leaves the folder.

    Whatever writes raises `UsageError` in any other process, as a fork of it, and after that.
    """

    def __init__(self, paths: RunPaths, record: RunRecord, *, claim: Path | None = None) -> None:
        self.paths = paths
        self.record = record
        self._claim = claim
        self._writer: int | None = os.getpid()
        self._appender: LineAppender | None = None

    @property
    def is_ours(self) -> bool:
        """Whether this process may write."""
        return self._writer == os.getpid()

    def refuse_others(self) -> None:
        """Raise `UsageError` where this process may not write."""
        if self._writer is None:
            raise UsageError(
                f"Run {self.paths.name} must be written while it runs, got a call after its end; begin it once more."
            )
        if not self.is_ours:
            raise UsageError(
                f"Run {self.paths.name} must be written by process {self._writer}, which began it, got its fork "
                f"{os.getpid()}; begin a run of its own there."
            )

    def write(self, **changes: Any) -> RunRecord:
        """Replace run.json by the record with `changes`."""
        self.refuse_others()
        self.record = msgspec.structs.replace(self.record, **changes)
        replace_file(self.paths.record, encode_record(self.record))
        return self.record

    def is_lost(self) -> bool:
        """Whether another process has ended the run or taken it over. Raises `RecordError` where the folder is gone."""
        try:
            stored = read_record(self.paths)
        except RecordError:
            if not self.paths.root.exists():
                raise RecordError(f"The folder {self.paths.root} must stay while its run runs, got it gone.") from None
            return False  # the next writing says what is wrong
        is_ended = stored.status.is_ended and not self.record.status.is_ended
        return is_ended or (stored.owner, stored.attempt) != (self.record.owner, self.record.attempt)

    def append(self, epoch: EpochRecord) -> None:
        """Add an epoch to epochs.jsonl; it survives a kill from here on."""
        self.refuse_others()
        if self._appender is None:
            self._appender = LineAppender(self.paths.epochs)
        self._appender.append(msgspec.json.encode(epoch))

    def cut_epochs(self, last: EpochRecord | None, *, unmeasured: Container[int] = ()) -> list[EpochRecord]:
        """Keep the epochs up to `last`, added where it is missing, those `unmeasured` as warm-up; return them."""
        kept = [] if last is None else [each for each in read_epochs(self.paths) if each.epoch <= last.epoch]
        if last is not None and (not kept or kept[-1].epoch < last.epoch):
            kept.append(last)
        kept = [msgspec.structs.replace(each, warmup=True) if each.epoch in unmeasured else each for each in kept]
        self.replace_epochs(kept)
        return kept

    def replace_epochs(self, epochs: Sequence[EpochRecord]) -> None:
        """Let epochs.jsonl have these and no others."""
        self.refuse_others()
        self.close()
        replace_file(self.paths.epochs, b"".join(msgspec.json.encode(epoch) + b"\n" for epoch in epochs))

    def begin_anew(self, record: RunRecord) -> None:
        """Put `record` in the place of an earlier attempt, whose files go to attempts/<its number>/.

        A kill in between leaves nothing that lies: the checkpoint goes first, so that nobody goes on from it, and the
        old record says what it says until the new one stands, before the old epochs go.
        """
        self.refuse_others()
        aside = self.paths.attempts / str(self.record.attempt - 1)
        aside.mkdir(parents=True, exist_ok=True)
        shutil.copy2(self.paths.record, aside / self.paths.record.name)
        if self.paths.checkpoint.exists():
            os.replace(self.paths.checkpoint, aside / self.paths.checkpoint.name)
        attempt, self.record = self.record.attempt, record
        self.write(attempt=attempt)
        for path in sorted(self.paths.root.iterdir()):
            if path == self.paths.heartbeat:
                path.unlink()  # of a process that is gone
            elif path not in (self.paths.attempts, self.paths.record) and not path.name.startswith("."):
                os.replace(path, aside / path.name)

    def give_back(self) -> None:
        """Let go of a folder that was there before, unwritten: the next process may claim it while this one lives."""
        self.leave()
        if self._claim is not None:
            give_back(self._claim)
            self._claim = None

    def leave(self) -> None:
        """Write no more: the run has ended, or is not to be run."""
        self.close()
        self._writer = None

    def close(self) -> None:
        if self._appender is not None:
            self._appender.close()
            self._appender = None


def encode_record(record: msgspec.Struct) -> bytes:
    """A record as it stands in its file, to be read by people too."""
    return msgspec.json.format(msgspec.json.encode(record), indent=2) + b"\n"


class _Versioned(msgspec.Struct):
    schema_version: int = SCHEMA_VERSION


class _HasVersion(Protocol):
    @property
    def schema_version(self) -> int: ...


_T = TypeVar("_T", bound=_HasVersion)


def decode_file(path: str | Path, decoder: msgspec.json.Decoder[_T]) -> _T:
    """A versioned JSON file; unknown fields are tolerated, a newer `schema_version` is refused by name."""
    try:
        data = content_of(path)
        try:
            decoded = decoder.decode(data)
            version = decoded.schema_version
        except UNDECODABLE:
            version = _VERSION_DECODER.decode(data).schema_version  # a newer file may have other types
            if version <= SCHEMA_VERSION:
                raise
        if version > SCHEMA_VERSION:
            raise RecordError(
                f"{path} must have a schema_version of at most {SCHEMA_VERSION}, got {version}; "
                "it was written by a newer runmanager: upgrade this one."
            )
        return decoded
    except FileNotFoundError:
        raise RecordError(f"{path} must be a file, got nothing there.") from None
    except UNREADABLE as error:
        raise damaged(path, error) from error


_VERSION_DECODER = msgspec.json.Decoder(_Versioned)
_RECORD_DECODER = msgspec.json.Decoder(RunRecord)
_EPOCH_DECODER = msgspec.json.Decoder(EpochRecord)


def read_record(paths: RunPaths, *, shared: SharedParts | None = None) -> RunRecord:
    """The run's record as stored. Raises `RecordError` if it is missing, damaged or newer than this package.

    `shared` is for those who read many.
    """
    path = f"{paths.root}/{RECORD}"
    refuse_name(paths)
    if shared is None:
        record = decode_file(path, _RECORD_DECODER)
    else:
        partly = decode_file(path, PARTLY_DECODER)
        try:
            record = shared.whole(partly)
        except UNDECODABLE as error:
            raise damaged(path, error) from error
    refuse_times(path, record)
    return record


def read_epochs(paths: RunPaths) -> list[EpochRecord]:
    """The run's epochs in order; a torn last line is left out. Raises `RecordError` for a damaged line."""
    try:
        return _EPOCH_DECODER.decode_lines(whole_lines(f"{paths.root}/{EPOCHS}"))
    except UNREADABLE as error:
        raise damaged(paths.epochs, error) from error


@dataclass(frozen=True)
class StoredRun:
    """A run as read: its record, states made true (see `RunRecord.observed`), its epochs and its turns in order.

    `beat` is the last one of a run whose process has written no end. Where `is_damaged`, its epochs or its turns
    cannot be read, and there are none of them here.
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
    def signature(self) -> str:
        return self.record.signature

    @property
    def settings(self) -> dict[str, Any]:
        return self.record.settings

    @property
    def own_settings(self) -> dict[str, Any]:
        return self.record.settings


@dataclass(frozen=True)
class Damage:
    """A run folder that could not be read, and why."""

    path: Path
    message: str


@dataclass(frozen=True)
class SweepContents:
    """All that a sweep's `runs/` holds: runs in order of start, and what is damaged."""

    paths: SweepPaths
    runs: Sequence[StoredRun]
    damaged: Sequence[Damage] = ()


def last_moment(paths: RunPaths, record: RunRecord) -> str | None:
    """The last moment (ISO 8601) at which the process of a run without an end is known to have lived.

    None for a run that never started.
    """
    try:
        epochs = read_epochs(paths)
    except RecordError:
        epochs = []
    return last_sign(record, epochs, read_beat(paths.heartbeat))


def read_run(paths: RunPaths) -> StoredRun:
    """One run with its epochs. Raises `RecordError`."""
    record = read_record(paths)
    epochs, turns = read_epochs(paths), _turns_of(paths, record)
    return StoredRun(paths, record.observed(), epochs, _last_beat(paths, record), turns)


def _turns_of(paths: RunPaths, record: RunRecord) -> Sequence[Turn]:
    """The measured turns of a run that took any: the others, however many, cost no look at the disk."""
    return () if record.session is None else read_turns(paths)


def read_sweep(
    paths: SweepPaths,
    *,
    observer: HeartbeatObserver | None = None,
    epochs_of: Callable[[RunRecord], bool] = lambda _: True,
) -> SweepContents:
    """Every run of a sweep. A damaged run is reported and drops no other; its epochs alone damaged, it stays.

    `observer` is one that has watched runs of other hosts, and may know that they are gone. `epochs_of` says by a run's
    stored record whether its epochs and turns are wanted: those of the others are left unread, and empty.
    """
    runs: list[StoredRun] = []
    damaged: list[Damage] = []
    shared = SharedParts()
    with collector_at_rest():
        for name in run_names(paths):
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
    """One run as `read_sweep` reads it; what is damaged is added to `damaged`, and without a record there is no run."""
    try:
        stored = read_record(run, shared=shared)
    except RecordError as error:
        damaged.append(Damage(run.root, str(error)))
        return None
    epochs: Sequence[EpochRecord] = ()
    turns: Sequence[Turn] = ()
    is_damaged = False
    if epochs_of(stored):
        try:
            epochs = read_epochs(run)
            turns = _turns_of(run, stored)
        except RecordError as error:
            is_damaged = True
            damaged.append(Damage(run.root, str(error)))
    record = stored.observed() if observer is None else observer.observed(run, stored)
    return StoredRun(run, record, epochs, _last_beat(run, stored), turns, is_damaged)


def order_of_start(started_at: str | None, name: str) -> tuple[str, str]:
    """What runs are sorted by: when they began, those that have not last, then their names."""
    return started_at or "~", name


def _last_beat(paths: RunPaths, stored: RunRecord) -> Beat | None:
    return read_beat(paths.heartbeat) if stored.status is Status.RUNNING else None


def run_names(paths: SweepPaths) -> list[str]:
    """The names of the folders under `runs/`, sorted; those that are just being claimed (`.new-…`) left out."""
    try:
        with os.scandir(paths.runs) as entries:
            return sorted(entry.name for entry in entries if not entry.name.startswith(".") and _is_folder(entry))
    except (FileNotFoundError, NotADirectoryError):
        return []


def _is_folder(entry: os.DirEntry[str]) -> bool:
    try:
        return entry.is_dir()
    except OSError:  # a link to itself
        return False

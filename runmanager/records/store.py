"""The run folder on disk: claiming and writing it as its one owner, reading it and whole sweeps as anybody."""

import errno
import os
import shutil
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

import msgspec

from runmanager.errors import RecordError, RunBusyError
from runmanager.records.files import LineAppender, complete_lines, replace_file
from runmanager.records.paths import RunPaths, SweepPaths
from runmanager.records.process import ProcessIdentity
from runmanager.records.run import SCHEMA_VERSION, EpochRecord, RunRecord
from runmanager.records.turns import Turn, read_turns

__all__ = ["Damage", "RunFolder", "StoredRun", "SweepContents", "claim_run", "read_record", "read_run", "read_sweep"]

_T = TypeVar("_T")

_OWNER = "owner.json"


class RunFolder:
    """The files of a run in the hands of their one writer."""

    def __init__(self, paths: RunPaths, record: RunRecord, *, claim: Path | None = None) -> None:
        self.paths = paths
        self.record = record
        self._claim = claim
        self._appender: LineAppender | None = None

    def write(self, **changes: Any) -> RunRecord:
        """Replace run.json by the record with `changes`."""
        self.record = msgspec.structs.replace(self.record, **changes)
        replace_file(self.paths.record, encode_record(self.record))
        return self.record

    def append(self, epoch: EpochRecord) -> None:
        """Add an epoch to epochs.jsonl; it survives a kill from here on."""
        if self._appender is None:
            self._appender = LineAppender(self.paths.epochs)
        self._appender.append(msgspec.json.encode(epoch))

    def cut_epochs(self, last: EpochRecord | None) -> list[EpochRecord]:
        """Keep the epochs up to `last`, adding it where its line is missing; None keeps none. Returns what is kept."""
        kept: list[EpochRecord] = []
        if last is not None:
            kept = [epoch for epoch in read_epochs(self.paths) if epoch.epoch < last.epoch]
            kept.append(next((e for e in read_epochs(self.paths) if e.epoch == last.epoch), last))
        self.close()
        replace_file(self.paths.epochs, b"".join(msgspec.json.encode(epoch) + b"\n" for epoch in kept))
        return kept

    def begin_anew(self, record: RunRecord) -> None:
        """Put `record` in the place of an earlier attempt, whose files go to attempts/<its number>/.

        A kill in between leaves nothing that lies: the checkpoint goes first, so that nobody goes on from it, and the
        old record says what it says until the new one stands, before the old epochs go.
        """
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
        if self._claim is not None:
            _give_back(self._claim)
            self._claim = None

    def close(self) -> None:
        if self._appender is not None:
            self._appender.close()
            self._appender = None


def encode_record(record: msgspec.Struct) -> bytes:
    return msgspec.json.format(msgspec.json.encode(record), indent=2) + b"\n"


def claim_run(paths: RunPaths, record: RunRecord) -> RunFolder:
    """Become the one writer of a run folder, new or left by a process that is gone.

    `record` is written at once for a new folder. For one that exists, the folder's own record comes back unchanged
    but for its owner and a raised `attempt`, and the caller decides what to keep.
    Raises `RunBusyError` when a living process owns it.
    """
    paths.root.parent.mkdir(parents=True, exist_ok=True)
    if not paths.record.exists():
        beside = Path(tempfile.mkdtemp(dir=paths.root.parent, prefix=".new-"))
        beside.chmod(0o755)
        (beside / paths.record.name).write_bytes(encode_record(record))
        try:
            # An empty folder gives way, one that holds files does not: one of two claimants wins.
            os.rename(beside, paths.root)
            return RunFolder(paths, record)
        except OSError:
            shutil.rmtree(beside)
            if not paths.record.exists():
                raise RunBusyError(
                    f"Folder {paths.root} must be empty or hold a run.json, got other files; move them away."
                ) from None
    return _take_over(paths, record)


def _take_over(paths: RunPaths, record: RunRecord) -> RunFolder:
    assert record.owner is not None
    while True:
        stored = read_record(paths)
        if stored.owner is not None and not stored.status.is_ended and stored.owner.is_alive() is not False:
            raise RunBusyError(f"Run {paths.name} is being run by process {stored.owner.pid} on {stored.owner.host}.")
        claim = _claim_attempt(paths, stored.attempt + 1, record.owner)
        if read_record(paths) == stored:
            attempt = int(claim.name.rpartition("-")[2])
            return RunFolder(paths, msgspec.structs.replace(stored, attempt=attempt, owner=record.owner), claim=claim)
        _give_back(claim)  # somebody took over, ran and ended between the reading and the claiming: look again


def _claim_attempt(paths: RunPaths, attempt: int, owner: ProcessIdentity) -> Path:
    """Set up the claim on the first attempt from `attempt` on that no process, or only a dead one, has claimed."""
    beside = Path(tempfile.mkdtemp(dir=paths.root, prefix=".claiming-"))
    try:
        replace_file(beside / _OWNER, msgspec.json.encode(owner))
        while True:
            try:
                # A claim appears with its owner in it, or not at all: a kill never leaves one of nobody's.
                os.rename(beside, paths.claim(attempt))
                return paths.claim(attempt)
            except OSError as error:
                if error.errno not in (errno.ENOTEMPTY, errno.EEXIST):
                    raise
            claimant_lives = _claimant_lives(paths.claim(attempt))
            if claimant_lives:
                raise RunBusyError(f"Run {paths.name} is being taken over by another process.")
            attempt += claimant_lives is False
    except BaseException:
        shutil.rmtree(beside, ignore_errors=True)
        raise


def _claimant_lives(claim: Path) -> bool | None:
    """Whether the process behind a claim lives, or may; None where the claim was just given back."""
    try:
        return msgspec.json.decode((claim / _OWNER).read_bytes(), type=ProcessIdentity).is_alive() is not False
    except FileNotFoundError:
        return None
    except msgspec.MsgspecError:
        return False  # it was whole when it appeared, so this is damage from after its time


def _give_back(claim: Path) -> None:
    gone = Path(tempfile.mkdtemp(dir=claim.parent, prefix=".claiming-"))
    os.rename(claim, gone)
    shutil.rmtree(gone)


def decode_file(path: Path, kind: type[_T]) -> _T:
    """A versioned JSON file; unknown fields are tolerated, a newer `schema_version` is refused by name."""
    try:
        data = path.read_bytes()
        version = msgspec.json.decode(data, type=_Versioned).schema_version
        if version > SCHEMA_VERSION:
            raise RecordError(
                f"{path} must have a schema_version of at most {SCHEMA_VERSION}, got {version}; "
                "it was written by a newer runmanager: upgrade this one."
            )
        return msgspec.json.decode(data, type=kind)
    except FileNotFoundError:
        raise RecordError(f"{path} must be a file, got nothing there.") from None
    except (OSError, msgspec.MsgspecError, RecursionError) as error:
        raise RecordError(f"{path} is damaged: {error}") from error


class _Versioned(msgspec.Struct):
    schema_version: int = SCHEMA_VERSION


def read_record(paths: RunPaths) -> RunRecord:
    """The run's record as stored. Raises `RecordError` if it is missing, damaged or newer than this package."""
    return decode_file(paths.record, RunRecord)


_EPOCH_DECODER = msgspec.json.Decoder(EpochRecord)


def read_epochs(paths: RunPaths) -> list[EpochRecord]:
    """The run's epochs in order; a torn last line is left out. Raises `RecordError` for a damaged line."""
    try:
        return [_EPOCH_DECODER.decode(line) for line in complete_lines(paths.epochs)]
    except (OSError, msgspec.MsgspecError, RecursionError) as error:
        raise RecordError(f"{paths.epochs} is damaged: {error}") from error


@dataclass(frozen=True)
class StoredRun:
    """A run as read: its record, states made true (see `RunRecord.observed`), its epochs and its turns in order."""

    paths: RunPaths
    record: RunRecord
    epochs: Sequence[EpochRecord] = ()
    turns: Sequence[Turn] = ()


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


def read_run(paths: RunPaths) -> StoredRun:
    """One run with its epochs. Raises `RecordError`."""
    record = read_record(paths).observed()
    return StoredRun(paths, record, read_epochs(paths), _turns_of(paths, record))


def _turns_of(paths: RunPaths, record: RunRecord) -> Sequence[Turn]:
    """The measured turns of a run that took any: the others, however many, cost no look at the disk."""
    if record.session is None:
        return ()
    try:
        return read_turns(paths)
    except (OSError, msgspec.MsgspecError, RecursionError) as error:
        raise RecordError(f"{paths.turns} is damaged: {error}") from error


def read_sweep(paths: SweepPaths) -> SweepContents:
    """Every run of a sweep. A damaged run is reported and drops no other; its epochs alone damaged, it stays."""
    runs, damaged = [], []
    for folder in run_folders(paths):
        run = RunPaths(folder)
        try:
            record = read_record(run).observed()
        except RecordError as error:
            damaged.append(Damage(run.root, str(error)))
            continue
        epochs: Sequence[EpochRecord] = ()
        turns: Sequence[Turn] = ()
        try:
            epochs = read_epochs(run)
            turns = _turns_of(run, record)
        except RecordError as error:
            damaged.append(Damage(run.root, str(error)))
        runs.append(StoredRun(run, record, epochs, turns))
    runs.sort(key=lambda run: (run.record.started_at or "~", run.record.name))
    return SweepContents(paths, runs, damaged)


def run_folders(paths: SweepPaths) -> list[Path]:
    """The folders under `runs/`, by name; those that are just being claimed (`.new-…`) left out."""
    if not paths.runs.is_dir():
        return []
    with os.scandir(paths.runs) as entries:
        return sorted(Path(entry.path) for entry in entries if entry.is_dir() and not entry.name.startswith("."))

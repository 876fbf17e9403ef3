"""Claiming a run folder and writing it as its only owner: record, epochs, and files of earlier attempts."""

import errno
import os
import shutil
from collections.abc import Callable, Collection, Sequence
from pathlib import Path
from typing import Any

import msgspec

from runmanager.errors import RecordError, RunBusyError, UsageError
from runmanager.records.files.atomic_files import (
    LineAppender,
    make_folder,
    new_folder,
    read_bytes,
    replace_file,
    sync_folder,
)
from runmanager.records.files.file_errors import UNREADABLE
from runmanager.records.files.paths import RunPaths
from runmanager.records.host.process import ProcessIdentity
from runmanager.records.run.run_record import EpochRecord, RunRecord
from runmanager.records.storage.reader import read_epochs, read_record, run_name
from runmanager.records.storage.versioned_file import encode_record

_OWNER = "owner.json"


def claim_attempt(
    paths: RunPaths, attempt: int, owner: ProcessIdentity, *, is_abandoned: Callable[[Path], bool]
) -> Path:
    """Claim the first attempt from `attempt` on that no living process has claimed.

    `is_abandoned` decides whether a claim of another host, whose process cannot be seen, is abandoned. Raises
    `RunBusyError` if a living process has claimed the run.
    """
    prepared = new_folder(paths.root, ".claiming-")
    try:
        replace_file(prepared / _OWNER, msgspec.json.encode(owner))
        while True:
            claim = paths.claim(attempt)
            try:
                # A claim appears with its owner in it, or not at all: a kill never leaves one without owner.
                os.rename(prepared, claim)
                return claim
            except OSError as error:
                if error.errno not in (errno.ENOTEMPTY, errno.EEXIST):
                    raise
            try:
                is_alive = _is_claimant_alive(claim)
            except FileNotFoundError:
                if not _lacks_owner(claim):
                    continue  # it was just released
                is_alive = False
            if is_alive or (is_alive is None and not is_abandoned(claim)):
                raise RunBusyError(f"Run {run_name(paths)} is being taken over by another process.")
            attempt += 1
    except BaseException:
        shutil.rmtree(prepared, ignore_errors=True)
        raise


def _is_claimant_alive(claim: Path) -> bool | None:
    """Whether the process of a claim is alive; None if it runs on another host."""
    try:
        return msgspec.json.decode(read_bytes(claim / _OWNER), type=ProcessIdentity).is_alive()
    except FileNotFoundError:
        raise
    except UNREADABLE:
        return False  # it was complete when it appeared, so it was damaged later


def _lacks_owner(claim: Path) -> bool:
    """Whether the folder is there with other files than it appeared with."""
    try:
        names = os.listdir(claim)
    except FileNotFoundError:
        return False
    return bool(names) and _OWNER not in names


def release_claim(claim: Path) -> None:
    """Remove a claim, atomically."""
    gone = new_folder(claim.parent, ".claiming-")
    os.rename(claim, gone)
    shutil.rmtree(gone)


class RunFolder:
    """The files of a run for their only writer: the process that claimed the folder, until it calls `leave`.

    Methods that write raise `UsageError` in any other process, such as a fork, and after `leave`.
    """

    is_supervised = False
    """Whether another process writes run.json and the heartbeat."""
    continues = False
    """Whether this attempt continues an earlier one, or another run, from a checkpoint."""

    def __init__(self, paths: RunPaths, record: RunRecord, *, claim: Path | None = None) -> None:
        self.paths = paths
        self.record = record
        self.resumed_from: RunRecord | None = None  # what was stored of the attempt that this one resumes
        self._claim = claim
        self._writer: int | None = os.getpid()
        self._appender: LineAppender | None = None

    @property
    def heartbeat(self) -> Path:
        """The file for this process's heartbeat."""
        return self.paths.heartbeat

    @property
    def is_ours(self) -> bool:
        """Whether this process may write."""
        return self._writer == os.getpid()

    def refuse_others(self) -> None:
        """Raise `UsageError` if this process may not write."""
        if self._writer is None:
            raise UsageError(
                f"Run {self.record.name} must be written while it runs, got a call after its end; begin the run again."
            )
        if not self.is_ours:
            raise UsageError(
                f"Run {self.record.name} must be written by process {self._writer}, which began it, got its fork "
                f"{os.getpid()}; begin another run there."
            )

    def write(self, **changes: Any) -> RunRecord:
        """Change fields of the record and replace run.json."""
        self.refuse_others()
        self.record = msgspec.structs.replace(self.record, **changes)
        replace_file(self.paths.record, encode_record(self.record))
        return self.record

    def is_lost(self) -> bool:
        """Whether another process has ended the run or taken it over. Raises `RecordError` if the folder is gone."""
        try:
            stored = read_record(self.paths)
        except RecordError:
            if not self.paths.root.exists():
                raise RecordError(
                    f"The folder {self.paths.root} must exist while its run is running, got none."
                ) from None
            return False  # the next write reports what is wrong
        is_ended = stored.status.is_ended and not self.record.status.is_ended
        return is_ended or (stored.owner, stored.attempt) != (self.record.owner, self.record.attempt)

    def append(self, epoch: EpochRecord) -> None:
        """Append an epoch to epochs.jsonl; from then on it survives a kill."""
        self.refuse_others()
        if self._appender is None:
            self._appender = LineAppender(self.paths.epochs)
        self._appender.append(msgspec.json.encode(epoch))

    def keep_epochs(self, epochs: Sequence[EpochRecord]) -> None:
        """Write the appended epochs again if their file was deleted or moved. Raises `RecordError` like `is_lost`."""
        is_kept = self.paths.epochs.exists() if self._appender is None else self._appender.is_in_place()
        if epochs and not is_kept and not self.is_lost():
            self.replace_epochs(epochs)

    def sync_epochs(self) -> None:
        """Let all appended epochs survive a power cut, before a checkpoint does that comes after them."""
        if self._appender is not None:
            self._appender.sync()

    def cut_epochs(self, last: EpochRecord | None, *, unmeasured: Collection[range] = ()) -> list[EpochRecord]:
        """Keep the epochs up to `last`, added if missing; mark those in `unmeasured` as warm-up. Return them."""
        kept = [] if last is None else [each for each in read_epochs(self.paths) if each.epoch <= last.epoch]
        if last is not None and (not kept or kept[-1].epoch < last.epoch):
            kept.append(last)
        kept = [
            msgspec.structs.replace(each, warmup=True) if any(each.epoch in some for some in unmeasured) else each
            for each in kept
        ]
        self.replace_epochs(kept)
        return kept

    def replace_epochs(self, epochs: Sequence[EpochRecord]) -> None:
        """Replace the epochs in epochs.jsonl."""
        self.refuse_others()
        self.close()
        replace_file(self.paths.epochs, b"".join(msgspec.json.encode(epoch) + b"\n" for epoch in epochs))

    def restart(self, record: RunRecord) -> Path:
        """Begin a new attempt with `record`; the files of the earlier one move to attempts/<its number>/, returned.

        If this attempt has resumed the earlier one, its heartbeat, its log and the run's settings stay.
        A kill in between leaves a truthful folder: the checkpoint moves first, so that no process resumes from it, and
        the old record stays until the new one replaces it, before the old epochs move.
        """
        self.refuse_others()
        earlier = self.paths.attempts / str(self.record.attempt - 1)
        make_folder(earlier)
        if self.resumed_from is None:
            replace_file(earlier / self.paths.record.name, read_bytes(self.paths.record))
        else:
            replace_file(earlier / self.paths.record.name, encode_record(self.resumed_from))
        if self.paths.checkpoint.exists():
            os.replace(self.paths.checkpoint, earlier / self.paths.checkpoint.name)
        attempt, self.record = self.record.attempt, record
        self.write(attempt=attempt)
        staying = [self.paths.attempts, self.paths.record]
        if self.resumed_from is not None:
            staying += [self.paths.heartbeat, self.paths.log, self.paths.config]
        for path in sorted(self.paths.root.iterdir()):
            if path in staying or path.name.startswith("."):
                continue
            if path == self.paths.heartbeat:
                path.unlink()  # its process is gone
            else:
                os.replace(path, earlier / path.name)
        sync_folder(earlier)
        return earlier

    def discard_copies(self, record: RunRecord) -> None:
        """Begin with `record` instead of continuing another run, whose files were copied; the checkpoint goes first."""
        self.refuse_others()
        self.close()
        self.paths.checkpoint.unlink()
        attempt, self.record = self.record.attempt, record
        self.write(attempt=attempt)
        for path in (self.paths.epochs, self.paths.best, self.paths.events):
            if path is not None:
                path.unlink(missing_ok=True)

    def release(self) -> None:
        """Release an existing folder without having written it: another process may claim it while this one lives."""
        self.leave()
        if self._claim is not None:
            release_claim(self._claim)
            self._claim = None

    def leave(self) -> None:
        """Stop writing: the run has ended, or will not be run."""
        try:
            self.close()
        finally:
            self._writer = None

    def close(self) -> None:
        if self._appender is not None:
            try:
                self._appender.close()
            finally:
                self._appender = None

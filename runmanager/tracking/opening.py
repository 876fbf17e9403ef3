"""Taking a run folder into hand: new, gone on with from its checkpoint, or begun anew with its old files put aside."""

import os
from collections.abc import Sequence
from dataclasses import dataclass, field

from runmanager.records.paths import RunPaths
from runmanager.records.run import EpochRecord, RunRecord
from runmanager.records.states import Status
from runmanager.records.store import RunFolder, claim_run, read_record

__all__ = ["OpenedRun", "open_run"]

_RESUMABLE = (Status.KILLED, Status.CRASHED)


@dataclass(frozen=True)
class OpenedRun:
    """A run folder and what is to be done with it."""

    folder: RunFolder
    is_kept: bool = False
    is_resumed: bool = False
    history: Sequence[EpochRecord] = field(default_factory=tuple)


def open_run(paths: RunPaths, record: RunRecord, *, can_resume: bool, overwrite: bool) -> OpenedRun:
    """Claim the folder for `record`.

    A finished run is kept as it is, unless `overwrite`; a killed or crashed one with a checkpoint is to be gone on
    with where the caller can; any other is begun anew, its old files in attempts/.
    Raises `RunBusyError` when a living process owns it.
    """
    folder = claim_run(paths, record)
    stored = folder.record
    if stored is record:
        return OpenedRun(folder)
    status = stored.observed().status if stored.owner != record.owner else stored.status
    if status is Status.FINISHED and not overwrite:
        folder.give_back()
        return OpenedRun(RunFolder(paths, read_record(paths)), is_kept=True)
    if can_resume and not overwrite and _was_broken_off(status) and paths.checkpoint.exists():
        _put_error_aside(paths, stored.attempt - 1)
        folder.write(status=Status.RUNNING, reason=None, message="", ended_at=None, environment=record.environment)
        return OpenedRun(folder, is_resumed=True)
    if status is Status.SKIPPED:  # nothing was done that could be kept
        folder.record = record
        folder.write(attempt=stored.attempt)
    else:
        folder.begin_anew(record)
    return OpenedRun(folder)


def _put_error_aside(paths: RunPaths, attempt: int) -> None:
    """Let error.txt be that of the attempt that it ended, and not of one that goes well."""
    if paths.error.exists():
        aside = paths.attempts / str(attempt)
        aside.mkdir(parents=True, exist_ok=True)
        os.replace(paths.error, aside / paths.error.name)


def _was_broken_off(status: Status) -> bool:
    # `running` was found without a living owner: claim_run would have refused it otherwise.
    return status in _RESUMABLE or status is Status.RUNNING

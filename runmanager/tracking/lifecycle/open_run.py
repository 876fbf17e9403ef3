"""Open a run folder: a new one, one to resume from its checkpoint, or one to restart with its old files put aside."""

import os
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import msgspec
import yaml

from runmanager.errors import RecordError
from runmanager.records.files.atomic_files import replace_file
from runmanager.records.files.paths import RunPaths
from runmanager.records.run.heartbeat import HeartbeatObserver
from runmanager.records.run.run_record import Attempt, EpochRecord, RunRecord
from runmanager.records.run.status import Status
from runmanager.records.storage.ownership import claim_run
from runmanager.records.storage.reader import read_epochs, read_last_sign_of_life, read_record
from runmanager.records.storage.run_end import skipped_record
from runmanager.records.storage.run_folder import RunFolder
from runmanager.tracking.checkpoint.checkpoint_file import CheckpointError


@dataclass(frozen=True)
class OpenedRun:
    """A run folder to run in, or one with nothing to run, where `left` says why."""

    folder: RunFolder
    left: str = ""


def open_run(
    paths: RunPaths,
    record: RunRecord,
    *,
    can_resume: bool,
    overwrite: bool,
    lacks: str = "",
    reopens_finished: bool = False,
    needs_checkpoint: bool = True,
    may_hold_files: bool = False,
    observer: HeartbeatObserver | None = None,
) -> OpenedRun:
    """Claim the folder for `record`, and write the run's settings; `observer` and `may_hold_files`: see `claim_run`.

    A finished run is kept, unless `overwrite` is set. With `can_resume` a run that was broken off continues, if it has
    a checkpoint or does not need one (`needs_checkpoint`), and with `reopens_finished` a finished one too. Any other
    run is restarted, its old files in attempts/, and so is one whose epochs cannot be read. Where the host has not what
    the run needs, `lacks` says so: it is recorded as skipped, unless another host has run it.
    Raises `RunBusyError` if a living process owns the folder.
    """
    if lacks:
        known = read_record(paths).observed() if paths.record.exists() else None
        if known is not None and known.status not in _LEFT_NOTHING:
            return OpenedRun(RunFolder(paths, known), f"stays {known.status}: {lacks}")
        record, can_resume, overwrite = skipped_record(record, lacks), False, False
    folder = claim_run(paths, record, observer=observer, may_hold_files=may_hold_files)
    left = _prepare(
        folder,
        record,
        is_resumable=can_resume and not overwrite and (paths.checkpoint.exists() or not needs_checkpoint),
        keeps_finished=not overwrite,
        reopens_finished=reopens_finished,
    )
    if not left:
        config = yaml.dump(folder.record.config, Dumper=_DUMPER, sort_keys=False, allow_unicode=True)
        replace_file(paths.config, config)
        left = f"skipped: {lacks}" if lacks else ""
    return OpenedRun(folder, left)


_DUMPER: Any = getattr(yaml, "CSafeDumper", yaml.SafeDumper)  # same text in a third of the time
_LEFT_NOTHING = (Status.SKIPPED, Status.PENDING)  # to keep


def _prepare(
    folder: RunFolder, record: RunRecord, *, is_resumable: bool, keeps_finished: bool, reopens_finished: bool
) -> str:
    """Let a claimed folder continue, or begin from the start; return why nothing is to run in it."""
    paths = folder.paths
    stored = folder.record
    if stored is record:
        return ""
    seen = stored.observed() if stored.owner != record.owner else stored
    if seen.is_complete and keeps_finished and not (reopens_finished and is_resumable):
        folder.release()
        folder.record = read_record(paths)
        return "finished already, kept"
    if is_resumable and (seen.is_complete or _has_broken_off(stored)) and _readable_epochs(paths) is not None:
        _put_error_aside(paths, stored.attempt - 1)
        assert record.started_at is not None
        folder.resumed_from = read_record(paths)
        folder.write(
            status=Status.RUNNING,
            reason=None,
            message="",
            resumed_at=record.started_at,
            ended_at=None,
            num_records=msgspec.UNSET,
            environment=record.environment,
            earlier=(*stored.earlier, attempt_of(paths, stored, now=record.started_at)),
        )
        folder.continues = True
    elif seen.status in _LEFT_NOTHING:
        folder.record = record
        folder.write(attempt=stored.attempt)
    else:
        folder.restart(record)
    return ""


def begin_again(folder: RunFolder, error: CheckpointError) -> str:
    """Restart a resumed run whose checkpoint cannot be loaded; return a line that says why.

    Its old files, the checkpoint among them, move to attempts/; the log and what belongs to this process stay. What a
    new run has copied from the one that it was to continue is removed.
    """
    stored = folder.record
    fresh = RunRecord(
        name=stored.name,
        signature=stored.signature,
        status=Status.RUNNING,
        config=stored.config,
        started_at=stored.resumed_at or stored.started_at,
        owner=stored.owner,
        environment=stored.environment,
        unsigned=stored.unsigned,
        better=stored.better,
        choices=stored.choices,
    )
    if stored.continued_from is not msgspec.UNSET and stored.resumed_at is None:
        folder.discard_copies(fresh)
        return f"begun from the start instead of continuing {stored.continued_from}: the checkpoint {error.reason}"
    kept = folder.restart(fresh).relative_to(folder.paths.root) / folder.paths.checkpoint.name
    return f"begun again from the start: the checkpoint {error.reason}; it is kept as {kept}"


def attempt_of(paths: RunPaths, stored: RunRecord, *, now: str) -> Attempt:
    """Return the last attempt of a stored run as an earlier one; its epochs after the checkpoint are cut later."""
    epochs = _readable_epochs(paths)
    return Attempt(
        started_at=stored.resumed_at or stored.started_at or now,
        ended_at=stored.ended_at or read_last_sign_of_life(paths, stored) or now,
        last_epoch=epochs[-1].epoch if epochs else 0,
        environment=stored.environment,
        session=stored.session,
    )


def _put_error_aside(paths: RunPaths, attempt: int) -> None:
    """Move error.txt to the attempt that it belongs to, as the resumed one may succeed."""
    if paths.error.exists():
        aside = paths.attempts / str(attempt)
        aside.mkdir(parents=True, exist_ok=True)
        os.replace(paths.error, aside / paths.error.name)


def _readable_epochs(paths: RunPaths) -> Sequence[EpochRecord] | None:
    """The epochs of a run, None where they cannot be read."""
    try:
        return read_epochs(paths)
    except RecordError:
        return None


def _has_broken_off(stored: RunRecord) -> bool:
    # `running` was found without a living owner: claim_run would have refused it otherwise.
    return stored.is_resumable or stored.status is Status.RUNNING

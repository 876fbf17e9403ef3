"""Open a run folder: a new one, one to resume from its checkpoint, or one to restart with its old files put aside."""

import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import msgspec
import yaml

from runmanager.errors import RecordError
from runmanager.records.files.atomic_files import read_bytes, replace_file
from runmanager.records.files.paths import RunPaths
from runmanager.records.run.environment_changes import changed_code
from runmanager.records.run.heartbeat import HeartbeatObserver
from runmanager.records.run.run_record import Attempt, EpochRecord, RunRecord
from runmanager.records.run.status import Reason, Status
from runmanager.records.storage.ownership import claim_run
from runmanager.records.storage.reader import StoredRun, read_epochs, read_last_sign_of_life, read_record, run_name
from runmanager.records.storage.run_end import skipped_record
from runmanager.records.storage.run_folder import RunFolder
from runmanager.tracking.checkpoint.checkpoint_file import CheckpointError, read_state, write_state


@dataclass(frozen=True)
class OpenedRun:
    """A run folder to run in, or one with nothing to run, where `left` says why."""

    folder: RunFolder
    left: str = ""


@dataclass(frozen=True)
class Reuse:
    """What becomes of a run that is there: a finished one is kept, unless `overwrite` is set.

    With `can_resume` a run that was broken off continues, if it has a checkpoint or does not need one
    (`needs_checkpoint`), and with `reopens_finished` a finished one too. Any other run is restarted.
    """

    can_resume: bool
    overwrite: bool
    reopens_finished: bool = False
    needs_checkpoint: bool = True


def open_run(
    paths: RunPaths,
    record: RunRecord,
    reuse: Reuse,
    *,
    lacks: str = "",
    may_hold_files: bool = False,
    observer: HeartbeatObserver | None = None,
) -> OpenedRun:
    """Claim the folder for `record`, and write the run's settings; `observer` and `may_hold_files`: see `claim_run`.

    A run that is restarted has its old files in attempts/, and one whose epochs cannot be read is. Where the host has
    not what the run needs, `lacks` says so: it is recorded as skipped, unless another host has run it.
    Raises `RunBusyError` if a living process owns the folder.
    """
    if lacks:
        known = read_record(paths).observed() if paths.record.exists() else None
        if known is not None and known.status not in _LEFT_NOTHING:
            return OpenedRun(RunFolder(paths, known), f"stays {known.status}: {lacks}")
        record, reuse = skipped_record(record, lacks), Reuse(can_resume=False, overwrite=False)
    folder = claim_run(paths, record, observer=observer, may_hold_files=may_hold_files)
    left = _prepare(
        folder,
        record,
        is_resumable=reuse.can_resume
        and not reuse.overwrite
        and (paths.checkpoint.exists() or not reuse.needs_checkpoint),
        keeps_finished=not reuse.overwrite,
        reopens_finished=reuse.reopens_finished,
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


_EPOCHS = "epochs"


WithSettings = Callable[[bytes, Mapping[str, Any]], bytes]
"""Returns part of an event file with other settings of its run."""


def continue_run(
    folder: RunFolder, source: RunPaths, *, with_settings: WithSettings, keep_best: str | msgspec.UnsetType | None
) -> bool:
    """Let a run that has just begun continue after the last epoch of the finished run `source`.

    The checkpoint, the epochs, as warm-up, and the events `with_settings` of the new run are copied, so that it is then
    resumed like a killed one. Returns False, with a note of the reason in its record, if `source` cannot be continued
    any more: it was run again since this was planned, has lost its checkpoint, or kept the best weights by another
    metric than `keep_best` (UNSET: that is known to agree).
    A kill in between leaves a run without a checkpoint, which starts again: the checkpoint is copied last.
    """
    try:
        copied = _Copied(source, folder.record, with_settings, keep_best)
    except (RecordError, OSError) as error:
        reason = f"its checkpoint {error.reason}" if isinstance(error, CheckpointError) else str(error)
        line = f"begun from the start instead of continuing {run_name(source)}: {reason}"
        folder.write(notes=(*folder.record.notes, line))
        return False
    copied.write(folder)
    return True


class _Copied:
    """What a run takes over from the one that it continues, read before anything is written.

    Raises `RecordError` if that cannot be continued.
    """

    def __init__(
        self,
        source: RunPaths,
        record: RunRecord,
        with_settings: WithSettings,
        keep_best: str | msgspec.UnsetType | None,
    ) -> None:
        self._stored = stored = read_record(source)
        if reason := _obstacle(stored, record):
            raise RecordError(reason)
        if not source.checkpoint.exists():
            raise RecordError("it has no checkpoint any more")
        self._state: dict[str, Any] = read_state(source.checkpoint)
        if keep_best is not msgspec.UNSET and self._state.get("best", {}).get("metric") != keep_best:
            raise RecordError("it kept the weights of another epoch (`keep_best`)")
        progress = self._state["progress"]
        last: int = progress["record"]["epoch"]
        self._epochs = [_as_warmup(epoch) for epoch in read_epochs(source, stored) if epoch.epoch <= last]
        self._attempts = _attempts(source, stored, last, now=record.started_at or "")
        self._events = source.events
        if self._events is not None:
            events = read_bytes(self._events, is_record=False)[: progress["events_length"]]
            self._event_bytes = with_settings(events, record.settings)
            self._state["progress"] = {**progress, "events_length": len(self._event_bytes)}
        self._best = read_bytes(source.best, is_record=False) if source.best.exists() else None
        if read_record(source) != stored:
            raise RecordError("another process runs it again")

    def write(self, folder: RunFolder) -> None:
        """Write it to the folder of the new run."""
        stored, paths = self._stored, folder.paths
        folder.write(continued_from=stored.name, earlier=self._attempts, deviations=stored.deviations)
        folder.replace_epochs(self._epochs)
        if self._events is not None:
            replace_file(paths.root / self._events.name, self._event_bytes)
        if self._best is not None:
            replace_file(paths.best, self._best)
        write_state(paths.checkpoint, self._state)


def find_shorter(runs: Iterable[StoredRun], record: RunRecord) -> RunPaths | None:
    """Return the longest of these runs that a run with this record can continue."""
    found = [run for run in runs if run.is_complete and not _obstacle(run.record, record)]
    with_checkpoint = [run for run in found if run.paths.checkpoint.exists()]
    return max(with_checkpoint, key=lambda run: _epochs(run.record)).paths if with_checkpoint else None


def _obstacle(stored: RunRecord, record: RunRecord) -> str:
    """Say what rules out that a run with this record continues the stored one; empty if nothing does."""
    if not stored.is_complete or stored.reason is Reason.EARLY_STOPPED:
        return f"it is {stored.status}" + (f" ({stored.reason})" if stored.reason else "")
    if _without_epochs(stored) != _without_epochs(record) or stored.unsigned != record.unsigned:
        return "its settings differ in more than the number of epochs"
    if _epochs(stored) >= _epochs(record):
        return "it has as many epochs"
    return changed_code(stored.environment, record.environment)


def _epochs(record: RunRecord) -> int:
    epochs = record.settings.get(_EPOCHS)
    return epochs if isinstance(epochs, int) else 0


def _without_epochs(record: RunRecord) -> dict[str, Any]:
    return {name: value for name, value in record.settings.items() if name != _EPOCHS}


def _as_warmup(epoch: EpochRecord) -> EpochRecord:
    return msgspec.structs.replace(epoch, warmup=True)


def _attempts(source: RunPaths, stored: RunRecord, last_epoch: int, *, now: str) -> tuple[Attempt, ...]:
    """Return the attempts of the stored run, each marked with the run that it was of."""
    last = msgspec.structs.replace(attempt_of(source, stored, now=now), last_epoch=last_epoch)
    return tuple(
        each if each.run is not msgspec.UNSET else msgspec.structs.replace(each, run=stored.name)
        for each in (*stored.earlier, last)
    )

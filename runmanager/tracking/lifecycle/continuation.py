"""Continuing a finished run of fewer epochs as a new run, which then resumes from a copy of its checkpoint."""

from collections.abc import Callable, Iterable, Mapping
from typing import Any

import msgspec

from runmanager.errors import RecordError
from runmanager.records.files.atomic_files import read_bytes, replace_file
from runmanager.records.files.paths import RunPaths
from runmanager.records.run.environment_changes import changed_code
from runmanager.records.run.run_record import Attempt, EpochRecord, RunRecord
from runmanager.records.run.status import Reason
from runmanager.records.storage.reader import StoredRun, read_epochs, read_record, run_name
from runmanager.records.storage.run_folder import RunFolder
from runmanager.tracking.checkpoint.checkpoint_file import CheckpointError, read_state, write_state
from runmanager.tracking.lifecycle.open_run import attempt_of

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

"""Becoming the one writer of a run folder: new, or left by a process that is gone, on this host or another."""

import os
import shutil
import tempfile
from collections.abc import Sequence
from functools import partial
from pathlib import Path

import msgspec

from runmanager.errors import RecordError, RunBusyError
from runmanager.records.files.file_errors import explain_disk_full
from runmanager.records.files.paths import RunPaths
from runmanager.records.host.process import ProcessIdentity
from runmanager.records.run.heartbeat import Beat, HeartbeatObserver, read_beat
from runmanager.records.run.record import RunRecord
from runmanager.records.run.status import Status
from runmanager.records.storage.claims import claim_attempt, release_claim
from runmanager.records.storage.reader import read_record
from runmanager.records.storage.run_folder import RunFolder
from runmanager.records.storage.versioned_file import encode_record

__all__ = ["claim_next_attempt", "claim_run", "silent_runs"]

_LOOK_SECONDS = 0.5


def claim_run(paths: RunPaths, record: RunRecord, *, observer: HeartbeatObserver | None = None) -> RunFolder:
    """Become the one writer of a run folder, new or left by a process that is gone.

    `record` is written at once for a new folder. For one that exists, the folder's own record comes back unchanged
    but for its owner and a raised `attempt`, and the caller decides what to keep. One that says `running` on another
    host is watched first, and taken over only when `observer` has heard nothing of it for its limit.
    Raises `RunBusyError` when a living process owns it, `NoRoomError` where the disk is full.
    """
    paths.root.parent.mkdir(parents=True, exist_ok=True)
    if not paths.record.exists():
        with explain_disk_full(paths.record):
            beside = _prepared(paths, record)
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
    return _take_over(paths, record, observer or HeartbeatObserver())


def _prepared(paths: RunPaths, record: RunRecord) -> Path:
    """A folder beside the run's, with its record in it."""
    beside = Path(tempfile.mkdtemp(dir=paths.root.parent, prefix=".new-"))
    try:
        beside.chmod(0o755)
        (beside / paths.record.name).write_bytes(encode_record(record))
    except OSError:
        shutil.rmtree(beside)
        raise
    return beside


def _take_over(paths: RunPaths, record: RunRecord, observer: HeartbeatObserver) -> RunFolder:
    assert record.owner is not None
    _refuse_what_leads_away(paths)
    while True:
        stored = read_record(paths)
        if _is_in_use(paths, stored, observer):
            assert stored.owner is not None
            raise RunBusyError(f"Run {paths.name} is being run by process {stored.owner.pid} on {stored.owner.host}.")
        claim = claim_next_attempt(paths, stored, record.owner, observer)
        if read_record(paths) == stored:
            attempt = int(claim.name.rpartition("-")[2])
            return RunFolder(paths, msgspec.structs.replace(stored, attempt=attempt, owner=record.owner), claim=claim)
        release_claim(claim)  # somebody took over, ran and ended between the reading and the claiming: look again


def _refuse_what_leads_away(paths: RunPaths) -> None:
    """Raise `RecordError` for a folder with links or pipes in it: what the run writes would go where they lead."""
    with os.scandir(paths.root) as entries:
        own = (os.DirEntry.is_file, os.DirEntry.is_dir)
        others = [each.name for each in entries if not any(is_own(each, follow_symlinks=False) for is_own in own)]
    if others:
        got = ", ".join(sorted(others))
        raise RecordError(f"{paths.root} must hold files of its own, got {got}, which leads elsewhere; move it away.")


def _is_in_use(paths: RunPaths, stored: RunRecord, observer: HeartbeatObserver) -> bool:
    if stored.owner is None or stored.status.is_ended:
        return False
    if not stored.is_running_elsewhere:
        return stored.owner.is_alive() is not False
    # What moved while it was watched may have been its end.
    return not silent_runs([paths], observer) and not read_record(paths).status.is_ended


def silent_runs(runs: Sequence[RunPaths], observer: HeartbeatObserver) -> list[RunPaths]:
    """Those of some runs of other hosts that show no sign of life for the observer's limit, watched together.

    A run that lives is known as such within a few seconds: by its next beat, or by another record.
    """
    first = {paths: _sign(paths) for paths in runs}
    waiting = [paths for paths, sign in first.items() if sign is not None]
    silent = []
    while waiting:
        for paths in list(waiting):
            sign = _sign(paths)
            if sign is None or sign != first[paths]:
                waiting.remove(paths)
            elif observer.observed(paths, sign[0]).status is Status.CRASHED:
                waiting.remove(paths)
                silent.append(paths)
        if waiting:
            observer.wait(_LOOK_SECONDS)
    return silent


def _sign(paths: RunPaths) -> tuple[RunRecord, Beat | None] | None:
    """What a living run changes; None for one that cannot be read, or is not out of sight."""
    try:
        record = read_record(paths)
    except RecordError:
        return None
    return (record, read_beat(paths.heartbeat)) if record.is_running_elsewhere else None


def claim_next_attempt(paths: RunPaths, stored: RunRecord, owner: ProcessIdentity, observer: HeartbeatObserver) -> Path:
    """Claim for `owner` the attempt after the `stored` one, or the first later one that no living process has claimed.

    A claim of another host's process is waited for, up to the observer's limit. Raises `RunBusyError`.
    """
    return claim_attempt(paths, stored.attempt + 1, owner, is_left=partial(_is_left, paths, observer=observer))


def _is_left(paths: RunPaths, claim: Path, *, observer: HeartbeatObserver) -> bool:
    """Whether a claim by another host's process stands unused for the observer's limit."""
    stored, since = read_record(paths), observer.clock()
    while claim.exists() and read_record(paths) == stored:
        if observer.clock() - since >= observer.limit_seconds:
            return True
        observer.wait(_LOOK_SECONDS)
    return False

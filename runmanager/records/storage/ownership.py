"""Ownership of run folders: claiming a new one, or one whose process on this or another host is gone.

Nothing makes the folder of a sweep again while its driver's runs run.
"""

import errno
import os
import shutil
from collections.abc import Sequence
from functools import partial
from pathlib import Path

import msgspec

from runmanager.errors import RecordError, RunBusyError, UsageError
from runmanager.records.files.atomic_files import make_folder, new_folder, remove_left_over, replace_file, sync_folder
from runmanager.records.files.file_errors import explain_disk_full
from runmanager.records.files.paths import RunPaths, SweepPaths, refuse_linked_run
from runmanager.records.host.process import ProcessIdentity
from runmanager.records.run.heartbeat import Beat, HeartbeatObserver, read_beat
from runmanager.records.run.run_record import RunRecord
from runmanager.records.run.status import Status
from runmanager.records.storage.reader import read_record, with_known_report
from runmanager.records.storage.run_folder import RunFolder, claim_attempt, release_claim
from runmanager.records.storage.versioned_file import encode_record

DRIVEN_VARIABLE = "RUNMANAGER_DRIVEN"
"""Environment variable with the folder of a sweep whose driver writes sweep.json and the tables itself: its runs write
neither."""


def require_driven_sweep(run: Path) -> None:
    """Raise `RecordError` if `run` is a folder of the driven sweep, and that was deleted or moved since its start."""
    driven = os.environ.get(DRIVEN_VARIABLE)
    if driven is None:
        return
    runs = SweepPaths(Path(driven)).runs
    if Path(os.path.abspath(run.parent)) == runs and not runs.exists():  # noqa: PTH100  # keeps links
        raise RecordError(f"The folder {driven} must exist while its runs run, got it deleted or moved.")


_POLL_SECONDS = 0.5


def claim_run(
    paths: RunPaths, record: RunRecord, *, observer: HeartbeatObserver | None = None, may_hold_files: bool = False
) -> RunFolder:
    """Become the only writer of a run folder, new or left by a process that is gone.

    A new folder gets `record` immediately. For an existing folder, the stored record is returned, with what its
    program reported, another owner and an increased `attempt`, and the caller decides what to keep. A run that says
    `running` on another host is watched first, and taken over only if `observer` sees no heartbeat for its limit.
    `may_hold_files`: a folder without a record may hold files, as of a launcher that writes there before it calls the
    run's task.
    Raises `RunBusyError` if a living process owns the run, `NoRoomError` if the disk is full, and `RecordError` if the
    folder is a link, and if the sweep whose cell this process runs was deleted or moved.
    """
    require_driven_sweep(paths.root)
    refuse_linked_run(paths)
    make_folder(paths.root.parent)
    observer = observer or HeartbeatObserver()
    if may_hold_files and paths.root.exists() and not paths.holds_run:
        _claim_filled_folder(paths, record, observer)
    if not paths.record.exists():
        with explain_disk_full(paths.record):
            is_ours = _put_in_place(_prepare_folder(paths, record), paths.root)
        if is_ours:
            return RunFolder(paths, record)
        if not paths.record.exists():
            raise RunBusyError(
                f"Folder {paths.root} must be empty or hold a run.json, got other files; move them away."
            )
    return _take_over(paths, record, observer)


def _claim_filled_folder(paths: RunPaths, record: RunRecord, observer: HeartbeatObserver) -> None:
    """Give a folder with files in it a record of a run that has not begun, so that it can be taken over."""
    assert record.owner is not None
    claim = claim_attempt(paths, 1, record.owner, is_abandoned=partial(_is_abandoned, paths, observer=observer))
    try:
        if not paths.record.exists():
            pending = msgspec.structs.replace(record, status=Status.PENDING, owner=None, attempt=0)
            replace_file(paths.record, encode_record(pending))
    finally:
        release_claim(claim)


def _prepare_folder(paths: RunPaths, record: RunRecord) -> Path:
    """Create a folder next to the run's, with its record in it."""
    folder = new_folder(paths.root.parent, ".new-")
    try:
        replace_file(folder / paths.record.name, encode_record(record))  # whole, also after a power cut
    except OSError:
        shutil.rmtree(folder)
        raise
    return folder


def _put_in_place(prepared: Path, root: Path) -> bool:
    """Rename a folder to that of a run; remove it and return false where files are there. Raises `OSError`."""
    try:
        os.rename(prepared, root)  # replaces an empty folder: one of two claimants wins
    except OSError as error:
        shutil.rmtree(prepared, ignore_errors=True)
        if error.errno not in (errno.ENOTEMPTY, errno.EEXIST, errno.ENOTDIR):
            raise
        return False
    sync_folder(root.parent)
    return True


def _take_over(paths: RunPaths, record: RunRecord, observer: HeartbeatObserver) -> RunFolder:
    assert record.owner is not None
    _refuse_links(paths)
    while True:
        stored = read_record(paths)
        _refuse_adopted(stored)
        if _is_in_use(paths, stored, observer):
            assert stored.owner is not None
            raise RunBusyError(f"Run {stored.name} is being run by process {stored.owner.pid} on {stored.owner.host}.")
        claim = claim_next_attempt(paths, stored, record.owner, observer)
        if read_record(paths) == stored:
            remove_left_over(paths.root, [each.name for each in paths.replaced])
            known = with_known_report(paths, stored)  # if its supervisor died without writing an end
            attempt = int(claim.name.rpartition("-")[2])
            return RunFolder(paths, msgspec.structs.replace(known, attempt=attempt, owner=record.owner), claim=claim)
        release_claim(claim)  # another process has run it between the reading and the claiming: read again


def _refuse_adopted(stored: RunRecord) -> None:
    """Raise `UsageError` for a run of another program: its record describes results that stay."""
    if stored.adopted is not msgspec.UNSET:
        raise UsageError(
            f"Run {stored.name} must be one of runmanager's to be run again, got one adopted from {stored.adopted}; "
            "give the sweep another name."
        )


def _refuse_links(paths: RunPaths) -> None:
    """Raise `RecordError` for a folder with links or pipes in it, which would redirect what the run writes."""
    with os.scandir(paths.root) as entries:
        kinds = (os.DirEntry.is_file, os.DirEntry.is_dir)
        links = [each.name for each in entries if not any(is_kind(each, follow_symlinks=False) for is_kind in kinds)]
    if links:
        got = ", ".join(sorted(links))
        raise RecordError(f"{paths.root} must hold only regular files and folders, got {got}; move it away.")


def _is_in_use(paths: RunPaths, stored: RunRecord, observer: HeartbeatObserver) -> bool:
    if stored.owner is None or stored.status.is_ended:
        return False
    if not stored.is_running_elsewhere:
        return stored.owner.is_alive() is not False
    # The change that was seen may have been its end.
    return not silent_runs([paths], observer) and not read_record(paths).status.is_ended


def silent_runs(runs: Sequence[RunPaths], observer: HeartbeatObserver) -> list[RunPaths]:
    """Return the runs of other hosts that show no sign of life for the observer's limit; all are watched together.

    A living run is recognised within a few seconds, by its next beat or by a changed record.
    """
    first = {paths: _sign_of_life(paths) for paths in runs}
    waiting = [paths for paths, sign in first.items() if sign is not None]
    silent = []
    while waiting:
        for paths in list(waiting):
            sign = _sign_of_life(paths)
            if sign is None or sign != first[paths]:
                waiting.remove(paths)
            elif observer.observed(paths, sign[0]).status is Status.CRASHED:
                waiting.remove(paths)
                silent.append(paths)
        if waiting:
            observer.wait(_POLL_SECONDS)
    return silent


def _sign_of_life(paths: RunPaths) -> tuple[RunRecord, Beat | None] | None:
    """Return what a living run changes; None if it cannot be read, or is not running on another host."""
    try:
        record = read_record(paths)
    except RecordError:
        return None
    return (record, read_beat(paths.heartbeat)) if record.is_running_elsewhere else None


def claim_next_attempt(paths: RunPaths, stored: RunRecord, owner: ProcessIdentity, observer: HeartbeatObserver) -> Path:
    """Claim for `owner` the attempt after the `stored` one, or the first later one that no living process has claimed.

    A claim by a process on another host is watched for up to the observer's limit. Raises `RunBusyError`.
    """
    is_abandoned = partial(_is_abandoned, paths, observer=observer)
    return claim_attempt(paths, stored.attempt + 1, owner, is_abandoned=is_abandoned)


def _is_abandoned(paths: RunPaths, claim: Path, *, observer: HeartbeatObserver) -> bool:
    """Whether a claim by a process on another host stays unused for the observer's limit."""
    stored, since = _record_if_any(paths), observer.clock()
    while claim.exists() and _record_if_any(paths) == stored:
        if observer.clock() - since >= observer.limit_seconds:
            return True
        observer.wait(_POLL_SECONDS)
    return False


def _record_if_any(paths: RunPaths) -> RunRecord | None:
    return read_record(paths) if paths.record.exists() else None

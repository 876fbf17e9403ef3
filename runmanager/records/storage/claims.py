"""Claims: folders whose atomic creation gives one process the right to a run's next attempt."""

import errno
import os
import shutil
from collections.abc import Callable
from pathlib import Path

import msgspec

from runmanager.errors import RunBusyError
from runmanager.records.files.atomic_files import new_folder, read_bytes, replace_file
from runmanager.records.files.file_errors import UNREADABLE
from runmanager.records.files.paths import RunPaths
from runmanager.records.host.process import ProcessIdentity
from runmanager.records.storage.reader import run_name

__all__ = ["claim_attempt", "release_claim"]

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

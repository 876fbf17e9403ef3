"""Claims: folders whose appearance gives a process the right to a run folder's next attempt."""

import errno
import os
import shutil
import tempfile
from collections.abc import Callable
from pathlib import Path

import msgspec

from runmanager.errors import RunBusyError
from runmanager.records.files.atomic_files import replace_file
from runmanager.records.files.file_errors import UNDECODABLE
from runmanager.records.files.paths import RunPaths
from runmanager.records.host.process import ProcessIdentity

__all__ = ["claim_attempt", "release_claim"]

_OWNER = "owner.json"


def claim_attempt(paths: RunPaths, attempt: int, owner: ProcessIdentity, *, is_left: Callable[[Path], bool]) -> Path:
    """Set up the claim on the first attempt from `attempt` on that no process, or only a dead one, has claimed.

    `is_left` is asked of a claim of another host's: whether nobody is behind it any more. Raises `RunBusyError` where
    somebody is.
    """
    beside = Path(tempfile.mkdtemp(dir=paths.root, prefix=".claiming-"))
    try:
        replace_file(beside / _OWNER, msgspec.json.encode(owner))
        while True:
            claim = paths.claim(attempt)
            try:
                # A claim appears with its owner in it, or not at all: a kill never leaves one of nobody's.
                os.rename(beside, claim)
                return claim
            except OSError as error:
                if error.errno not in (errno.ENOTEMPTY, errno.EEXIST):
                    raise
            try:
                lives = _claimant_lives(claim)
            except FileNotFoundError:
                continue  # it was just given back
            if lives or (lives is None and not is_left(claim)):
                raise RunBusyError(f"Run {paths.name} is being taken over by another process.")
            attempt += 1
    except BaseException:
        shutil.rmtree(beside, ignore_errors=True)
        raise


def _claimant_lives(claim: Path) -> bool | None:
    """Whether the process behind a claim lives; None where only its own host could see that."""
    try:
        return msgspec.json.decode((claim / _OWNER).read_bytes(), type=ProcessIdentity).is_alive()
    except UNDECODABLE:
        return False  # it was whole when it appeared, so this is damage from after its time


def release_claim(claim: Path) -> None:
    """Take a claim away again."""
    gone = Path(tempfile.mkdtemp(dir=claim.parent, prefix=".claiming-"))
    os.rename(claim, gone)
    shutil.rmtree(gone)

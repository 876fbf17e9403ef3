"""Temporary folders of commands, removed at their end, or by a later command if they were killed."""

import contextlib
import os
import re
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from runmanager.records.host.process import ProcessIdentity

__all__ = ["temporary_folder"]

_IN_MEMORY = "/dev/shm"  # noqa: S108  # folders there are the user's alone, as any that `tempfile` makes
_LEAST_FREE_BYTES = 1 << 30  # runs need shared memory too, of which containers have little
_GIVEN = ("TMPDIR", "TEMP", "TMP")  # the user's choice of a folder for temporary files


@contextmanager
def temporary_folder(kind: str) -> Iterator[Path]:
    """Yield an empty folder for a command of this kind; first remove those of such commands that were killed.

    It is in memory if there is room, where a thousand links take a fraction of the time that a disk needs.
    """
    import fcntl  # imported late: Windows lacks it, and gets a clear error elsewhere

    prefix, parent = f"runmanager-{kind}-", _parent()
    for each in {parent, tempfile.gettempdir()}:
        with contextlib.suppress(OSError):
            _remove_abandoned(prefix, each)
    process = ProcessIdentity.current()
    with tempfile.TemporaryDirectory(prefix=f"{prefix}{process.pid}-{process.start_ticks}-", dir=parent) as folder:
        handle = os.open(folder, os.O_RDONLY)
        try:
            fcntl.flock(handle, fcntl.LOCK_EX)
            yield Path(folder)
        finally:
            os.close(handle)


def _parent() -> str:
    """Return where the folder is made."""
    try:
        is_roomy = os.access(_IN_MEMORY, os.W_OK | os.X_OK) and shutil.disk_usage(_IN_MEMORY).free >= _LEAST_FREE_BYTES
    except OSError:
        is_roomy = False
    return _IN_MEMORY if is_roomy and not any(map(os.environ.get, _GIVEN)) else tempfile.gettempdir()


def _remove_abandoned(prefix: str, parent: str) -> None:
    """Remove this user's folders whose process is gone, and which no process holds: it may be in another container."""
    pattern = re.compile(rf"{re.escape(prefix)}(\d{{1,9}})-(\d{{1,18}})-\w+")
    with os.scandir(parent) as entries:
        for entry in entries:
            found = pattern.fullmatch(entry.name)
            if found is None or not entry.is_dir(follow_symlinks=False) or entry.stat().st_uid != os.getuid():
                continue
            owner = ProcessIdentity.of(int(found[1]))
            if (owner is None or owner.start_ticks != int(found[2])) and not _is_held(entry.path):
                shutil.rmtree(entry.path, ignore_errors=True)


def _is_held(folder: str) -> bool:
    import fcntl

    try:
        handle = os.open(folder, os.O_RDONLY | os.O_NOFOLLOW)
    except OSError:
        return True
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        return True
    finally:
        os.close(handle)
    return False

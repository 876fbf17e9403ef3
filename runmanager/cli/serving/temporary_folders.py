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


@contextmanager
def temporary_folder(kind: str) -> Iterator[Path]:
    """Yield an empty folder for a command of this kind; first remove those of such commands that were killed."""
    import fcntl  # imported late: Windows lacks it, and gets a clear error elsewhere

    prefix = f"runmanager-{kind}-"
    with contextlib.suppress(OSError):
        _remove_abandoned(prefix)
    process = ProcessIdentity.current()
    with tempfile.TemporaryDirectory(prefix=f"{prefix}{process.pid}-{process.start_ticks}-") as folder:
        handle = os.open(folder, os.O_RDONLY)
        try:
            fcntl.flock(handle, fcntl.LOCK_EX)
            yield Path(folder)
        finally:
            os.close(handle)


def _remove_abandoned(prefix: str) -> None:
    """Remove this user's folders whose process is gone, and which no process holds: it may be in another container."""
    pattern = re.compile(rf"{re.escape(prefix)}(\d{{1,9}})-(\d{{1,18}})-\w+")
    with os.scandir(tempfile.gettempdir()) as entries:
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

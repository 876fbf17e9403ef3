"""A file that finds no room: on a full disk, beyond a quota, or beyond the size that a file may have."""

import errno
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from runmanager.errors import NoRoomError

__all__ = ["disk_full_named"]

_NO_ROOM = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)


@contextmanager
def disk_full_named(path: Path) -> Iterator[None]:
    """Raises `NoRoomError` where what is written to `path` meanwhile finds no room, whatever a library made of that."""
    try:
        yield
    except NoRoomError:
        raise
    except Exception as error:
        cause = _no_room_in(error)
        if cause is None:
            raise
        raise NoRoomError(_said(path, cause), cause) from cause


def _no_room_in(error: BaseException | None) -> OSError | None:
    """The error of the system behind another's, as torch's, which tells of a position in its archive."""
    while error is not None:
        if isinstance(error, OSError) and error.errno in _NO_ROOM:
            return error
        error = error.__cause__ or error.__context__
    return None


def _said(path: Path, cause: OSError) -> str:
    if cause.errno == errno.EFBIG:
        import resource  # late: Windows has none, and is to be refused with a clear line

        most, _ = resource.getrlimit(resource.RLIMIT_FSIZE)
        limit = "" if most == resource.RLIM_INFINITY else f" ({most:,} bytes at most, ulimit -f)"
        return f"{path} must fit the size that a file may have, got {cause.strerror}{limit}; raise that limit."
    disk = next((each for each in path.absolute().parents if each.is_mount()), path.parent)
    try:
        free = f" ({shutil.disk_usage(disk).free:,} bytes free)"
    except OSError:
        free = ""
    return f"{path} must find room on the disk at {disk}, got {cause.strerror}{free}; make room there."

"""Errors of files and folders as one clear line: damaged, without room, or not writable."""

import errno
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import msgspec

from runmanager.errors import NoRoomError, RecordError, UsageError

__all__ = ["UNDECODABLE", "UNREADABLE", "damaged_file_error", "explain_disk_full", "require_writable"]

UNDECODABLE = (msgspec.MsgspecError, UnicodeDecodeError, RecursionError)
"""What msgspec raises for content that is not what it must be; text that is not UTF-8 has an error of its own."""

UNREADABLE = (OSError, *UNDECODABLE)
"""The same, and what the file itself raises."""


def damaged_file_error(path: str | Path, error: Exception, *, way_out: str = "") -> RecordError:
    """The error that names the file whose reading raised `error`."""
    why = str(error)
    if isinstance(error, UnicodeDecodeError):
        why = f"its text must be UTF-8, got the byte 0x{error.object[error.start]:02x}"
    return RecordError(f"{path} is damaged: {why}{way_out}")


_NO_ROOM = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)


@contextmanager
def explain_disk_full(path: Path) -> Iterator[None]:
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


@contextmanager
def require_writable(what: str, folder: Path, *, way_out: str) -> Iterator[None]:
    """Raises `UsageError` where what is written below `folder` meanwhile cannot be: no place, no right, or no room."""
    try:
        yield
    except OSError as error:
        if error.errno == errno.EFBIG:  # no other folder would help
            raise UsageError(str(error)) from error
        cause = error.strerror or str(error)
        raise UsageError(f"{what} must be a folder that can be written, got '{folder}': {cause}; {way_out}.") from error

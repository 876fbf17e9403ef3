"""Files that survive a kill at any moment: whole replacement, and appended lines."""

import contextlib
import os
import stat
import tempfile
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import TracebackType
from typing import BinaryIO, Self

from runmanager.records.files.file_errors import explain_disk_full

__all__ = ["FileStamp", "LineAppender", "file_stamp", "read_bytes", "replace_file", "replacement", "whole_lines"]

FileStamp = tuple[int, int, int, int]
"""Times of the last change of a file and of its inode (ns since 1970), size, inode; differs if the file changed."""


_CHUNK = 1 << 16  # bytes: a run's files fit


def replace_file(path: Path, content: bytes | str | Iterable[str]) -> None:
    """Replace a file by `content` atomically: readers, and a crash, see either the old or the new file, whole.

    An iterable of strings is written piece by piece.
    """
    with replacement(path) as file:
        if isinstance(content, bytes):
            file.write(content)
        else:
            pieces = [content] if isinstance(content, str) else content
            file.writelines(piece.encode() for piece in pieces)


@contextmanager
def replacement(path: Path) -> Iterator[BinaryIO]:
    """Open a temporary file next to `path`; at the end it is synced and renamed to `path`. An error keeps the old file.

    Raises `NoRoomError` if the disk is full.
    """
    with explain_disk_full(path):
        handle, temporary = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
    try:
        with explain_disk_full(path), os.fdopen(handle, "wb") as file:
            yield file
            file.flush()
            os.fchmod(file.fileno(), 0o644)  # mkstemp's 0600 would keep other users from reading
            os.fsync(file.fileno())
        os.replace(temporary, path)
        _sync_folder(path.parent)
    except BaseException:
        Path(temporary).unlink(missing_ok=True)
        raise


def _sync_folder(folder: Path) -> None:
    """Make a rename inside a folder durable, if the file system can sync folders."""
    handle = os.open(folder, os.O_RDONLY)
    try:
        with contextlib.suppress(OSError):
            os.fsync(handle)
    finally:
        os.close(handle)


_held: set[tuple[int, int, int]] = set()


@contextlib.contextmanager
def locked_folder(folder: Path) -> Iterator[None]:
    """Hold an exclusive lock on `folder` against other processes and threads; it is released if the process dies.

    The lock is reentrant for a thread, because a finalizer may need it again. On file systems without such locks
    (some network file systems) it has no effect.
    """
    import fcntl  # imported late: Windows lacks it, and gets a clear error elsewhere

    handle = os.open(folder, os.O_RDONLY)
    status = os.fstat(handle)
    key = (threading.get_ident(), status.st_dev, status.st_ino)
    try:
        if key in _held:
            yield
            return
        with contextlib.suppress(OSError):
            fcntl.flock(handle, fcntl.LOCK_EX)
        _held.add(key)
        try:
            yield
        finally:
            _held.discard(key)
            with contextlib.suppress(OSError):
                fcntl.flock(handle, fcntl.LOCK_UN)  # a forked loader worker may keep the handle open
    finally:
        os.close(handle)


class LineAppender:
    """Appends whole lines to a file. A line survives a kill immediately, and a power cut after `sync_seconds`.

    fsync is called at most once per `sync_seconds`, and at the end.
    """

    def __init__(self, path: Path, *, sync_seconds: float = 1.0, clock: Callable[[], float] = time.monotonic) -> None:
        _cut_torn_line(path)
        self._path = path
        self._file = path.open("ab", buffering=0)
        self._clock = clock
        self._sync_seconds = sync_seconds
        self._synced_at = -float("inf")

    def append(self, line: bytes) -> None:
        """Append `line`, which must not contain a line break, in one write.

        Raises `NoRoomError` if the disk is full; no part of the line is then left in the file.
        """
        begin = self._file.seek(0, os.SEEK_END)
        rest = memoryview(line + b"\n")
        try:
            with explain_disk_full(self._path):
                while rest:  # a nearly full disk takes a part first, and fails at the next write
                    rest = rest[self._file.write(rest) :]
        except OSError:
            self._file.truncate(begin)
            raise
        now = self._clock()
        if now - self._synced_at >= self._sync_seconds:
            os.fsync(self._file.fileno())
            self._synced_at = now

    def close(self) -> None:
        if not self._file.closed:
            os.fsync(self._file.fileno())
            self._file.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()


def _cut_torn_line(path: Path) -> None:
    """Remove a half-written last line, which a kill may have left, so that the next line starts cleanly."""
    if not path.exists():
        return
    data = path.read_bytes()
    if data and not data.endswith(b"\n"):
        os.truncate(path, data.rfind(b"\n") + 1)


def read_bytes(path: str | Path) -> bytes:
    """Read a whole file. Raises `OSError`, also for anything but a regular file, because a pipe would block.

    Takes less than half the time of `Path.read_bytes`, which matters for ten thousand runs.
    """
    handle = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
    try:
        if not stat.S_ISREG(os.fstat(handle).st_mode):
            raise OSError("it must be a regular file")
        parts = []
        while part := os.read(handle, _CHUNK):
            parts.append(part)
            if len(part) < _CHUNK:  # of a regular file only the end gives less
                break
        return parts[0] if len(parts) == 1 else b"".join(parts)
    finally:
        os.close(handle)


def file_stamp(path: str | Path) -> FileStamp | None:
    """Return the current stamp of a file; None if it does not exist. Raises `OSError`."""
    try:
        now = os.stat(path)  # noqa: PTH116  # a `Path` for each of ten thousand runs takes longer
    except FileNotFoundError:
        return None
    return now.st_mtime_ns, now.st_ctime_ns, now.st_size, now.st_ino


def whole_lines(path: str | Path) -> bytes:
    """Read a file without a torn last line; empty if the file does not exist. Raises `OSError`."""
    try:
        data = read_bytes(path)
    except FileNotFoundError:
        return b""
    return data[: data.rfind(b"\n") + 1]

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
"""When a file and its inode changed last (ns since 1970), its size, its inode: another mark is another file."""


_CHUNK = 1 << 16  # bytes: a run's files fit


def replace_file(path: Path, content: bytes | str | Iterable[str]) -> None:
    """Replace a file by `content`: a reader sees the old or the new, whole, and a crash leaves one of them.

    Pieces of a text are written as they come.
    """
    with replacement(path) as file:
        if isinstance(content, bytes):
            file.write(content)
        else:
            pieces = [content] if isinstance(content, str) else content
            file.writelines(piece.encode() for piece in pieces)


@contextmanager
def replacement(path: Path) -> Iterator[BinaryIO]:
    """A file to write beside `path`, made durable and renamed into place at the end; an error leaves the old one.

    Raises `NoRoomError` where it finds no room.
    """
    with explain_disk_full(path):
        handle, beside = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
    try:
        with explain_disk_full(path), os.fdopen(handle, "wb") as file:
            yield file
            file.flush()
            os.fchmod(file.fileno(), 0o644)  # mkstemp's 0600 would keep colleagues from reading
            os.fsync(file.fileno())
        os.replace(beside, path)
        _sync_folder(path.parent)
    except BaseException:
        Path(beside).unlink(missing_ok=True)
        raise


def _sync_folder(folder: Path) -> None:
    """Make a renaming in it durable, where the file system lets a folder be synced."""
    handle = os.open(folder, os.O_RDONLY)
    try:
        with contextlib.suppress(OSError):
            os.fsync(handle)
    finally:
        os.close(handle)


_held: set[tuple[int, int, int]] = set()


@contextlib.contextmanager
def locked_folder(folder: Path) -> Iterator[None]:
    """Keep other processes and threads out of what they do to `folder` under this lock; it ends with the process.

    Within it the same thread may take it again, as a finalizer does. Where the file system knows no such lock (some
    network ones), nobody is kept out.
    """
    import fcntl  # late: Windows has none, and is to be refused with a clear line

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
                fcntl.flock(handle, fcntl.LOCK_UN)  # a fork, as of a loader, may hold the handle open for long
    finally:
        os.close(handle)


class LineAppender:
    """Appends whole lines to a file; each survives a kill at once, and a power cut a second later.

    fsync is called at most once in `sync_seconds`, and at the end.
    """

    def __init__(self, path: Path, *, sync_seconds: float = 1.0, clock: Callable[[], float] = time.monotonic) -> None:
        _cut_torn_line(path)
        self._path = path
        self._file = path.open("ab", buffering=0)
        self._clock = clock
        self._sync_seconds = sync_seconds
        self._synced_at = -float("inf")

    def append(self, line: bytes) -> None:
        """Append `line` (without a line break in it) in one write.

        A line that finds no room leaves no part of it. Raises `NoRoomError` then.
        """
        begin = self._file.seek(0, os.SEEK_END)
        rest = memoryview(line + b"\n")
        try:
            with explain_disk_full(self._path):
                while rest:  # a disk that is nearly full takes a part of it, and says so only the next time
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
    """Drop the half-written last line that a kill may have left, so that the next one begins on its own."""
    if not path.exists():
        return
    data = path.read_bytes()
    if data and not data.endswith(b"\n"):
        os.truncate(path, data.rfind(b"\n") + 1)


def read_bytes(path: str | Path) -> bytes:
    """All that is in a file. Raises `OSError`, also for what is no regular file: a pipe would have its reader wait.

    It takes less than half of what `Path.read_bytes` takes, which counts with ten thousand runs.
    """
    handle = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
    try:
        if not stat.S_ISREG(os.fstat(handle).st_mode):
            raise OSError("it must be a regular file")
        parts = []
        while part := os.read(handle, _CHUNK):
            parts.append(part)
        return parts[0] if len(parts) == 1 else b"".join(parts)
    finally:
        os.close(handle)


def file_stamp(path: str | Path) -> FileStamp | None:
    """The mark of a file as it is now; None where there is none. Raises `OSError`."""
    try:
        now = os.stat(path)  # noqa: PTH116  # a `Path` for each of ten thousand runs would be dearer
    except FileNotFoundError:
        return None
    return now.st_mtime_ns, now.st_ctime_ns, now.st_size, now.st_ino


def whole_lines(path: str | Path) -> bytes:
    """What a file holds but for a torn last line; nothing if there is no file. Raises `OSError`."""
    try:
        data = read_bytes(path)
    except FileNotFoundError:
        return b""
    return data[: data.rfind(b"\n") + 1]

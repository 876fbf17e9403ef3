"""Files that survive a kill or a power cut at any moment: whole replacement, appended lines, durable folders."""

import contextlib
import errno
import os
import stat
import threading
import time
from collections.abc import Callable, Collection, Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import TracebackType
from typing import BinaryIO, Self

from runmanager.records.files.file_errors import explain_disk_full, explain_missing_folder

FileStamp = tuple[int, int, int, int]
"""Times of the last change of a file and of its inode (ns since 1970), size, inode; differs if the file changed."""


_CHUNK = 1 << 16  # bytes: a run's files fit
_MOST_BYTES = 1 << 31  # the records of a run of three million epochs
_ZEROS = bytes(_CHUNK)
_MOST_ZEROS = 16  # chunks: a power cut leaves fewer after the last line


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

    Raises `NoRoomError` if the disk is full, and `FileNotFoundError` if the folder is missing, or goes meanwhile.
    """
    temporary = _unused(path.parent, f".{path.name}.")
    with explain_disk_full(path), explain_missing_folder(path):
        # With the mode that the umask gives, as of any other new file: another user may have to read or to replace it.
        handle = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o666)
    try:
        with explain_disk_full(path), os.fdopen(handle, "wb") as file:
            yield file
            file.flush()
            os.fsync(file.fileno())
        with explain_missing_folder(path, made=temporary):
            os.replace(temporary, path)
        sync_folder(path.parent)
    except BaseException:
        with contextlib.suppress(OSError):  # the disk may refuse this too
            temporary.unlink(missing_ok=True)
        raise


def new_folder(parent: Path, prefix: str) -> Path:
    """Create an empty folder of an unused name, with the mode that the umask gives. Raises `OSError`."""
    folder = _unused(parent, prefix)
    with explain_disk_full(parent):
        folder.mkdir()
    return folder


def _unused(parent: Path, prefix: str) -> Path:
    return parent / f"{prefix}{os.urandom(8).hex()}"


def remove_left_over(folder: Path, names: Collection[str]) -> None:
    """Remove what killed processes have left half-written of replacements of these files. Raises `OSError`."""
    with os.scandir(folder) as entries:
        for entry in entries:
            replaced, _, _ = entry.name.rpartition(".")
            is_ours = replaced.startswith(".") and replaced[1:] in names
            if is_ours and entry.is_file(follow_symlinks=False):
                Path(entry.path).unlink(missing_ok=True)


def make_folder(folder: Path) -> None:
    """Create a folder with its parents, if it is missing; each new one survives a power cut.

    Raises `OSError`, as `NoRoomError` if the disk is full.
    """
    missing = [each for each in (folder, *folder.parents) if not each.exists()]
    with explain_disk_full(folder):
        folder.mkdir(parents=True, exist_ok=True)
    for each in missing:
        sync_folder(each.parent)


def sync_folder(folder: Path) -> None:
    """Make what was created and renamed in a folder durable, if it can be opened and its file system can sync it."""
    with contextlib.suppress(OSError):
        handle = os.open(folder, os.O_RDONLY)
        try:
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
    """Appends whole lines to a file. A line survives a kill immediately, and a power cut after a second.

    fsync is called at most once per `sync_seconds`: by the line that comes so long after the last call, else by a
    thread that waits for the rest of that time; and at the end.
    """

    def __init__(
        self,
        path: Path,
        *,
        sync_seconds: float = 0.8,
        clock: Callable[[], float] = time.monotonic,
        timer: Callable[[float, Callable[[], None]], threading.Timer] = threading.Timer,
    ) -> None:
        _cut_torn_line(path)
        is_new = not path.exists()
        self._path = path
        with explain_missing_folder(path):
            self._file = path.open("ab", buffering=0)
        self._clock = clock
        self._timer = timer
        self._sync_seconds = sync_seconds
        self._synced_at = -float("inf")
        self._is_new = self._is_dirty = is_new
        self._waiting: threading.Timer | None = None
        self._failure: OSError | None = None
        self._lock = threading.Lock()

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
        self._is_dirty = True
        seconds_left = self._synced_at + self._sync_seconds - self._clock()
        if seconds_left <= 0:
            self.sync()
        elif self._waiting is None:  # the next line may come in an hour
            self._waiting = self._timer(seconds_left, self._sync_late)
            self._waiting.daemon = True
            try:
                self._waiting.start()
            except RuntimeError:  # no further thread may start
                self.sync()

    def is_in_place(self) -> bool:
        """Whether the file is still open and at its path: not deleted, moved or replaced."""
        if self._file.closed:
            return False
        try:
            return os.path.samestat(self._path.stat(), os.fstat(self._file.fileno()))
        except OSError:
            return False

    def sync(self) -> None:
        """Let all lines survive a power cut from now on. Raises `OSError`, also for what could not be synced before."""
        with self._lock:
            if self._waiting is not None:
                self._waiting.cancel()
                self._waiting = None
            if self._failure is not None:
                raise self._failure
            if not self._is_dirty:
                return
            self._is_dirty = False  # before: a line that comes meanwhile needs another call
            with explain_disk_full(self._path):
                os.fsync(self._file.fileno())
            if self._is_new:
                sync_folder(self._path.parent)
                self._is_new = False
            self._synced_at = self._clock()

    def _sync_late(self) -> None:
        try:
            self.sync()
        except OSError as error:  # raised by the next call
            self._failure = error

    def close(self) -> None:
        if not self._file.closed:
            try:
                self.sync()
            finally:
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
    data = read_bytes(path)
    if data and not data.endswith(b"\n"):
        os.truncate(path, data.rfind(b"\n") + 1)


def read_bytes(path: str | Path, *, is_record: bool = True) -> bytes:
    """Read a whole file. Raises `OSError`, also for anything but a regular file: a pipe would block, a link lead out.

    So it does for a record of more than 2 GiB, or with a MiB of zeros: a file with a hole, which takes no room on the
    disk, may hold more of them than memory. Takes less than half the time of `Path.read_bytes`, which matters for ten
    thousand runs.
    """
    try:
        handle = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK | os.O_NOFOLLOW)
    except OSError as error:
        if error.errno != errno.ELOOP:
            raise
        raise OSError("it must be a regular file, got a link, which is not followed") from None
    try:
        status = os.fstat(handle)
        if not stat.S_ISREG(status.st_mode):
            raise OSError("it must be a regular file")
        if is_record and status.st_size > _MOST_BYTES:
            raise OSError(f"it must have at most {_MOST_BYTES:,} bytes, got {status.st_size:,}")
        parts = []
        num_zeros = 0
        while part := os.read(handle, _CHUNK):
            parts.append(part)
            if len(part) < _CHUNK:  # of a regular file only the end gives less
                break
            num_zeros = num_zeros + 1 if part == _ZEROS else 0
            if is_record and num_zeros >= _MOST_ZEROS:
                raise OSError(f"it must be text, got {num_zeros * _CHUNK:,} zero bytes in a row")
        return parts[0] if len(parts) == 1 else b"".join(parts)
    except MemoryError:
        raise OSError(errno.ENOMEM, os.strerror(errno.ENOMEM), str(path)) from None
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

"""The seam between Python and the machine: changes of the disk below a folder, noted or refused; and the wall clock.

It replaces the functions of `os` and `io` by which Python changes files, in every process of a command. What a library
writes in C passes it unseen; of what a sweep stores, nothing does.
"""

# ruff: noqa: PTH100, PTH115, PTH118, PTH119, PTH120
# A `Path` would use what is replaced here.

import builtins
import datetime
import errno
import fcntl
import io
import json
import os
import pickle
import shutil
import stat
import struct
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

SEAM_VARIABLE, CLOCK_VARIABLE = "FAULT_SEAM", "FAULT_CLOCK"
TAKING_ROOM = ("create", "mkdir", "write", "rename", "sync")
"""The operations that may find no room; those that make files are the first two."""

_WRITING = os.O_WRONLY | os.O_RDWR
_HEADER = struct.Struct("<I")
_really: dict[str, Callable[..., Any]] = {
    name: getattr(os, name)
    for name in (
        *("open", "write", "pwrite", "fsync", "fdatasync", "truncate", "ftruncate"),
        *("replace", "rename", "unlink", "remove", "rmdir", "mkdir"),
    )
}
_open_file = io.open


def install_from_environment() -> None:
    """Install what the environment asks for."""
    if spec := os.environ.get(SEAM_VARIABLE):
        install(json.loads(spec))
    if spec := os.environ.get(CLOCK_VARIABLE):
        _install_clock(**json.loads(spec))


class _Watch:
    """What is done with each operation, in the order of all processes: `state` is a file that they share.

    With `refuse` the operations of these kinds are counted, and those from number `first` (from 1) until `last` fail
    with this error number; a refused write leaves half of its bytes. Else each is appended to `state`, with its time.
    """

    def __init__(
        self, *, state: str, refuse: int | None = None, kinds: Any = (), first: int = 0, last: int = 0
    ) -> None:
        self._path = state
        self._refuse, self._kinds, self._first, self._last = refuse, frozenset(kinds), first, last
        self.begin_process()

    def begin_process(self) -> None:
        self._lock = threading.RLock()
        self._handle = -1
        self._depth = 0

    @contextmanager
    def alone(self) -> Iterator[None]:
        """No other process or thread changes the disk within the block."""
        with self._lock:
            if self._handle < 0:
                self._handle = _really["open"](self._path, os.O_RDWR | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o666)
            if not self._depth:
                fcntl.flock(self._handle, fcntl.LOCK_EX)
            self._depth += 1
            try:
                yield
            finally:
                self._depth -= 1
                if not self._depth:
                    fcntl.flock(self._handle, fcntl.LOCK_UN)

    def refusal(self, kind: str, path: str) -> OSError | None:
        """Count an operation; return the error with which it is to fail."""
        if self._refuse is None or kind not in self._kinds:
            return None
        number = os.fstat(self._handle).st_size + 1
        _really["write"](self._handle, b".")
        if not self._first <= number <= self._last:
            return None
        with _open_file(f"{self._path}.refused", "a") as refused:
            refused.write(f"{number} {kind} {path}\n")
        return OSError(self._refuse, os.strerror(self._refuse), path)

    def note(self, *operation: Any) -> None:
        """Note an operation that has been done."""
        if self._refuse is None:
            data = pickle.dumps((time.monotonic(), *operation))
            _really["write"](self._handle, _HEADER.pack(len(data)) + data)


class _Seam:
    def __init__(self, folder: str, top: str, watch: _Watch) -> None:
        self._folder = os.path.realpath(folder)
        self._top = os.path.join(self._folder, top)
        self.watch = watch

    def watched(self, path: Any, dir_fd: int | None = None) -> str | None:
        """Return the absolute path of a file or a handle if it is watched."""
        try:
            if isinstance(path, int):
                found = os.readlink(f"/proc/self/fd/{path}").removesuffix(" (deleted)")
            else:
                found = os.fsdecode(os.fspath(path))
                if dir_fd is not None:
                    found = os.path.join(os.readlink(f"/proc/self/fd/{dir_fd}"), found)
                found = os.path.join(os.path.realpath(os.path.dirname(os.path.abspath(found))), os.path.basename(found))
        except (OSError, TypeError, ValueError):
            return None
        is_watched = found in (self._folder, self._top) or found.startswith(self._top + os.sep)
        return found if is_watched else None

    def _do(self, kind: str, path: str, act: Callable[[], Any], *noted: Any) -> Any:
        with self.watch.alone():
            if error := self.watch.refusal(kind, path):
                raise error
            done = act()
            self.watch.note(kind, *(noted or (path,)))
            return done

    def opened(self, path: str, is_emptied: bool, act: Callable[[], int]) -> None:
        """Open a file for writing; `act` returns its handle."""
        with self.watch.alone():
            is_new = not os.path.lexists(path)
            if error := self.watch.refusal("create" if is_new else "open", path):
                raise error
            handle = act()
            if is_new:
                self.watch.note("create", path, os.fstat(handle).st_ino)
            elif is_emptied:
                self.watch.note("truncate", os.fstat(handle).st_ino, 0)

    def write(self, handle: int, data: Any, act: Callable[[Any], int], at: int | None = None) -> int:
        if (path := self.watched(handle)) is None:
            return act(data)
        with self.watch.alone():
            data = bytes(data)
            if error := self.watch.refusal("write", path):
                if len(data) > 1:
                    act(data[: len(data) // 2])
                raise error
            count = act(data)
            end = os.lseek(handle, 0, os.SEEK_CUR) if at is None else at + count
            self.watch.note("write", os.fstat(handle).st_ino, end - count, data[:count])
            return count

    def truncate(self, handle: int, size: int | None, act: Callable[[], Any]) -> Any:
        if (path := self.watched(handle)) is None:
            return act()
        size = os.lseek(handle, 0, os.SEEK_CUR) if size is None else size
        return self._do("truncate", path, act, os.fstat(handle).st_ino, size)

    def sync(self, handle: Any, act: Callable[[], Any]) -> Any:
        number = handle if isinstance(handle, int) else handle.fileno()
        if (path := self.watched(number)) is None:
            return act()
        status = os.fstat(number)
        is_folder = stat.S_ISDIR(status.st_mode)
        return self._do("sync", path, act, path if is_folder else status.st_ino)

    def rename(self, source: Any, target: Any, src_fd: int | None, dst_fd: int | None, act: Callable[[], Any]) -> Any:
        old, new = self.watched(source, src_fd), self.watched(target, dst_fd)
        if old is None and new is None:
            return act()
        return self._do("rename", str(new), act, old, new)

    def change(self, kind: str, path: Any, dir_fd: int | None, act: Callable[[], Any]) -> Any:
        found = self.watched(path, dir_fd)
        return act() if found is None else self._do(kind, found, act)


def install(spec: dict[str, Any]) -> None:
    """Watch the changes below `top` in `folder`; the other entries of `spec` are those of `_Watch`."""
    watch = _Watch(**{name: value for name, value in spec.items() if name not in ("folder", "top")})
    seam = _Seam(spec["folder"], spec["top"], watch)
    os.register_at_fork(after_in_child=watch.begin_process)

    class File(io.FileIO):
        def write(self, data: Any, /) -> int:
            return seam.write(self.fileno(), data, super().write)

        def truncate(self, size: int | None = None, /) -> int:
            act = super().truncate
            return seam.truncate(self.fileno(), size, lambda: act(size))

    def open_file(
        file: Any,
        mode: str = "r",
        buffering: int = -1,
        encoding: str | None = None,
        errors: str | None = None,
        newline: str | None = None,
        closefd: bool = True,
        opener: Any = None,
    ) -> Any:
        path = seam.watched(file) if set(mode) & set("wax+") and opener is None else None
        if path is None:
            return _open_file(file, mode, buffering, encoding, errors, newline, closefd, opener)
        raw: list[File] = []

        def act() -> int:
            raw.append(File(file, mode.replace("b", "").replace("t", ""), closefd))
            return raw[0].fileno()

        if isinstance(file, int):
            act()
        else:
            seam.opened(path, "w" in mode, act)
        if "b" in mode and buffering == 0:
            return raw[0]
        size = buffering if buffering > 1 else io.DEFAULT_BUFFER_SIZE
        buffered = (io.BufferedRandom if "+" in mode else io.BufferedWriter)(raw[0], size)  # type: ignore[arg-type]
        if "b" in mode:
            return buffered
        text = io.TextIOWrapper(buffered, encoding, errors, newline, line_buffering=buffering == 1)
        text.mode = mode  # type: ignore[misc]
        return text

    def os_open(path: Any, flags: int, mode: int = 0o777, *, dir_fd: int | None = None) -> int:
        found = seam.watched(path, dir_fd) if flags & _WRITING else None
        if found is None:
            return _really["open"](path, flags, mode, dir_fd=dir_fd)
        handles: list[int] = []

        def act() -> int:
            handles.append(_really["open"](path, flags, mode, dir_fd=dir_fd))
            return handles[0]

        seam.opened(found, bool(flags & os.O_TRUNC), act)
        return handles[0]

    def rename(source: Any, target: Any, *, src_dir_fd: int | None = None, dst_dir_fd: int | None = None) -> None:
        act = _really["rename"]
        seam.rename(
            source,
            target,
            src_dir_fd,
            dst_dir_fd,
            lambda: act(source, target, src_dir_fd=src_dir_fd, dst_dir_fd=dst_dir_fd),
        )

    def replace(source: Any, target: Any, *, src_dir_fd: int | None = None, dst_dir_fd: int | None = None) -> None:
        rename(source, target, src_dir_fd=src_dir_fd, dst_dir_fd=dst_dir_fd)

    def changing(kind: str, name: str) -> Callable[..., None]:
        def change(path: Any, *, dir_fd: int | None = None) -> None:
            seam.change(kind, path, dir_fd, lambda: _really[name](path, dir_fd=dir_fd))

        return change

    def mkdir(path: Any, mode: int = 0o777, *, dir_fd: int | None = None) -> None:
        seam.change("mkdir", path, dir_fd, lambda: _really["mkdir"](path, mode, dir_fd=dir_fd))

    def truncate(path: Any, length: int) -> None:
        if isinstance(path, int):
            seam.truncate(path, length, lambda: _really["ftruncate"](path, length))
            return
        handle = os_open(path, os.O_WRONLY)
        try:
            seam.truncate(handle, length, lambda: _really["ftruncate"](handle, length))
        finally:
            os.close(handle)

    def pwrite(handle: int, data: Any, offset: int) -> int:
        return seam.write(handle, data, lambda part: _really["pwrite"](handle, part, offset), offset)

    shutil._USE_CP_SENDFILE = False  # type: ignore[attr-defined]  # it would copy within the kernel
    builtins.open = io.open = open_file  # type: ignore[assignment]
    replaced: dict[str, Any] = {
        "open": os_open,
        "rename": rename,
        "replace": replace,
        "unlink": changing("unlink", "unlink"),
        "remove": changing("unlink", "unlink"),
        "rmdir": changing("rmdir", "rmdir"),
        "mkdir": mkdir,
        "truncate": truncate,
        "ftruncate": truncate,
        "pwrite": pwrite,
        "write": lambda handle, data: seam.write(handle, data, lambda part: _really["write"](handle, part)),
        "fsync": lambda handle: seam.sync(handle, lambda: _really["fsync"](handle)),
        "fdatasync": lambda handle: seam.sync(handle, lambda: _really["fdatasync"](handle)),
    }
    for name, function in replaced.items():
        setattr(os, name, function)


def read_journal(path: str) -> list[tuple[Any, ...]]:
    """Return the operations that were noted, each as (time, kind, …)."""
    operations = []
    with _open_file(path, "rb") as file:
        while header := file.read(_HEADER.size):
            operations.append(pickle.loads(file.read(_HEADER.unpack(header)[0])))
    return operations


def _install_clock(*, since: float, after: float, by: float) -> None:
    """Let the wall clock jump by so many seconds, `after` seconds from the monotonic time `since`."""
    clock, clock_ns, really = time.time, time.time_ns, datetime.datetime

    def jumped() -> float:
        return by if time.monotonic() - since >= after else 0.0

    class Jumping(really):  # type: ignore[misc,valid-type]
        @classmethod
        def now(cls, tz: Any = None) -> Any:
            return really.fromtimestamp(time.time(), tz)

    time.time = lambda: clock() + jumped()
    time.time_ns = lambda: clock_ns() + int(jumped() * 1e9)
    datetime.datetime = Jumping  # type: ignore[misc]


ERRORS = {"full": errno.ENOSPC, "quota": errno.EDQUOT, "read-only": errno.EROFS, "failing": errno.EIO}

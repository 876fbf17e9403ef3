"""Errors of files and folders as one clear line: damaged, no room on the disk, not writable."""

import errno
import os
import re
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, Any

import msgspec
import yaml

from runmanager.errors import NoRoomError, RecordError, UsageError, error_chain
from runmanager.records.files.paths import name_length_fault

UNDECODABLE = (msgspec.MsgspecError, UnicodeDecodeError, RecursionError)
"""What msgspec raises for content that it cannot decode, text that is not UTF-8 included."""

UNREADABLE = (OSError, *UNDECODABLE)
"""`UNDECODABLE`, and what opening or reading the file raises."""


def damaged_file_error(path: str | Path, error: Exception, *, way_out: str = "") -> RecordError:
    """Return the error that names the damaged or unreadable file; `error` is what reading it raised."""
    if isinstance(error, OSError) and error.errno is not None:
        return RecordError(f"{path} cannot be read: {error.strerror}{way_out}")  # too many open files, for example
    reason = str(error)
    if isinstance(error, UnicodeDecodeError):
        reason = f"its text must be UTF-8, got the byte 0x{error.object[error.start]:02x}"
    return RecordError(f"{path} is damaged: {reason}{way_out}")


_NO_ROOM = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)
_REFUSALS = (*_NO_ROOM, errno.EROFS, errno.EIO, errno.ESTALE, errno.EMFILE, errno.ENFILE, errno.EAGAIN)
_HIDDEN_REFUSAL = re.compile(
    r"RuntimeError: .*(can't start new thread|shared memory.* No space left|Too many open files)"
)
_SYSTEM_ERROR = re.compile(r"[\w.]+: \[Errno (\d+)\]")


def was_refused(line: str) -> bool:
    """Whether an error's line (`OSError: [Errno 28] …`) says that the machine refused what a program may well ask for.

    That is room on the disk or in shared memory, writing, a descriptor, a process or a thread, so that the program may
    continue once it is granted.
    """
    found = _SYSTEM_ERROR.match(line)
    is_known = found is not None and int(found[1]) in _REFUSALS
    return is_known or line.startswith(f"{NoRoomError.__name__}: ") or _HIDDEN_REFUSAL.match(line) is not None


@contextmanager
def explain_disk_full(path: Path) -> Iterator[None]:
    """Raise `NoRoomError` if the disk has no room for `path` inside the block, even if a library hides that error.

    Another refusal of the machine that a library hides is raised as the `OSError` that it is.
    """
    try:
        yield
    except NoRoomError:
        raise
    except Exception as error:
        cause = _system_cause(error)
        if cause is None or (cause is error and cause.errno not in _NO_ROOM):
            raise
        if cause.errno not in _NO_ROOM:
            raise OSError(cause.errno, cause.strerror, str(path)) from error
        raise NoRoomError(_no_room_message(path, cause), cause) from cause


def _system_cause(error: Exception) -> OSError | None:
    """Find the system's error in a chain of exceptions: torch, for one, reports only a position in its archive."""
    found = (each for each in error_chain(error) if isinstance(each, OSError) and each.errno in _REFUSALS)
    return next(found, None)


def _no_room_message(path: Path, cause: OSError) -> str:
    if cause.errno == errno.EFBIG:
        import resource  # imported late: Windows lacks it, and gets a clear error elsewhere

        most, _ = resource.getrlimit(resource.RLIMIT_FSIZE)
        limit = "" if most == resource.RLIM_INFINITY else f" ({most:,} bytes at most, ulimit -f)"
        return f"{path} must fit the size that a file may have, got {cause.strerror}{limit}; raise that limit."
    disk = next((each for each in path.absolute().parents if each.is_mount()), path.parent)
    if inodes := _used_up_inodes(disk, cause):
        return f"{path} must find an inode on the disk at {disk}, got {inodes}; remove files there."
    try:
        free = f" ({shutil.disk_usage(disk).free:,} bytes free)"
    except OSError:
        free = ""
    return f"{path} must find room on the disk at {disk}, got {cause.strerror}{free}; make room there."


def _used_up_inodes(folder: Path, cause: OSError) -> str:
    """Describe a file system that has no room for another file, whatever its size; empty if that is not the cause."""
    if cause.errno != errno.ENOSPC:
        return ""
    try:
        disk = os.statvfs(next(each for each in (folder.absolute(), *folder.absolute().parents) if each.exists()))
    except OSError:
        return ""
    is_used_up = disk.f_files > 0 and disk.f_favail == 0  # 0 of 0 where they are not counted
    return f"none of {disk.f_files:,} free: it holds too many files" if is_used_up else ""


class MissingFolderError(FileNotFoundError):
    """The file `filename` whose folder is missing, or was meanwhile; with the system's number and reason."""

    def __init__(self, message: str, errno: int | None, strerror: str | None, filename: str) -> None:
        super().__init__(message)
        self.errno, self.strerror, self.filename = errno, strerror, filename

    def __str__(self) -> str:
        return str(self.args[0])

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (str(self), self.errno, self.strerror, self.filename)


@contextmanager
def explain_missing_folder(path: Path, *, made: Path | None = None) -> Iterator[None]:
    """Name the folder of `path` in a `FileNotFoundError` inside the block, or `path`, and not a temporary file.

    `made` is the temporary file if it has been made.
    """
    try:
        yield
    except FileNotFoundError as error:
        if not path.parent.exists():
            got = "none"
        elif made is not None and not made.exists():
            got = "its files deleted or moved"
        else:  # a link that leads nowhere, for example
            raise FileNotFoundError(error.errno, error.strerror, str(path)) from error
        message = f"The folder {path.parent} must exist while {path.name} is written, got {got}."
        raise MissingFolderError(message, error.errno, error.strerror, str(path)) from error


def require_current_folder() -> None:
    """Raise `UsageError` if the current folder is gone, as of a shell whose folder was removed or replaced."""
    try:
        os.getcwd()  # noqa: PTH109  # called by every command
    except FileNotFoundError:
        raise UsageError("The current folder must exist, got one that was removed; change to another one.") from None


@contextmanager
def require_writable(what: str, folder: Path, *, way_out: str) -> Iterator[None]:
    """Raise `UsageError` when writing below `folder` fails inside the block: missing, not permitted, or full."""
    try:
        yield
    except OSError as error:
        if error.errno == errno.EFBIG:  # no other folder would help
            raise UsageError(str(error)) from error
        inodes = _used_up_inodes(folder, error)
        cause = f"an inode for each file is needed, and {inodes}" if inodes else error.strerror or str(error)
        raise UsageError(_unwritable(what, folder, cause, way_out)) from error


def creation_obstacle(folder: Path) -> str:
    """Return what keeps files from being written to a folder that may not exist yet; empty if nothing does.

    Nothing is written, so a full disk is not seen.
    """
    if name_length_fault("folder", folder):
        return os.strerror(errno.ENAMETOOLONG)
    nearest = next(each for each in (folder.absolute(), *folder.absolute().parents) if os.path.lexists(each))
    if not nearest.is_dir():
        return os.strerror(errno.ENOTDIR)
    return "" if os.access(nearest, os.W_OK | os.X_OK) else os.strerror(errno.EACCES)


def require_creatable(what: str, folder: Path, *, way_out: str) -> None:
    """Raise the `UsageError` of `require_writable` if nothing can be written below `folder`; write nothing."""
    if problem := creation_obstacle(folder):
        raise UsageError(_unwritable(what, folder, problem, way_out))


def _unwritable(what: str, folder: Path, problem: str, way_out: str) -> str:
    return f"{what} must be a folder that can be written, got '{folder}': {problem}; {way_out}."


def require_few_values(document: yaml.Node | None, *, most: int) -> None:
    """Check a composed document before its values are built; what is shared counts each time.

    Raises `ValueError` for more than `most` values, and for a value that contains itself.
    """
    if document is not None and _num_values(document, {}) > most:
        raise ValueError(f"it must hold at most {most:,} values, got more")


def _num_values(node: yaml.Node, known: dict[int, int | None]) -> int:
    number = known.setdefault(id(node), None)
    if number is not None:
        return number
    parts: list[yaml.Node] = []
    if isinstance(node, yaml.MappingNode):
        parts = [
            each for pair in node.value for each in pair if each is pair[1] or isinstance(each, yaml.CollectionNode)
        ]
    elif isinstance(node, yaml.SequenceNode):
        parts = node.value
    number = 1
    for part in parts:
        if known.get(id(part), 0) is None:
            raise ValueError("a value must not contain itself")
        number += _num_values(part, known)
    known[id(node)] = number
    return number


MAX_INT64 = 2**63 - 1

Int64 = Annotated[int, msgspec.Meta(ge=-(2**63), le=MAX_INT64)]

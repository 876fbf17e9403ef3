"""Folders that any program may have written: what is in one, links in its place, and one that was replaced."""

import errno
import os
import weakref
from collections.abc import Callable, Container, Iterator
from pathlib import Path

from runmanager.errors import RecordError
from runmanager.records.files.paths import RunPaths, SweepPaths

__all__ = [
    "FolderIdentity",
    "files_below",
    "folder_entries",
    "folders_below",
    "refuse_linked_run",
    "refuse_linked_runs",
]


_MAX_ENTRIES = 200_000


def refuse_linked_run(paths: RunPaths) -> None:
    """Raise `RecordError` if the run's folder is a link: it may lead into another sweep, whose run would be changed."""
    if paths.root.is_symlink():
        raise RecordError(f"{paths.root} must be a folder, got a link, which is not followed; move it away.")


def refuse_linked_runs(paths: SweepPaths) -> None:
    """Raise `RecordError` if the sweep's `runs` is a link, through which its runs would be written elsewhere."""
    if paths.runs.is_symlink():
        raise RecordError(f"{paths.runs} must be a folder, got a link; move what it leads to in its place.")


class FolderIdentity:
    """A folder as it is now, held open so that no other folder can get its inode."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._loss = ""
        self._handle = os.open(path, os.O_RDONLY)
        weakref.finalize(self, os.close, self._handle)

    @property
    def loss(self) -> str:
        """How the folder was lost, as first seen, in words; empty while it exists or cannot be checked."""
        self._loss = self._loss or self._find_loss()
        return self._loss

    def _find_loss(self) -> str:
        try:
            now, then = os.stat(self._path), os.fstat(self._handle)  # noqa: PTH116  # five times a second
        except OSError as error:
            is_gone = error.errno in (errno.ENOENT, errno.ENOTDIR, errno.ESTALE)
            return "it deleted or moved" if is_gone else ""
        return "" if os.path.samestat(now, then) else "another in its place"


def folder_entries(folder: str) -> list["os.DirEntry[str]"]:
    """Return what is directly in a folder; nothing if it cannot be read."""
    try:
        with os.scandir(folder) as entries:
            return list(entries)
    except OSError:
        return []


def folders_below(
    root: Path, notes: list[str], *, max_entries: int = _MAX_ENTRIES
) -> Iterator[tuple[Path, list[str], list[str]]]:
    """Yield `root` and the folders below it, each with the names of its folders and files, sorted.

    A caller may remove folders from the list, which are then not searched. Hidden folders and links to folders are not
    searched either. `notes` gets a line for what cannot be read, and one if there are more than `max_entries` files and
    folders, after which the search ends. Only names are looked at: a file may be a pipe.
    """
    seen = 0
    for folder, subfolders, names in os.walk(root, onerror=lambda error: notes.append(_unread(error))):
        seen += len(subfolders) + len(names)
        if seen > max_entries:
            notes.append(f"{root} must hold at most {max_entries:,} files, got more; the rest of them was not searched")
            return
        subfolders[:] = sorted(each for each in subfolders if not each.startswith("."))
        yield Path(folder), subfolders, sorted(names)


def files_below(
    root: Path, is_wanted: Callable[[str], bool], notes: list[str], *, without: Container[str] = ()
) -> list[Path]:
    """Find the files below `root` with a wanted name, sorted by folder and name, as `folders_below` searches.

    `without` are names of folders directly in `root` that are left out.
    """
    found: list[Path] = []
    for folder, subfolders, names in folders_below(root, notes):
        if folder == root:
            subfolders[:] = [each for each in subfolders if each not in without]
        found += (folder / name for name in names if is_wanted(name))
    return found


def _unread(error: OSError) -> str:
    return f"{error.filename} cannot be read: {error.strerror}"

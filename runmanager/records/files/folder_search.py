"""What is in a folder that any program may have written."""

import os
from collections.abc import Callable, Container, Iterator
from pathlib import Path

__all__ = ["files_below", "folder_entries", "folders_below"]

_MAX_ENTRIES = 200_000


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

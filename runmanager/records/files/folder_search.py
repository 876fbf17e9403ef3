"""Bounded search for files below a folder that any program may have written."""

import os
from collections.abc import Callable, Container
from dataclasses import dataclass
from pathlib import Path

__all__ = ["FoundFiles", "files_below"]

_MAX_ENTRIES = 200_000


@dataclass(frozen=True)
class FoundFiles:
    """The files found, sorted by folder and name, and a line for each part of the folder that was not searched."""

    paths: tuple[Path, ...] = ()
    notes: tuple[str, ...] = ()


def files_below(
    root: Path, is_wanted: Callable[[str], bool], *, without: Container[str] = (), max_entries: int = _MAX_ENTRIES
) -> FoundFiles:
    """Find the files below `root` whose name is wanted. Hidden folders and links to folders are not followed.

    `without` are names of folders directly in `root` that are left out. The search ends after `max_entries` files and
    folders. Only names are looked at: a path may be a pipe.
    """
    found: list[Path] = []
    notes: list[str] = []
    seen = 0
    for folder, subfolders, names in os.walk(root, onerror=lambda error: notes.append(_unread(error))):
        left_out = without if Path(folder) == root else ()
        subfolders[:] = sorted(each for each in subfolders if not each.startswith(".") and each not in left_out)
        seen += len(subfolders) + len(names)
        if seen > max_entries:
            notes.append(f"{root} must hold at most {max_entries:,} files, got more; the rest of them was not searched")
            break
        found += (Path(folder, name) for name in sorted(names) if is_wanted(name))
    return FoundFiles(tuple(found), tuple(notes))


def _unread(error: OSError) -> str:
    return f"{error.filename} cannot be read: {error.strerror}"

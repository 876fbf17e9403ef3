"""The size of sweeps on disk; of runs that have ended it is cached, as counting many files takes long."""

import contextlib
import os
from collections.abc import Container

import msgspec

from runmanager.records.files.atomic_files import read_bytes, replace_file
from runmanager.records.files.file_errors import UNREADABLE
from runmanager.records.files.folders import folder_entries
from runmanager.records.files.paths import SweepPaths

__all__ = ["SizeMemory", "sweep_size"]

_SETTLED_NS = 2 * 10**9  # a younger folder may change again within the resolution of its time


class _Size(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """The bytes of the files below a run's folder, and when that and each folder in it last changed (ns since 1970)."""

    size: int
    changed: dict[str, int]


SizeMemory = dict[str, _Size]
"""The sizes of the folders of ended runs, by their names, in memory: for a reader that writes nothing."""

_DECODER = msgspec.msgpack.Decoder(SizeMemory)


def sweep_size(paths: SweepPaths, *, ended: Container[str], now_ns: int, memory: SizeMemory | None = None) -> int:
    """Return the bytes of all files of a sweep, without what links lead to and without the caches of its readers.

    `ended` are the folders of runs that have ended: their files only come and go, which changes the folder's time. So
    they are counted once, and again where such a time is another one. `memory` takes the place of the stored cache,
    which an empty one begins with.
    """
    cached = memory or _read(paths)
    counted: dict[str, _Size] = {}
    total = num_new = 0
    runs = paths.runs.name
    for entry in folder_entries(str(paths.root)):
        if entry.name in (paths.summaries.name, paths.sizes.name):
            continue
        if entry.name != runs or not entry.is_dir(follow_symlinks=False):
            total += _count(entry).size
            continue
        for run in folder_entries(entry.path):
            known = cached.get(run.name) if run.name in ended else None
            if known is None or not _is_unchanged(run.path, known):
                known = _count(run)
                if run.name not in ended or max(known.changed.values(), default=now_ns) > now_ns - _SETTLED_NS:
                    total += known.size
                    continue
                num_new += 1
            total += known.size
            counted[run.name] = known
    if memory is not None:
        memory.clear()
        memory.update(counted)
    elif num_new:
        with contextlib.suppress(OSError):  # a full disk, or a read-only folder
            replace_file(paths.sizes, msgspec.msgpack.encode(counted))
    return total


def _read(paths: SweepPaths) -> dict[str, _Size]:
    try:
        return _DECODER.decode(read_bytes(paths.sizes))
    except (*UNREADABLE, MemoryError):  # a length in it may be any
        return {}


def _is_unchanged(folder: str, known: _Size) -> bool:
    try:
        # A `Path` for each of ten thousand runs takes longer.
        return all(os.stat(folder + below).st_mtime_ns == at for below, at in known.changed.items())  # noqa: PTH116
    except OSError:
        return False


def _count(entry: "os.DirEntry[str]") -> _Size:
    """Count a file, or all files below a folder."""
    changed: dict[str, int] = {}
    return _Size(_add(entry, len(entry.path), changed), changed)


def _add(entry: "os.DirEntry[str]", start: int, changed: dict[str, int]) -> int:
    try:
        now = entry.stat(follow_symlinks=False)
        if not entry.is_dir(follow_symlinks=False):
            return now.st_size
    except OSError:  # just removed
        return 0
    changed[entry.path[start:]] = now.st_mtime_ns
    return sum(_add(each, start, changed) for each in folder_entries(entry.path))

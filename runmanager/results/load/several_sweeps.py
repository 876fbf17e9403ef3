"""All sweeps below a folder, their sizes, and several of them read for one table, each with a name of its own."""

import contextlib
import os
from collections.abc import Container, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec

from runmanager.records.files.atomic_files import read_bytes, replace_file
from runmanager.records.files.file_errors import UNREADABLE
from runmanager.records.files.paths import SweepPaths, folder_entries, folders_below
from runmanager.records.settings.values import differing_settings
from runmanager.records.storage.reader import Damage, StoredRun, run_names
from runmanager.records.sweep.sweep_record import SweepRecord
from runmanager.results.load.cells import Cell, Cells, CellsWith, CellWith, gather_cells
from runmanager.results.load.loader import read_results, read_summary
from runmanager.results.load.run_summary import RunSummary, SweepSummary

SWEEP = "sweep"
"""The column, and for the best cell the setting, with the name of a row's sweep."""

_ABSENT = msgspec.UNSET


@dataclass(frozen=True)
class NamedSweep:
    """A sweep as read for a table, with its name in that table."""

    name: str
    summary: SweepSummary
    plan: SweepRecord | None

    def cells(self) -> CellsWith[RunSummary]:
        return gather_cells(self.summary.runs, self.summary.damaged, self.plan)


def name_sweeps(sweeps: Sequence[SweepPaths]) -> dict[str, SweepPaths]:
    """Return each distinct sweep by its name, or by its folder as given where two have the same name."""
    folders = {os.path.realpath(each.root): each for each in sweeps}
    names = [each.name for each in folders.values()]
    return {
        name if names.count(name) == 1 else str(each.root): each
        for name, each in zip(names, folders.values(), strict=True)
    }


def read_sweeps(sweeps: Sequence[SweepPaths]) -> list[NamedSweep]:
    """Read the summaries of several sweeps, in the given order; a sweep that is given twice counts once."""
    return [NamedSweep(name, *read_summary(each, is_one_of_many=True)) for name, each in name_sweeps(sweeps).items()]


def cells_of_sweeps(sweeps: Sequence[SweepPaths]) -> tuple[Cells, list[StoredRun], list[Damage]]:
    """Read the cells of several sweeps as those of one, with the sweep as one more setting; its runs, and all damage.

    Equal cells of two sweeps stay two cells.
    """
    runs: list[StoredRun] = []
    damaged: list[Damage] = []
    cells: list[Cell] = []
    choices: dict[str, None] = {}
    axes: dict[str, None] = {}
    seeds: dict[str, None] = {}
    for name, paths in name_sweeps(sweeps).items():
        contents, plan = read_results(paths)
        runs += contents.runs
        damaged += contents.damaged
        found = gather_cells(contents.runs, contents.damaged, plan)
        choices |= dict.fromkeys(found.choices)
        axes |= dict.fromkeys(found.axes)
        seeds |= dict.fromkeys(found.seeds)
        for cell in found.cells:
            settings = {**found.shared, **cell.own}
            if found.default_device is not None:
                settings.setdefault("device", found.default_device)
            own: Mapping[str, Any] = {SWEEP: name, **_without_sweep(settings)}
            cells.append(CellWith(cell.run, cell.signature, own, cell.stored))
    varying = [name for name in differing_settings([cell.own for cell in cells]) if name not in choices]
    together = CellsWith(cells, {}, varying, None, choices=list(choices), axes=axes, seeds=list(seeds))
    return together, runs, damaged


def _without_sweep(settings: Mapping[str, Any]) -> dict[str, Any]:
    """Return settings with one of the name `sweep` as `settings.sweep`, as in tables."""
    return {f"settings.{name}" if name == SWEEP else name: value for name, value in settings.items()}


def common_root(sweeps: Sequence[SweepPaths]) -> Path:
    """Return the folder that all these sweeps are in, relative to the current one where it is below that."""
    common = Path(os.path.commonpath([each.root.absolute().parent for each in sweeps]))
    return common.relative_to(Path.cwd()) if common.is_relative_to(Path.cwd()) else common


def find_sweeps(root: Path, notes: list[str]) -> list[SweepPaths]:
    """Return the sweeps below a folder, or the folder itself if it is one, by name; hidden folders are not searched.

    `notes` gets a line for each folder that cannot be read.
    """
    found: list[SweepPaths] = []
    for folder, subfolders, files in folders_below(root, notes):
        paths = SweepPaths(folder)
        if paths.record.name in files or (paths.runs.name in subfolders and _has_records(paths)):
            found.append(paths)
            subfolders.clear()  # a sweep holds no other
    return found


def _has_records(paths: SweepPaths) -> bool:
    """Whether a `runs` folder is one of ours: other programs have such folders too."""
    return any(paths.run(name).record.exists() for name in run_names(paths))


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

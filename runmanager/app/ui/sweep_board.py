"""All sweeps below a folder, kept up to date in memory for many readers at once; nothing is written."""

import datetime
import os
import threading
import time
from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from runmanager.app.follow.sweep_state import SweepReader
from runmanager.records.files.folders import folder_entries
from runmanager.records.files.paths import EPOCHS, RECORD, SweepPaths
from runmanager.results.load.several_sweeps import SizeMemory, find_sweeps
from runmanager.results.load.summary_cache import CachedRun, SummaryMemory, stamps_of
from runmanager.results.tables.sweep_listing import ListedSweep, list_sweep, sweep_name
from runmanager.results.write_throttle import WriteThrottle
from runmanager.text import error_line

__all__ = ["BoardState", "BoardSweep", "SweepBoard"]

_OPENED = frozenset(
    (RECORD, EPOCHS, "reported.json", "turns.jsonl", "heartbeat", "config.yaml", "run.log", "error.txt")
)
"""The files of a run folder that readers open by their names."""

_FRESH_SECONDS = 0.25  # readers within this time share one look at the files


@dataclass(frozen=True)
class BoardSweep:
    """A sweep as last read: `version` rises with every change, and `read_at` is when it was seen.

    Of a sweep that cannot be read `listed` is None and `fault` says why, in one line.
    """

    name: str
    paths: SweepPaths
    version: int
    read_at: datetime.datetime
    listed: ListedSweep | None
    fault: str = ""


@dataclass(frozen=True)
class BoardState:
    """All sweeps by their names at one moment, and lines about folders that cannot be read."""

    version: int
    sweeps: Mapping[str, BoardSweep]
    notes: Sequence[str]


class SweepBoard:
    """The sweeps below `root`. Any number of threads may ask: the files are looked at on demand, by one at a time.

    Searching for sweeps and looking at runs at rest are limited to a small share of the time, so that ten thousand
    stored runs cost little while a few are being made. `clock` returns seconds.
    """

    def __init__(self, root: Path, *, clock: Callable[[], float] = time.monotonic) -> None:
        self.root = root
        self._clock = clock
        self._throttle = WriteThrottle(clock=clock)
        self._lock = threading.Lock()
        self._looked_at = -float("inf")
        self._sweeps: dict[str, _WatchedSweep] = {}
        self._notes: list[str] = []
        self._state = BoardState(0, {}, ())

    def current(self) -> BoardState:
        """Return the sweeps as they are now, or were a moment ago."""
        with self._lock:
            if self._clock() - self._looked_at >= _FRESH_SECONDS:
                self._look()
                self._looked_at = self._clock()
            return self._state

    def _look(self) -> None:
        if self._throttle.is_due:
            with self._throttle.writing():  # without reading what has changed, of which the first time is much
                self._search()
                changed = [each for each in self._sweeps.values() if each.has_changed(thorough=True)]
        else:
            changed = [each for each in self._sweeps.values() if each.has_changed(thorough=False)]
        version = self._state.version + 1
        for each in changed:
            each.read(version)
        sweeps = {name: each.state for name, each in self._sweeps.items() if each.state is not None}
        if changed or sweeps.keys() != self._state.sweeps.keys() or self._notes != list(self._state.notes):
            self._state = BoardState(version, sweeps, tuple(self._notes))

    def _search(self) -> None:
        self._notes = []
        found = {sweep_name(paths, self.root): paths for paths in find_sweeps(self.root, self._notes)}
        self._sweeps = {
            name: self._sweeps.get(name) or _WatchedSweep(name, paths, self.root) for name, paths in found.items()
        }


class _WatchedSweep:
    """One sweep, with all that is remembered of it between two readings."""

    def __init__(self, name: str, paths: SweepPaths, root: Path) -> None:
        self.state: BoardSweep | None = None
        self._name = name
        self._paths = paths
        self._root = root
        self._reader = SweepReader(paths)
        self._seen: Hashable = None
        self._num_disturbed = 0
        self._summaries = SummaryMemory()
        self._sizes: SizeMemory = {}

    def has_changed(self, *, thorough: bool) -> bool:
        settled, listed = self._summaries.settled, self.state.listed if self.state is not None else None
        runs = self._paths.runs
        if thorough and any(stamps_of(f"{runs}/{name}") != run.stamps for name, run in settled.items()):
            self._num_disturbed += 1  # a run at rest was begun again, or edited
        plan = None if listed is None else listed.sweep.plan
        try:
            seen: Hashable = self._reader.fingerprint(settled, plan.drivers if plan else ())
        except OSError as error:
            seen = error.errno
        has_changed = self.state is None or (seen, self._num_disturbed) != self._seen
        self._seen = seen, self._num_disturbed
        return has_changed

    def read(self, version: int) -> None:
        listed, fault = None, ""
        try:
            listed = self._listed()
        except Exception as error:  # of this sweep alone: the others are shown
            fault = str(error) if isinstance(error, _LeadsOutError) else error_line(error)
        read_at = datetime.datetime.now(datetime.UTC)
        self.state = BoardSweep(self._name, self._paths, version, read_at, listed, fault)

    def _listed(self) -> ListedSweep:
        link = _link_leading_out(self._paths, os.path.realpath(self._root), self._summaries.settled)
        if link is not None:
            raise _LeadsOutError(f"not shown: {link} is a link that leads out of {self._root}")
        listed = list_sweep(
            self._paths, self._root, now_ns=time.time_ns(), summaries=self._summaries, sizes=self._sizes
        )
        _ = listed.row  # made here, once, and not for each page
        return listed


class _LeadsOutError(Exception):
    """A sweep with a file from elsewhere."""


def _link_leading_out(paths: SweepPaths, root: str, settled: Mapping[str, CachedRun]) -> str | None:
    """Return the first link among the files that readers open which leads out of the folder `root`, a real path.

    The `settled` runs were looked at before.
    """
    links = (entry.path for entry in _opened(paths, settled) if entry.is_symlink())
    return next((link for link in links if not _is_below(os.path.realpath(link), root)), None)


def _opened(paths: SweepPaths, settled: Mapping[str, CachedRun]) -> Iterator["os.DirEntry[str]"]:
    names = [each.name for each in (paths.record, paths.labels, paths.messages, paths.runs)]
    yield from (entry for entry in folder_entries(str(paths.root)) if entry.name in names)
    for run in folder_entries(str(paths.runs)):
        if run.name not in settled:
            yield run
            yield from (entry for entry in folder_entries(run.path) if entry.name in _OPENED)


def _is_below(path: str, root: str) -> bool:
    return path == root or path.startswith(root.rstrip("/") + "/")

"""Reading of a sweep's folder for its tables, by several processes if it is large, and without copies of runs."""

import contextlib
import os
import signal
import sys
import threading
import time
from collections.abc import Callable, Container, Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any, Generic, Protocol, TypeVar

import msgspec

from runmanager.errors import RecordError
from runmanager.records.files.paths import RunPaths, SweepPaths, folder_name
from runmanager.records.host.process import usable_cores
from runmanager.records.run.heartbeat import HeartbeatObserver
from runmanager.records.storage.labels import NO_LABELS, SweepLabels, read_labels
from runmanager.records.storage.reader import (
    Damage,
    StoredRun,
    SweepContents,
    order_of_start,
    read_sweep,
    read_tolerantly,
    readable_names,
)
from runmanager.records.storage.versioned_file import SharedParts, gc_paused
from runmanager.records.sweep.sweep_record import SweepRecord, read_sweep_record
from runmanager.results.load.run_summary import (
    LoggedNames,
    LoggedNamesTable,
    RunSummary,
    SweepSummary,
    planned_signatures,
    summarize_run,
)
from runmanager.results.load.summary_cache import CachedRun, RunStamps, is_settled, read_cache, stamps_of, write_cache

_MIN_RUNS = 500  # of a part; starting a process costs as much as reading some tens of runs
_MAX_PROCESSES = 4
_CHUNK = 1 << 20

_T = TypeVar("_T")


def in_parts(
    names: Sequence[str], work: Callable[[Sequence[str]], _T], decoder: msgspec.msgpack.Decoder[_T]
) -> list[_T]:
    """Return the results of `work` for consecutive parts of `names`, in order; each part has a process of its own.

    A result crosses processes in msgpack, and `decoder` reads it. There is one part, and no further process, if there
    are few names or one core, and where this process has threads, whose locks a forked one would keep for ever. Parts
    for which the system has no process left are done here.
    """
    num_parts = min(len(names) // _MIN_RUNS, _MAX_PROCESSES, usable_cores()) if _may_fork() else 1
    size = -(-len(names) // max(1, num_parts))
    parts = [names[begin : begin + size] for begin in range(0, len(names), max(1, size))] or [names]
    with contextlib.ExitStack() as stack:
        others: list[_Worker[_T]] = []
        with contextlib.suppress(OSError):
            for part in parts[1:]:
                others.append(stack.enter_context(_Worker(work, part, decoder)))
        done = [work(parts[0]), *(each.result() for each in others)]
        return [*done, *map(work, parts[len(done) :])]


def _may_fork() -> bool:
    if sys.platform != "linux" or threading.active_count() > 1:
        return False
    return len(os.listdir("/proc/self/task")) == 1  # libraries have threads that Python does not know


class _Worker(Generic[_T]):
    """A forked process that does the work of one part; if it fails, the part is done again here."""

    def __init__(self, work: Callable[[Sequence[str]], _T], part: Sequence[str], decoder: msgspec.msgpack.Decoder[_T]):
        self._work, self._part, self._decoder = work, part, decoder
        self._pipe, into = os.pipe()
        try:
            self._pid = os.fork()
        except OSError:
            os.close(self._pipe)
            os.close(into)
            raise
        if self._pid == 0:
            self._answer(into)
        os.close(into)

    def __enter__(self) -> "_Worker[_T]":
        return self

    def __exit__(self, *_: object) -> None:
        os.close(self._pipe)
        with contextlib.suppress(ProcessLookupError):
            os.kill(self._pid, signal.SIGKILL)
        os.waitpid(self._pid, 0)

    def _answer(self, into: int) -> None:
        """Do the work in the forked process, and end it without anything that belongs to its parent."""
        try:
            with os.fdopen(into, "wb") as pipe:
                pipe.write(msgspec.msgpack.encode(self._work(self._part)))
        finally:
            os._exit(0)

    def result(self) -> _T:
        received = bytearray()
        while data := os.read(self._pipe, _CHUNK):
            received += data
        try:
            return self._decoder.decode(received)
        except msgspec.DecodeError:  # nothing, or not all of it
            return self._work(self._part)


class _Run(Protocol):
    """A stored run or its summary."""

    @property
    def folder(self) -> str: ...

    @property
    def name(self) -> str: ...

    @property
    def signature(self) -> str: ...

    @property
    def is_complete(self) -> bool: ...

    @property
    def own_settings(self) -> Mapping[str, Any] | None: ...  # None where the sweep's plan has them by the signature


_R = TypeVar("_R", bound=_Run)


def drop_duplicates(paths: SweepPaths, runs: Sequence[_R]) -> tuple[Sequence[_R], list[Damage]]:
    """Keep one run of each cell, in their order, and report the others as damage.

    Finished runs are preferred, then runs in the folder that they were made in. Runs that differ in a setting are
    different cells, even if their records have the same signature.
    """
    of_signature: dict[str, list[_R]] = {}
    for run in runs:
        of_signature.setdefault(run.signature, []).append(run)
    if len(of_signature) == len(runs):
        return runs, []
    cells = [same for alike in of_signature.values() for same in _split_cells(alike)]
    chosen = {run.folder: min(same, key=_rank) for same in cells for run in same}
    others = [run for run in runs if run is not chosen[run.folder]]
    damage = [_duplicate_damage(paths, run, chosen[run.folder]) for run in others]
    return [run for run in runs if run is chosen[run.folder]], damage


def _split_cells(alike: Sequence[_R]) -> Iterator[list[_R]]:
    """Group runs of one signature by cell."""
    left = list(alike)
    while left:
        same = [run for run in left if run.own_settings == left[0].own_settings]
        yield same
        left = [run for run in left if run.own_settings != same[0].own_settings]


def _rank(run: _Run) -> tuple[bool, bool, str]:
    return not run.is_complete, run.folder not in (run.name, folder_name(run.name)), run.folder


def _duplicate_damage(paths: SweepPaths, run: _Run, chosen: _Run) -> Damage:
    folder = paths.runs / run.folder
    message = f"{folder} holds the same cell as {chosen.folder}, and a cell counts once; move one away."
    return Damage(folder, message, is_duplicate=True)


def read_results(
    paths: SweepPaths, *, observer: HeartbeatObserver | None = None
) -> tuple[SweepContents, SweepRecord | None]:
    """Read the runs and the plan of a sweep; a plan that cannot be read is reported as damage, like a run.

    `observer` may have observed the heartbeats of runs on other hosts, and know that they are gone.
    """
    sweep = read_sweep(paths, observer=observer)
    return _with_plan(paths, sweep.runs, sweep.damaged)


def _with_plan(
    paths: SweepPaths, read: Sequence[StoredRun], damaged: Sequence[Damage]
) -> tuple[SweepContents, SweepRecord | None]:
    runs, duplicates = drop_duplicates(paths, read)
    plan, plan_damage = _read_plan(paths)
    labels, label_damage = _read_labels(paths)
    return SweepContents(paths, runs, (*damaged, *duplicates, *plan_damage, *label_damage), labels), plan


class CachedReader:
    """Reader of a sweep's folder for repeated reading in one process: runs that have ended for good stay in memory.

    A driver that writes the tables whenever a run ends thus reads each run only a few times. `clock` returns the time
    in ns since 1970, on the clock of the files' times.
    """

    def __init__(self, paths: SweepPaths, *, clock: Callable[[], int] = time.time_ns) -> None:
        self._paths = paths
        self._clock = clock
        self._cache: dict[str, tuple[RunStamps, StoredRun]] = {}
        self._shared = SharedParts()

    def read(self) -> tuple[SweepContents, SweepRecord | None]:
        """Read the current files, like `read_results`."""
        now_ns = self._clock()  # before reading, so that concurrent changes are too young to be cached
        damaged: list[Damage] = []
        with gc_paused():
            names = readable_names(self._paths, damaged)
            found = (self._read(name, damaged, now_ns=now_ns) for name in names)
            runs = [run for run in found if run is not None]
        runs.sort(key=lambda run: order_of_start(run.record.started_at, run.record.name))
        return _with_plan(self._paths, runs, damaged)

    def _read(self, name: str, damaged: list[Damage], *, now_ns: int) -> StoredRun | None:
        paths = self._paths.run(name)
        stamps = stamps_of(str(paths.root))
        cached = self._cache.get(name)
        if cached is not None and cached[0] == stamps:
            return cached[1]
        num_damaged = len(damaged)
        run = read_tolerantly(paths, damaged, shared=self._shared)
        if run is not None and len(damaged) == num_damaged and is_settled(run, stamps, now_ns=now_ns):
            self._cache[name] = stamps, run
        return run


def read_summary(
    paths: SweepPaths, *, clock: Callable[[], int] = time.time_ns, is_one_of_many: bool = False
) -> tuple[SweepSummary, SweepRecord | None]:
    """Read the summaries of the runs, for the results table, and the plan; runs that have ended come from the cache.

    All other runs are read again, and so are those whose files have changed. `clock` returns the time in ns since 1970,
    on the clock of the files' times. A sweep that is `is_one_of_many` is cached even if it is small.
    """
    now_ns = clock()  # before reading, so that concurrent changes are too young to be cached
    plan, plan_damage = _read_plan(paths)
    damaged: list[Damage] = []
    with gc_paused():
        runs, logged_names = _read_summaries(
            paths, damaged, planned_signatures(plan), now_ns=now_ns, caches_few=is_one_of_many
        )
    runs.sort(key=lambda run: order_of_start(run.started_at, run.name))
    runs_left, duplicates = drop_duplicates(paths, runs)
    labels, label_damage = _read_labels(paths)
    all_damage = (*damaged, *duplicates, *plan_damage, *label_damage)
    return SweepSummary(paths, runs_left, all_damage, logged_names, labels), plan


def _read_labels(paths: SweepPaths) -> tuple[SweepLabels, list[Damage]]:
    try:
        return read_labels(paths), []
    except RecordError as error:
        return NO_LABELS, [Damage(paths.labels, str(error))]


def _read_plan(paths: SweepPaths) -> tuple[SweepRecord | None, list[Damage]]:
    try:
        return read_sweep_record(paths), []
    except RecordError as error:
        return None, [Damage(paths.record, str(error))]


class _ReadRuns(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """Runs as read from their files, each with whether it may be cached, and what was damaged."""

    runs: list[tuple[CachedRun, bool]]
    damaged: list[tuple[str, str]]
    logged_names: list[LoggedNames]


_READ_RUNS = msgspec.msgpack.Decoder(_ReadRuns)


def _read_summaries(
    paths: SweepPaths, damaged: list[Damage], planned: Container[str], *, now_ns: int, caches_few: bool
) -> tuple[list[RunSummary], Sequence[LoggedNames]]:
    cached, logged = read_cache(paths)
    to_cache: list[CachedRun] = []
    to_read: list[str] = []
    for name in readable_names(paths, damaged):
        entry = cached.get(name)
        if entry is None or entry.stamps != stamps_of(f"{paths.runs}/{name}") or not _has_settings(entry, planned):
            to_read.append(name)
        else:
            to_cache.append(entry)
    runs = [entry.summary for entry in to_cache]
    num_cached = len(to_cache)
    for part in in_parts(to_read, partial(_read_runs, str(paths.runs), planned=planned, now_ns=now_ns), _READ_RUNS):
        damaged += (Damage(Path(path), message) for path, message in part.damaged)
        indices = [logged.index_of(names) for names in part.logged_names]
        for entry, is_settled_run in part.runs:
            if indices[entry.summary.logged] != entry.summary.logged:
                summary = msgspec.structs.replace(entry.summary, logged=indices[entry.summary.logged])
                entry = CachedRun(entry.stamps, summary)
            runs.append(entry.summary)
            if is_settled_run:
                to_cache.append(entry)
    write_cache(paths, to_cache, logged, num_new=len(to_cache) - num_cached, even_few=caches_few)
    return runs, logged.names


def _read_runs(folder: str, names: Sequence[str], *, planned: Container[str], now_ns: int) -> _ReadRuns:
    runs: list[tuple[CachedRun, bool]] = []
    damaged: list[Damage] = []
    shared, logged = SharedParts(), LoggedNamesTable()
    for name in names:
        root = f"{folder}/{name}"
        stamps = stamps_of(root)
        num_damaged = len(damaged)
        run = read_tolerantly(RunPaths(Path(root)), damaged, shared=shared)
        if run is not None:
            may_be_cached = len(damaged) == num_damaged and is_settled(run, stamps, now_ns=now_ns)
            runs.append((CachedRun(stamps, summarize_run(run, planned, logged)), may_be_cached))
    return _ReadRuns(runs, [(str(each.path), each.message) for each in damaged], logged.names)


def _has_settings(entry: CachedRun, planned: Container[str]) -> bool:
    return entry.summary.own_settings is not None or entry.summary.signature in planned

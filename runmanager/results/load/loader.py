"""Reading of a sweep's folder for its tables."""

import time
from collections.abc import Callable, Container, Sequence
from functools import partial
from pathlib import Path

import msgspec

from runmanager.errors import RecordError
from runmanager.records.files.paths import RunPaths, SweepPaths
from runmanager.records.run.heartbeat import HeartbeatObserver
from runmanager.records.storage.bulk_reading import SharedParts, gc_paused
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
from runmanager.records.sweep.sweep_record import SweepRecord, read_sweep_record
from runmanager.results.load.duplicates import drop_duplicates
from runmanager.results.load.logged_values import LoggedNames, LoggedNamesTable
from runmanager.results.load.parallel_reading import in_parts
from runmanager.results.load.run_summary import RunSummary, SweepSummary, planned_signatures, summarize_run
from runmanager.results.load.summary_cache import CachedRun, RunStamps, is_settled, read_cache, stamps_of, write_cache

__all__ = ["CachedReader", "read_results", "read_summary"]


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

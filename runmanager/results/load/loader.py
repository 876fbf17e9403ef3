"""A sweep's folder, read once for all of its tables."""

import time
from collections.abc import Callable, Container, Sequence
from pathlib import Path

from runmanager.errors import RecordError
from runmanager.records.files.paths import RunPaths, SweepPaths
from runmanager.records.run.heartbeat import HeartbeatObserver
from runmanager.records.run.shared_parts import SharedParts
from runmanager.records.storage.gc_paused import gc_paused
from runmanager.records.storage.reader import (
    Damage,
    StoredRun,
    SweepContents,
    order_of_start,
    read_sweep,
    read_tolerantly,
    run_names,
)
from runmanager.records.sweep.record import SweepRecord, read_sweep_record
from runmanager.results.load.duplicates import drop_duplicates
from runmanager.results.load.run_summary import RunSummary, SweepSummary, planned_signatures, summarize_run
from runmanager.results.load.summary_cache import CachedRun, RunStamps, is_settled, read_cache, stamps_of, write_cache

__all__ = ["CachedReader", "read_results", "read_summary"]


def read_results(
    paths: SweepPaths, *, observer: HeartbeatObserver | None = None
) -> tuple[SweepContents, SweepRecord | None]:
    """What is stored of the runs, and the plan; a plan that cannot be read is reported as damage like a run's.

    `observer` is one that has watched runs of other hosts, and may know that they are gone.
    """
    sweep = read_sweep(paths, observer=observer)
    return _whole(paths, sweep.runs, sweep.damaged)


def _whole(
    paths: SweepPaths, read: Sequence[StoredRun], damaged: Sequence[Damage]
) -> tuple[SweepContents, SweepRecord | None]:
    runs, copies = drop_duplicates(paths, read)
    plan, no_plan = _read_plan(paths)
    return SweepContents(paths, runs, (*damaged, *copies, *no_plan)), plan


class CachedReader:
    """A sweep's folder, read again and again by one process: what it has read of runs that have ended for good stays.

    So who writes the tables whenever a run ends reads each run a few times, and not as often as runs follow it. `clock`
    is the one that the files' times are of, in ns since 1970.
    """

    def __init__(self, paths: SweepPaths, *, clock: Callable[[], int] = time.time_ns) -> None:
        self._paths = paths
        self._clock = clock
        self._kept: dict[str, tuple[RunStamps, StoredRun]] = {}
        self._shared = SharedParts()

    def read(self) -> tuple[SweepContents, SweepRecord | None]:
        """What `read_results` gives, as the files are now."""
        now_ns = self._clock()  # before the first look, so that what changes meanwhile is too young to be kept
        damaged: list[Damage] = []
        with gc_paused():
            found = (self._read(name, damaged, now_ns=now_ns) for name in run_names(self._paths))
            runs = [run for run in found if run is not None]
        runs.sort(key=lambda run: order_of_start(run.record.started_at, run.record.name))
        return _whole(self._paths, runs, damaged)

    def _read(self, name: str, damaged: list[Damage], *, now_ns: int) -> StoredRun | None:
        paths = self._paths.run(name)
        marks = _marks_of(str(paths.root))
        known = self._kept.get(name)
        if known is not None and known[0] == marks:
            return known[1]
        num_damaged = len(damaged)
        run = read_tolerantly(paths, damaged, shared=self._shared)
        if run is not None and len(damaged) == num_damaged and is_settled(run, marks, now_ns=now_ns):
            self._kept[name] = marks, run
        return run


def read_summary(
    paths: SweepPaths, *, clock: Callable[[], int] = time.time_ns
) -> tuple[SweepSummary, SweepRecord | None]:
    """The same in short, for the results table alone: of runs that have ended what an earlier reading kept.

    Every other run is read anew, and so is one whose files have changed. `clock` is the one that the files' times are
    of, in ns since 1970.
    """
    now_ns = clock()  # before the first look, so that what changes meanwhile is too young to be kept
    plan, no_plan = _read_plan(paths)
    damaged: list[Damage] = []
    with gc_paused():
        runs = _summaries(paths, damaged, planned_signatures(plan), now_ns=now_ns)
    runs.sort(key=lambda run: order_of_start(run.started_at, run.name))
    kept, copies = drop_duplicates(paths, runs)
    return SweepSummary(paths, kept, (*damaged, *copies, *no_plan)), plan


def _read_plan(paths: SweepPaths) -> tuple[SweepRecord | None, list[Damage]]:
    try:
        return read_sweep_record(paths), []
    except RecordError as error:
        return None, [Damage(paths.record, str(error))]


def _summaries(paths: SweepPaths, damaged: list[Damage], planned: Container[str], *, now_ns: int) -> list[RunSummary]:
    kept = read_cache(paths)
    runs: list[RunSummary] = []
    to_keep: list[CachedRun] = []
    shared = SharedParts()
    num_new = 0
    for name in run_names(paths):
        folder = f"{paths.runs}/{name}"
        marks = _marks_of(folder)
        one = kept.get(name)
        if one is None or one.marks != marks or not _has_settings(one.summary, planned):
            num_damaged = len(damaged)
            run = read_tolerantly(RunPaths(Path(folder)), damaged, shared=shared)
            if run is None:
                continue
            one = CachedRun(marks, summarize_run(run, planned))
            if len(damaged) > num_damaged or not is_settled(run, marks, now_ns=now_ns):
                runs.append(one.summary)
                continue
            num_new += 1
        runs.append(one.summary)
        to_keep.append(one)
    write_cache(paths, to_keep, num_new=num_new)
    return runs


def _marks_of(folder: str) -> RunStamps:
    """To be asked for before a run is read: then what is written in between is seen the next time."""
    try:
        return stamps_of(folder)
    except OSError:
        return None, None  # said when it is read


def _has_settings(run: RunSummary, planned: Container[str]) -> bool:
    return run.own_settings is not None or run.signature in planned

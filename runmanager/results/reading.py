"""A sweep's folder, read once for all of its tables."""

import time
from collections.abc import Callable, Container
from pathlib import Path

from runmanager.errors import RecordError
from runmanager.records.collecting import collector_at_rest
from runmanager.records.heartbeat import HeartbeatObserver
from runmanager.records.paths import RunPaths, SweepPaths
from runmanager.records.sharing import SharedParts
from runmanager.records.store import (
    Damage,
    SweepContents,
    order_of_start,
    read_sweep,
    read_tolerantly,
    run_names,
)
from runmanager.records.sweep import SweepRecord, read_sweep_record
from runmanager.results.keeping import KeptRun, is_settled, keep, kept_runs, marks_of
from runmanager.results.summary import RunSummary, SweepSummary, planned_signatures, summary_of

__all__ = ["read_results", "read_summary"]


def read_results(
    paths: SweepPaths, *, observer: HeartbeatObserver | None = None
) -> tuple[SweepContents, SweepRecord | None]:
    """What is stored of the runs, and the plan; a plan that cannot be read is reported as damage like a run's.

    `observer` is one that has watched runs of other hosts, and may know that they are gone.
    """
    sweep = read_sweep(paths, observer=observer)
    plan, damage = _read_plan(paths)
    return SweepContents(sweep.paths, sweep.runs, (*sweep.damaged, *damage)), plan


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
    with collector_at_rest():
        runs = _summaries(paths, damaged, planned_signatures(plan), now_ns=now_ns)
    runs.sort(key=lambda run: order_of_start(run.started_at, run.name))
    return SweepSummary(paths, runs, (*damaged, *no_plan)), plan


def _read_plan(paths: SweepPaths) -> tuple[SweepRecord | None, list[Damage]]:
    try:
        return read_sweep_record(paths), []
    except RecordError as error:
        return None, [Damage(paths.record, str(error))]


def _summaries(paths: SweepPaths, damaged: list[Damage], planned: Container[str], *, now_ns: int) -> list[RunSummary]:
    kept = kept_runs(paths)
    runs: list[RunSummary] = []
    to_keep: list[KeptRun] = []
    shared = SharedParts()
    num_new = 0
    for name in run_names(paths):
        folder = f"{paths.runs}/{name}"
        try:
            marks = marks_of(folder)  # before reading: what is written in between is seen the next time
        except OSError:
            marks = (None, None)  # said when it is read
        one = kept.get(name)
        if one is None or one.marks != marks or not _has_settings(one.summary, planned):
            num_damaged = len(damaged)
            run = read_tolerantly(RunPaths(Path(folder)), damaged, shared=shared)
            if run is None:
                continue
            one = KeptRun(marks, summary_of(run, planned))
            if len(damaged) > num_damaged or not is_settled(run, marks, now_ns=now_ns):
                runs.append(one.summary)
                continue
            num_new += 1
        runs.append(one.summary)
        to_keep.append(one)
    keep(paths, to_keep, num_new=num_new)
    return runs


def _has_settings(run: RunSummary, planned: Container[str]) -> bool:
    return run.own_settings is not None or run.signature in planned

"""Estimates of the time left for a run, from its own epochs, and for a sweep, from those of its runs."""

import heapq
from collections.abc import Sequence
from statistics import median

from runmanager.records.run.attempts import epochs_of_other_runs
from runmanager.records.run.run_record import EpochRecord, RunRecord

__all__ = ["last_copied_epoch", "own_seconds", "seconds_per_epoch", "sweep_seconds_left"]


def last_copied_epoch(record: RunRecord) -> int:
    """Return the last epoch of a run that another run has made, 0 if it made all itself."""
    return epochs_of_other_runs(record).stop - 1


def own_seconds(seconds: float, epochs: Sequence[EpochRecord], copied: int) -> float:
    """Return the seconds of a run without those of the epochs up to `copied`, which another run has made."""
    before = [epoch.run_seconds or 0.0 for epoch in epochs if 0 < epoch.epoch <= copied]
    return max(0.0, seconds - max(before, default=0.0))


def seconds_per_epoch(epochs: Sequence[EpochRecord], *, copied: int = 0) -> float | None:
    """Return the median wall time of a run's epochs; None before the first one has ended.

    Warm-up epochs count only while no others exist, epochs up to `copied`, of another run, never.
    """
    timed = [epoch for epoch in epochs if epoch.epoch > copied and epoch.wall_seconds is not None]
    steady = [epoch for epoch in timed if not epoch.warmup] or timed
    return median(epoch.wall_seconds or 0.0 for epoch in steady) if steady else None


def sweep_seconds_left(
    running: Sequence[float | None], *, waiting: Sequence[float | None], at_once: int
) -> float | None:
    """Estimate the seconds until the last run ends, by those runs whose seconds are known; None if none are.

    `running` has the seconds left of each running run, `waiting` those of each run to come, in order, which starts when
    one of the `at_once` slots is free. What is unknown takes no time, so that the estimate is then the least.
    """
    if all(seconds is None for seconds in (*running, *waiting)):
        return 0.0 if not running and not waiting else None
    slots = [left or 0.0 for left in running]
    slots += [0.0] * (at_once - len(slots))
    heapq.heapify(slots)
    for seconds in waiting:
        heapq.heapreplace(slots, slots[0] + (seconds or 0.0))
    return max(slots, default=0.0)

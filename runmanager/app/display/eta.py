"""Estimates of the time left for runs and their sweep, from measured epochs and runs."""

import heapq
from collections.abc import Sequence
from statistics import median

from runmanager.records.run.run_record import EpochRecord

__all__ = ["run_seconds_left", "sweep_seconds_left"]


def run_seconds_left(epochs: Sequence[EpochRecord], planned: int) -> float | None:
    """Estimate the seconds of the remaining epochs from the median wall time; None before the first epoch has ended.

    Warm-up epochs count only while no others exist.
    """
    timed = [epoch for epoch in epochs if epoch.epoch > 0 and epoch.wall_seconds is not None]
    steady = [epoch for epoch in timed if not epoch.warmup] or timed
    if not steady or not planned:
        return None
    return max(0, planned - timed[-1].epoch) * median(epoch.wall_seconds or 0.0 for epoch in steady)


def sweep_seconds_left(
    running: Sequence[float | None], *, num_waiting: int, run_seconds: Sequence[float], at_once: int
) -> float | None:
    """Estimate the seconds until the last run ends; None without a measurement to estimate from.

    `running` has the seconds left of each running run, None if unknown. Each waiting run takes the median of
    `run_seconds` and starts when one of the `at_once` slots is free.
    """
    typical = median(run_seconds) if run_seconds else None
    if typical is None and (num_waiting or None in running):
        return None
    free_at = [typical if left is None else left for left in running]
    slots = [left for left in free_at if left is not None]
    slots += [0.0] * (at_once - len(slots))
    heapq.heapify(slots)
    for _ in range(num_waiting):
        heapq.heapreplace(slots, slots[0] + (typical or 0.0))
    return max(slots, default=0.0)

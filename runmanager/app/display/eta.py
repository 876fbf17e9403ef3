"""How long runs and their sweep still take, judged from what is measured of them."""

import heapq
from collections.abc import Sequence
from statistics import median

from runmanager.records.run.record import EpochRecord

__all__ = ["run_seconds_left", "sweep_seconds_left"]


def run_seconds_left(epochs: Sequence[EpochRecord], planned: int) -> float | None:
    """What the epochs to come take at the median wall time of those that were; None before the first has ended.

    Warm-up epochs count only while there are no others.
    """
    timed = [epoch for epoch in epochs if epoch.epoch > 0 and epoch.wall_seconds is not None]
    steady = [epoch for epoch in timed if not epoch.warmup] or timed
    if not steady or not planned:
        return None
    return max(0, planned - timed[-1].epoch) * median(epoch.wall_seconds or 0.0 for epoch in steady)


def sweep_seconds_left(
    running: Sequence[float | None], *, num_waiting: int, run_seconds: Sequence[float], at_once: int
) -> float | None:
    """When the last run ends, in seconds from now.

    `running` has the time left of each running run, None where it is not known; each of those that wait takes as long
    as the median of `run_seconds`, and begins when one of the `at_once` places is free. None where nothing that it
    would take is measured.
    """
    typical = median(run_seconds) if run_seconds else None
    if typical is None and (num_waiting or None in running):
        return None
    free_at = [typical if left is None else left for left in running]
    places = [left for left in free_at if left is not None]
    places += [0.0] * (at_once - len(places))
    heapq.heapify(places)
    for _ in range(num_waiting):
        heapq.heapreplace(places, places[0] + (typical or 0.0))
    return max(places, default=0.0)

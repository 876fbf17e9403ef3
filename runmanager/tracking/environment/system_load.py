"""How busy the machine was with other things while a run had it."""

import os
import time
from dataclasses import dataclass
from typing import Self

import psutil

__all__ = ["CpuShares", "CpuTimes"]


@dataclass(frozen=True)
class CpuTimes:
    """CPU seconds since boot (`busy`, `steal`: the whole machine; `own`: a process and its children).

    `own_processes` are the ids of those that are alive.
    """

    at: float
    busy: float
    steal: float
    own: float
    own_processes: frozenset[int] = frozenset()

    @classmethod
    def now(cls, *, of: int | None = None) -> Self:
        """The counts at this moment; `own` are those of this process, or of the one with the pid `of`."""
        times = psutil.cpu_times()
        steal = getattr(times, "steal", 0.0)
        # Guests are counted in `user` already; waiting for a disk is not work.
        idle = times.idle + getattr(times, "iowait", 0.0)
        guests = getattr(times, "guest", 0.0) + getattr(times, "guest_nice", 0.0)
        own, processes = _own_seconds(of)
        busy = sum(times) - idle - guests - steal
        return cls(at=time.monotonic(), busy=busy, steal=steal, own=own, own_processes=processes)


@dataclass(frozen=True)
class CpuShares:
    """Shares of all the machine's cores between two samples: taken by others, and taken by the hypervisor."""

    outside_cpu_share: float
    steal_share: float

    @classmethod
    def between(cls, start: CpuTimes, end: CpuTimes) -> Self:
        capacity = max(end.at - start.at, 1e-9) * (os.cpu_count() or 1)
        outside = (end.busy - start.busy) - (end.own - start.own)
        return cls(_share(outside, capacity), _share(end.steal - start.steal, capacity))


def _share(seconds: float, capacity: float) -> float:
    return min(max(seconds / capacity, 0.0), 1.0)


def _own_seconds(pid: int | None) -> tuple[float, frozenset[int]]:
    process = psutil.Process(pid)
    processes = {process.pid}
    own = process.cpu_times()
    total = own.user + own.system + own.children_user + own.children_system
    for child in process.children(recursive=True):
        try:
            times = child.cpu_times()
        except psutil.Error:
            continue
        total += times.user + times.system
        processes.add(child.pid)
    return float(total), frozenset(processes)

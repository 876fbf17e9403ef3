"""Sampling of a run's device and its host while it runs: how much others used the machine, and what the meters say.

It is sampled on the heartbeat's thread, and at the ends of epochs, off their clock.
"""

import os
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Self

import msgspec
import psutil

from runmanager.records.run.run_record import DeviceReadings
from runmanager.tracking.monitoring.device_meter import DeviceMeter, Reading

_MIN_SECONDS = 1.0  # the kernel counts CPU time in hundredths of a second: too coarse for shorter intervals
_MAX_COST = 1e-3  # share of the run's time for sampling: finding the run's own processes takes milliseconds
_MAX_COST_OF_READING = 1e-2  # the same for the meters at the ends of epochs, of which some take milliseconds
_FREE_SECONDS = 1e-4  # of such a reading: as much as an epoch's line in epochs.jsonl
_HIGH_QUANTILE = 0.9
_OTHERS = 0.1  # of the run's own CPU time: of less the energy that others use is within the noise of runs


@dataclass(frozen=True)
class CpuTimes:
    """CPU seconds since boot at one moment (`at`, monotonic seconds).

    `busy` and `steal` are of the whole machine, `own` of one process and its children, `own_processes` the ids of
    those that are alive.
    """

    at: float
    busy: float
    steal: float
    own: float
    own_processes: frozenset[int] = frozenset()

    @classmethod
    def now(cls, *, of: int | None = None) -> Self:
        """Read the counters; `own` is for the process with the id `of`, by default this one."""
        times = psutil.cpu_times()
        steal = getattr(times, "steal", 0.0)
        # Guests are part of `user` already; waiting for a disk is not work.
        idle = times.idle + getattr(times, "iowait", 0.0)
        guests = getattr(times, "guest", 0.0) + getattr(times, "guest_nice", 0.0)
        own, processes = _family_seconds(of)
        busy = sum(times) - idle - guests - steal
        return cls(at=time.monotonic(), busy=busy, steal=steal, own=own, own_processes=processes)


@dataclass(frozen=True)
class CpuShares:
    """Shares of all cores between two moments that other processes and the hypervisor took."""

    outside_cpu_share: float
    steal_share: float

    @classmethod
    def between(cls, start: CpuTimes, end: CpuTimes) -> Self:
        capacity = max(end.at - start.at, 1e-9) * (os.cpu_count() or 1)
        outside = (end.busy - start.busy) - (end.own - start.own)
        return cls(_share(outside, capacity), _share(end.steal - start.steal, capacity))


def _share(seconds: float, capacity: float) -> float:
    return min(max(seconds / capacity, 0.0), 1.0)


def _family_seconds(pid: int | None) -> tuple[float, frozenset[int]]:
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


@dataclass(frozen=True)
class CpuContention:
    """Shares of all cores that other processes and the hypervisor took while the run ran.

    The means are over the whole run. `_p90` is the 90% quantile over time, which shows load during a part of the run;
    None if the run was too short to sample.
    """

    outside_cpu_share: float
    steal_share: float
    outside_cpu_share_p90: float | None
    steal_share_p90: float | None


class ResourceSampler:
    """Samples the CPUs, and the meters of a run's device while it trains. Thread-safe.

    Memory is constant in the length of the run. Sampling becomes rarer if it is slow.
    """

    def __init__(
        self,
        *,
        family: int | None = None,
        cpu_clock: Callable[[], float] = time.thread_time,
        now: Callable[[], float] = time.monotonic,
    ) -> None:
        """`family` is the process whose descendants belong to the run; `cpu_clock` measures the cost of a sample."""
        self._family = family
        self._cpu_clock = cpu_clock
        self._now = now
        self._lock = threading.Lock()
        self._outside, self._steal = _TimeHistogram(), _TimeHistogram()
        self._meter: DeviceMeter | None = None
        self._epoch: _EpochReadings | None = None
        self._is_host_shared: bool | None = None
        self._has_others: bool | None = None
        self._wait_seconds, self._read_from = _MIN_SECONDS, 0.0
        self._start = self._last = CpuTimes.now(of=self._family)

    def sample(self) -> None:
        """Take a sample, unless the last one is too recent."""
        with self._lock:
            self._sample()

    def epoch_begins(self, meter: DeviceMeter | None) -> None:
        """Begin an epoch on the device of `meter`, whose clock is about to start."""
        with self._lock:
            if meter is not self._meter:
                self._meter, self._read_from, self._has_others = meter, 0.0, None
            self._epoch = None if meter is None else _EpochReadings(meter, self._now())

    def epoch_ends(self) -> DeviceReadings | None:
        """End the epoch, whose clock has stopped; return what its device's meter says, None without one."""
        with self._lock:
            if self._epoch is None:
                return None
            self._sample()
            if self._now() >= self._read_from:
                self._read(self._epoch, is_at_end=True)
            ended, self._epoch = self._epoch, None
            return ended.result(self._now(), has_others=self._has_others)

    def _sample(self) -> None:
        if self._now() - self._last.at < self._wait_seconds:
            return
        began = self._cpu_clock()
        try:
            self._add(CpuTimes.now(of=self._family))
        except (psutil.Error, OSError):
            return  # the next sample may succeed
        if self._epoch is not None:
            self._read(self._epoch)
        self._wait_seconds = max(_MIN_SECONDS, (self._cpu_clock() - began) / _MAX_COST)

    def _read(self, epoch: "_EpochReadings", *, is_at_end: bool = False) -> None:
        assert self._meter is not None
        began = self._cpu_clock()
        reading = self._meter.read(self._last.own_processes)
        self._has_others = self._is_host_shared if self._meter.is_of_host else reading.has_others
        epoch.add(reading, is_at_end=is_at_end)
        cost = self._cpu_clock() - began - _FREE_SECONDS
        self._read_from = self._now() + max(0.0, cost) / _MAX_COST_OF_READING

    def cpu(self) -> CpuContention:
        """Return the contention from the start until now."""
        with self._lock:
            end = CpuTimes.now(of=self._family)
            if end.at - self._last.at >= _MIN_SECONDS:
                self._add(end)
            mean = CpuShares.between(self._start, end)
        return CpuContention(
            mean.outside_cpu_share,
            mean.steal_share,
            self._outside.quantile(_HIGH_QUANTILE),
            self._steal.quantile(_HIGH_QUANTILE),
        )

    def _add(self, sample: CpuTimes) -> None:
        shares = CpuShares.between(self._last, sample)
        self._outside.add(shares.outside_cpu_share, sample.at - self._last.at)
        self._steal.add(shares.steal_share, sample.at - self._last.at)
        own = (sample.own - self._last.own) / ((sample.at - self._last.at) * (os.cpu_count() or 1))
        self._is_host_shared = shares.outside_cpu_share > _OTHERS * own
        self._last = sample


class _TimeHistogram:
    """Seconds spent at each share, in bins of 0.01."""

    def __init__(self) -> None:
        self._seconds = [0.0] * 101

    def add(self, share: float, seconds: float) -> None:
        self._seconds[int(share * 100)] += seconds

    def quantile(self, quantile: float) -> float | None:
        """Return the share that was reached or exceeded during 1 - `quantile` of the time; None without samples."""
        left = sum(self._seconds) * (1 - quantile)
        if left == 0:
            return None
        step = len(self._seconds)
        while left > 1e-9 and step > 0:
            step -= 1
            left -= self._seconds[step]
        return step / 100


class _EpochReadings:
    """What the meter of a device says of an epoch."""

    def __init__(self, meter: DeviceMeter, now: float) -> None:
        self._meter = meter
        self._begun_at = now
        self._joules = meter.energy.joules()
        self._sums: dict[str, tuple[float, int]] = {}
        self._clock_hertz: float | None = None

    def add(self, reading: Reading, *, is_at_end: bool) -> None:
        for name in ("utilization", "is_throttled", "has_others"):
            value = getattr(reading, name)
            if value is not None:
                total, count = self._sums.get(name, (0.0, 0))
                self._sums[name] = total + float(value), count + 1
        if is_at_end:
            self._clock_hertz = reading.clock_hertz

    def result(self, now: float, *, has_others: bool | None) -> DeviceReadings:
        """Return it at the epoch's end; the energy is left out unless the run is known to be alone on the device."""
        means = {name: total / count for name, (total, count) in self._sums.items()}
        found = DeviceReadings(
            utilization=means.get("utilization"),
            clock_hertz=self._clock_hertz,
            throttled_share=means.get("is_throttled"),
            others_share=means.get("has_others"),
        )
        joules, seconds = self._meter.energy.joules(), now - self._begun_at
        if joules is None or self._joules is None or has_others is not False or means.get("has_others"):
            return found
        steps = seconds / self._meter.energy.step_seconds
        return msgspec.structs.replace(found, joules=joules - self._joules, seconds=seconds, counter_steps=steps)

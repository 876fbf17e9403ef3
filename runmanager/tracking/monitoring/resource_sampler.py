"""Sampling of a run's CPU and GPU while it runs, on the heartbeat's thread: how much others used the machine.

A GPU's utilisation, power, clock and processes are read through NVML, with the extra `[gpu]` (nvidia-ml-py). Calls and
constants are those of NVIDIA's NVML API Reference Guide, "Device Queries".
"""

import os
import threading
import time
from collections.abc import Callable, Set
from dataclasses import dataclass
from typing import Any, Protocol, Self

import psutil
import torch

# Reasons for a lower clock that count as throttling: the power cap, heat, the power supply. Idling and a clock that an
# administrator has set do not.
_THROTTLED = 0x04 | 0x08 | 0x20 | 0x40 | 0x80


@dataclass(frozen=True)
class GpuReading:
    """State of a GPU at one moment; None for what it does not report. Utilisation is the share of busy time."""

    utilization: float | None = None
    power_watts: float | None = None
    clock_hertz: float | None = None
    is_throttled: bool | None = None
    has_others: bool | None = None


class GpuMeter(Protocol):
    """Meter of one GPU."""

    def read(self, own: Set[int]) -> GpuReading:
        """Return the present state; `own` are the ids of the run's processes."""
        ...

    def energy_joules(self) -> float | None:
        """Return the energy used since a fixed moment in the past."""
        ...


def open_gpu_meter(device: torch.device, *, is_shared: bool = False) -> GpuMeter | None:
    """Open the meter of a CUDA device; None for other devices, without nvidia-ml-py or without access.

    `is_shared` tells that other processes of the same sweep may use the GPU.
    """
    if device.type != "cuda":
        return None
    try:
        import pynvml

        pynvml.nvmlInit()
        handle = _find_handle(pynvml, str(torch.cuda.get_device_properties(device).uuid))
        return NvmlMeter(pynvml, handle, is_shared=is_shared)
    except Exception:  # without the library or the driver, on a MIG slice, with torch for AMD: a run needs no meter
        return None


def _find_handle(nvml: Any, uuid: str) -> Any:
    """Find the GPU by its unique id: NVML numbers all GPUs, CUDA only those in CUDA_VISIBLE_DEVICES."""
    try:
        return nvml.nvmlDeviceGetHandleByUUID(f"GPU-{uuid}")
    except nvml.NVMLError:
        return nvml.nvmlDeviceGetHandleByUUID(f"MIG-{uuid}")


class NvmlMeter:
    """Meter that uses the module `pynvml` and its handle of the GPU."""

    def __init__(self, nvml: Any, handle: Any, *, is_shared: bool = False) -> None:
        self._nvml = nvml
        self._handle = handle
        self._is_shared = is_shared

    def read(self, own: Set[int]) -> GpuReading:
        """Return the present state; `own` are the ids of the run's processes."""
        nvml = self._nvml
        rates = self._query(nvml.nvmlDeviceGetUtilizationRates)
        milliwatts = self._query(nvml.nvmlDeviceGetPowerUsage)
        megahertz = self._query(nvml.nvmlDeviceGetClockInfo, nvml.NVML_CLOCK_SM)
        # The older name: older drivers lack the newer one.
        reasons = self._query(nvml.nvmlDeviceGetCurrentClocksThrottleReasons)
        processes = self._query(nvml.nvmlDeviceGetComputeRunningProcesses)
        return GpuReading(
            utilization=None if rates is None else rates.gpu / 100,
            power_watts=None if milliwatts is None else milliwatts / 1000,
            clock_hertz=None if megahertz is None else megahertz * 1e6,
            is_throttled=None if reasons is None else bool(reasons & _THROTTLED),
            has_others=None if processes is None else self._has_others([each.pid for each in processes], own),
        )

    def energy_joules(self) -> float | None:
        """Return the energy used since the driver was loaded; None before Volta."""
        millijoules = self._query(self._nvml.nvmlDeviceGetTotalEnergyConsumption)
        return None if millijoules is None else millijoules / 1000

    def _has_others(self, listed: list[int], own: Set[int]) -> bool | None:
        others = [pid for pid in listed if pid not in own and pid != os.getpid()]
        if len(others) < len(listed) or len(listed) < 2:
            return len(listed) > 1 and bool(others)
        # Ours is missing: it is listed under the id of another namespace, as in a container, or does not compute yet.
        # The others may then be processes of the same sweep.
        return None if self._is_shared else True

    def _query(self, function: Callable[..., Any], *arguments: Any) -> Any:
        try:
            return function(self._handle, *arguments)
        except self._nvml.NVMLError:  # many GPUs lack one meter or another
            return None


_MIN_SECONDS = 1.0  # the kernel counts CPU time in hundredths of a second: too coarse for shorter intervals
_MAX_COST = 1e-3  # share of the run's time for sampling: finding the run's own processes takes milliseconds
_HIGH_QUANTILE = 0.9


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


@dataclass(frozen=True)
class GpuMeans:
    """Means over a GPU's readings; the shares are of the readings. None for what the GPU does not report."""

    utilization: float | None = None
    power_watts: float | None = None
    clock_hertz: float | None = None
    throttled_share: float | None = None
    others_share: float | None = None


class ResourceSampler:
    """Samples the CPUs, and the GPU while `is_training`. Thread-safe.

    Memory is constant in the length of the run. Sampling becomes rarer if it is slow.
    """

    def __init__(
        self,
        meter: GpuMeter | None = None,
        *,
        family: int | None = None,
        cpu_clock: Callable[[], float] = time.thread_time,
    ) -> None:
        """`family` is the process whose descendants belong to the run; `cpu_clock` measures the cost of a sample."""
        self.is_training = False
        self._family = family
        self._meter = meter
        self._cpu_clock = cpu_clock
        self._lock = threading.Lock()
        self._outside, self._steal = _TimeHistogram(), _TimeHistogram()
        self._gpu = _GpuSums()
        self._wait_seconds = _MIN_SECONDS
        self._start = self._last = CpuTimes.now(of=self._family)

    def sample(self, now: Callable[[], float] = time.monotonic) -> None:
        """Take a sample, unless the last one is too recent."""
        with self._lock:
            if now() - self._last.at < self._wait_seconds:
                return
            began = self._cpu_clock()
            try:
                self._add(CpuTimes.now(of=self._family))
            except (psutil.Error, OSError):
                return  # the next sample may succeed
            if self._meter is not None and self.is_training:
                self._gpu.add(self._meter.read(self._last.own_processes))
            self._wait_seconds = max(_MIN_SECONDS, (self._cpu_clock() - began) / _MAX_COST)

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

    def gpu(self) -> GpuMeans:
        """Return the means so far; all None without a meter."""
        with self._lock:
            return self._gpu.means()

    def _add(self, sample: CpuTimes) -> None:
        shares = CpuShares.between(self._last, sample)
        self._outside.add(shares.outside_cpu_share, sample.at - self._last.at)
        self._steal.add(shares.steal_share, sample.at - self._last.at)
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


class _GpuSums:
    def __init__(self) -> None:
        self._sums: dict[str, tuple[float, int]] = {}

    def add(self, reading: GpuReading) -> None:
        for name in ("utilization", "power_watts", "clock_hertz", "is_throttled", "has_others"):
            value = getattr(reading, name)
            if value is not None:
                total, count = self._sums.get(name, (0.0, 0))
                self._sums[name] = total + float(value), count + 1

    def means(self) -> GpuMeans:
        means = {name: total / count for name, (total, count) in self._sums.items()}
        return GpuMeans(
            utilization=means.get("utilization"),
            power_watts=means.get("power_watts"),
            clock_hertz=means.get("clock_hertz"),
            throttled_share=means.get("is_throttled"),
            others_share=means.get("has_others"),
        )

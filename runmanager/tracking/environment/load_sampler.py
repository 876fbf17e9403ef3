"""What a run met while it ran: looks at the machine and the GPU, again and again, from the heartbeat's thread."""

import threading
import time
from collections.abc import Callable
from dataclasses import dataclass

import psutil

from runmanager.tracking.environment.gpu_meter import GpuMeter, GpuReading
from runmanager.tracking.environment.system_load import CpuShares, CpuTimes

__all__ = ["CpuContention", "GpuMeans", "ResourceSampler"]

_LEAST_SECONDS = 1.0  # the kernel counts CPU time in hundredths of a second: over a shorter stretch it is too coarse
_COST_SHARE = 1e-3  # of the run's time, for looking; finding the run's own processes takes milliseconds
_HIGH = 0.9


@dataclass(frozen=True)
class CpuContention:
    """Shares of all the cores, taken by others and by the hypervisor.

    The means are over the whole run. `_p90` was exceeded during a tenth of it, None for a run that was too short: it
    shows who came for a part of the run only.
    """

    outside_cpu_share: float
    steal_share: float
    outside_cpu_share_p90: float | None
    steal_share_p90: float | None


@dataclass(frozen=True)
class GpuMeans:
    """Means over the looks at a GPU, and shares of the looks; None is what it does not tell."""

    utilization: float | None = None
    power_watts: float | None = None
    clock_hertz: float | None = None
    throttled_share: float | None = None
    others_share: float | None = None


class ResourceSampler:
    """Looks at the machine, and while `is_training` at the GPU; `look` may be called from any thread.

    It keeps sums and counts, so a run of a week takes no more memory than one of a minute. A look that takes long is
    taken less often.
    """

    def __init__(
        self,
        meter: GpuMeter | None = None,
        *,
        family: int | None = None,
        spent: Callable[[], float] = time.thread_time,
    ) -> None:
        self.is_training = False
        self._family = family
        self._meter = meter
        self._spent = spent
        self._lock = threading.Lock()
        self._outside, self._steal = _Shares(), _Shares()
        self._gpu = _GpuSums()
        self._wait_seconds = _LEAST_SECONDS
        self._start = self._last = CpuTimes.now(of=self._family)

    def look(self, now: Callable[[], float] = time.monotonic) -> None:
        """Look once more, unless the last look was a moment ago."""
        with self._lock:
            if now() - self._last.at < self._wait_seconds:
                return
            began = self._spent()
            try:
                self._take(CpuTimes.now(of=self._family))
            except (psutil.Error, OSError):
                return  # the next look may succeed
            if self._meter is not None and self.is_training:
                self._gpu.add(self._meter.look(self._last.own_processes))
            self._wait_seconds = max(_LEAST_SECONDS, (self._spent() - began) / _COST_SHARE)

    def load(self) -> CpuContention:
        """What was met from the beginning until now."""
        with self._lock:
            end = CpuTimes.now(of=self._family)
            if end.at - self._last.at >= _LEAST_SECONDS:
                self._take(end)
            mean = CpuShares.between(self._start, end)
        return CpuContention(
            mean.outside_cpu_share, mean.steal_share, self._outside.quantile(_HIGH), self._steal.quantile(_HIGH)
        )

    def gpu(self) -> GpuMeans:
        """Means over the looks so far; all None without a meter."""
        with self._lock:
            return self._gpu.means()

    def _take(self, sample: CpuTimes) -> None:
        met = CpuShares.between(self._last, sample)
        self._outside.add(met.outside_cpu_share, sample.at - self._last.at)
        self._steal.add(met.steal_share, sample.at - self._last.at)
        self._last = sample


class _Shares:
    """How long each share was met, in steps of a hundredth."""

    def __init__(self) -> None:
        self._seconds = [0.0] * 101

    def add(self, share: float, seconds: float) -> None:
        self._seconds[int(share * 100)] += seconds

    def quantile(self, quantile: float) -> float | None:
        """The share that was met or exceeded in all the time but this part of it; None where there was no time."""
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

    def add(self, look: GpuReading) -> None:
        for name in ("utilization", "power_watts", "clock_hertz", "is_throttled", "has_others"):
            value = getattr(look, name)
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

"""Meters of a run's device: a GPU's through NVML, with the extra `[gpu]` (nvidia-ml-py), a CPU's energy by the kernel.

Calls and constants are those of NVIDIA's NVML API Reference Guide, "Device Queries", and of the kernel's documentation
of its power capping framework.
"""

import os
import time
from collections.abc import Callable, Set
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

import torch

# Reasons for a lower clock that count as throttling: the power cap, heat, the power supply. Idling and a clock that an
# administrator has set do not.
_THROTTLED = 0x04 | 0x08 | 0x20 | 0x40 | 0x80
_NVML_STEP_SECONDS = 0.1  # Yang et al., "Part-time Power Measurements" (2023): what GPUs since Volta have, at most
_RAPL_STEP_SECONDS = 1e-3  # Intel 64 and IA-32 Software Developer's Manual, "RAPL Interfaces"
_POWER_CAPS = Path("/sys/class/powercap")


@dataclass(frozen=True)
class Reading:
    """State of a device at one moment; None for what it does not report. Utilisation is the share of busy time."""

    utilization: float | None = None
    clock_hertz: float | None = None
    is_throttled: bool | None = None
    has_others: bool | None = None


class EnergyCounter:
    """The joules that a device has used since a fixed moment, from a counter that grows in steps.

    `step_seconds` is the longest time that a step takes, as far as it was seen: at first the given one, which the kind
    of counter has. `wraps_at` is the value after which it begins at zero again.
    """

    def __init__(
        self,
        read: Callable[[], float | None],
        *,
        step_seconds: float,
        wraps_at: float = 0.0,
        now: Callable[[], float] = time.monotonic,
    ) -> None:
        self.step_seconds = step_seconds
        self._read = read
        self._wraps_at = wraps_at
        self._now = now
        self._last: float | None = None
        self._grown_at = 0.0
        self._wrapped = 0.0

    def joules(self) -> float | None:
        """Read the counter; None if it cannot be read."""
        value, now = self._read(), self._now()
        if value is None:
            return None
        if value == self._last:
            self.step_seconds = max(self.step_seconds, now - self._grown_at)
        else:
            self._wrapped += self._wraps_at if self._last is not None and value < self._last else 0.0
            self._last, self._grown_at = value, now
        return self._wrapped + value


class DeviceMeter(Protocol):
    """Meter of one device. `is_of_host`: other processes use it by computing on the host, and are seen there."""

    is_of_host: bool
    energy: EnergyCounter

    def read(self, own: Set[int]) -> Reading:
        """Return the present state; `own` are the ids of the run's processes."""
        ...


def open_meter(device: torch.device, *, is_shared: bool = False) -> DeviceMeter | None:
    """Open the meter of a device; None for one without, as without nvidia-ml-py, or without access.

    `is_shared` tells that other processes of the same sweep may use a GPU.
    """
    if device.type == "cpu":
        return open_host_meter()
    if device.type != "cuda":
        return None
    try:
        import pynvml

        pynvml.nvmlInit()
        handle = _find_handle(pynvml, str(torch.cuda.get_device_properties(device).uuid))
        return NvmlMeter(pynvml, handle, is_shared=is_shared)
    except Exception:  # without the library or the driver, with torch for AMD: a run needs no meter
        return None


def _find_handle(nvml: Any, uuid: str) -> Any:
    """Find the GPU by its unique id: NVML numbers all GPUs, CUDA only those in CUDA_VISIBLE_DEVICES."""
    try:
        return nvml.nvmlDeviceGetHandleByUUID(f"GPU-{uuid}")
    except nvml.NVMLError:
        return nvml.nvmlDeviceGetHandleByUUID(f"MIG-{uuid}")


class NvmlMeter:
    """Meter that uses the module `pynvml` and its handle of the GPU."""

    is_of_host = False

    def __init__(self, nvml: Any, handle: Any, *, is_shared: bool = False) -> None:
        self._nvml = nvml
        self._handle = handle
        self._is_shared = is_shared
        self.energy = EnergyCounter(self._joules, step_seconds=_NVML_STEP_SECONDS)

    def read(self, own: Set[int]) -> Reading:
        """Return the present state; `own` are the ids of the run's processes."""
        nvml = self._nvml
        rates = self._query(nvml.nvmlDeviceGetUtilizationRates)
        megahertz = self._query(nvml.nvmlDeviceGetClockInfo, nvml.NVML_CLOCK_SM)
        # The older name: older drivers lack the newer one.
        reasons = self._query(nvml.nvmlDeviceGetCurrentClocksThrottleReasons)
        processes = self._query(nvml.nvmlDeviceGetComputeRunningProcesses)
        return Reading(
            utilization=None if rates is None else rates.gpu / 100,
            clock_hertz=None if megahertz is None else megahertz * 1e6,
            is_throttled=None if reasons is None else bool(reasons & _THROTTLED),
            has_others=self._has_others([each.pid for each in processes or ()], own),
        )

    def _joules(self) -> float | None:
        """Return the energy used since the driver was loaded; None before Volta, and of a slice of a GPU."""
        millijoules = self._query(self._nvml.nvmlDeviceGetTotalEnergyConsumption)
        return None if millijoules is None else millijoules / 1000

    def _has_others(self, listed: list[int], own: Set[int]) -> bool | None:
        if not listed:
            return None  # the run itself would be in a list that shows anything
        others = [pid for pid in listed if pid not in own and pid != os.getpid()]
        if len(others) < len(listed) or len(listed) == 1:
            return len(listed) > 1 and bool(others)
        # Ours is missing: it is listed under the id of another namespace, as in a container. The others may then be
        # processes of the same sweep.
        return None if self._is_shared else True

    def _query(self, function: Callable[..., Any], *arguments: Any) -> Any:
        try:
            return function(self._handle, *arguments)
        except self._nvml.NVMLError:  # many GPUs lack one meter or another
            return None


class HostMeter:
    """Meter of the energy that all of the host's processors use."""

    is_of_host = True

    def __init__(self, energy: EnergyCounter) -> None:
        self.energy = energy

    def read(self, own: Set[int]) -> Reading:
        """Return nothing: only its energy is read."""
        return Reading()


def open_host_meter(folder: Path = _POWER_CAPS) -> HostMeter | None:
    """Open the counters of all processors; None where the kernel has none, or lets only root read them."""
    zones = [zone for zone in folder.glob("intel-rapl:*") if zone.name.count(":") == 1]  # so called on AMD's too
    try:
        counters = [_zone_counter(zone) for zone in zones if (zone / "name").read_text().startswith("package")]
    except (OSError, ValueError):
        return None

    def joules() -> float | None:
        try:
            return sum(each.joules() or 0.0 for each in counters)
        except (OSError, ValueError):
            return None

    if not counters or joules() is None:
        return None
    return HostMeter(EnergyCounter(joules, step_seconds=_RAPL_STEP_SECONDS))


def _zone_counter(zone: Path) -> EnergyCounter:
    def joules_in(name: str) -> float:
        return int((zone / name).read_text()) * 1e-6

    return EnergyCounter(
        lambda: joules_in("energy_uj"), step_seconds=_RAPL_STEP_SECONDS, wraps_at=joules_in("max_energy_range_uj")
    )

"""Readings of a GPU's utilisation, power, clock and processes through NVML, with the extra `[gpu]` (nvidia-ml-py).

Calls and constants are those of NVIDIA's NVML API Reference Guide, "Device Queries".
"""

import os
from collections.abc import Callable, Set
from dataclasses import dataclass
from typing import Any, Protocol

import torch

__all__ = ["GpuMeter", "GpuReading", "NvmlMeter", "open_gpu_meter"]

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

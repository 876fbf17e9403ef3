"""NVIDIA's own meters of a GPU, through NVML where the extra `[gpu]` (nvidia-ml-py) is installed: the one file for it.

Its calls and bits are those of NVIDIA's NVML API Reference Guide, "Device Queries".
"""

import os
from collections.abc import Callable, Set
from dataclasses import dataclass
from typing import Any, Protocol

import torch

__all__ = ["GpuMeter", "GpuReading", "NvmlMeter", "open_gpu_meter"]

# Clocks lower than they would be: by the power cap, by heat, by the power supply. Idling and a clock that somebody has
# set are no throttling.
_THROTTLED = 0x04 | 0x08 | 0x20 | 0x40 | 0x80


@dataclass(frozen=True)
class GpuReading:
    """One look at a GPU; None is what it does not tell. Utilisation is the share of time in which it computed."""

    utilization: float | None = None
    power_watts: float | None = None
    clock_hertz: float | None = None
    is_throttled: bool | None = None
    has_others: bool | None = None


class GpuMeter(Protocol):
    """The meters of one GPU."""

    def look(self, own: Set[int]) -> GpuReading:
        """How the GPU stands now; `own` are the ids of the processes that belong to the run."""
        ...

    def energy_joules(self) -> float | None:
        """What it has used since some moment in the past."""
        ...


def open_gpu_meter(device: torch.device, *, is_shared: bool = False) -> GpuMeter | None:
    """The meter of a CUDA device; None without one, without nvidia-ml-py, or where the driver gives no access.

    `is_shared` where other processes of the run's family may be on it.
    """
    if device.type != "cuda":
        return None
    try:
        import pynvml

        pynvml.nvmlInit()
        handle = _handle(pynvml, str(torch.cuda.get_device_properties(device).uuid))
        return NvmlMeter(pynvml, handle, is_shared=is_shared)
    except Exception:  # the library, the driver, a MIG slice, AMD's torch: whatever is missing, the run goes on
        return None


def _handle(nvml: Any, uuid: str) -> Any:
    """By its unique id: NVML counts all GPUs, CUDA those that CUDA_VISIBLE_DEVICES shows."""
    try:
        return nvml.nvmlDeviceGetHandleByUUID(f"GPU-{uuid}")
    except nvml.NVMLError:
        return nvml.nvmlDeviceGetHandleByUUID(f"MIG-{uuid}")


class NvmlMeter:
    """A GPU's meters by the module `pynvml` and its handle of the GPU."""

    def __init__(self, nvml: Any, handle: Any, *, is_shared: bool = False) -> None:
        self._nvml = nvml
        self._handle = handle
        self._is_shared = is_shared

    def look(self, own: Set[int]) -> GpuReading:
        """How the GPU stands now."""
        nvml = self._nvml
        rates = self._ask(nvml.nvmlDeviceGetUtilizationRates)
        milliwatts = self._ask(nvml.nvmlDeviceGetPowerUsage)
        megahertz = self._ask(nvml.nvmlDeviceGetClockInfo, nvml.NVML_CLOCK_SM)
        # Its older name; the newer one is missing from older drivers.
        reasons = self._ask(nvml.nvmlDeviceGetCurrentClocksThrottleReasons)
        processes = self._ask(nvml.nvmlDeviceGetComputeRunningProcesses)
        return GpuReading(
            utilization=None if rates is None else rates.gpu / 100,
            power_watts=None if milliwatts is None else milliwatts / 1000,
            clock_hertz=None if megahertz is None else megahertz * 1e6,
            is_throttled=None if reasons is None else bool(reasons & _THROTTLED),
            has_others=None if processes is None else self._has_others([each.pid for each in processes], own),
        )

    def energy_joules(self) -> float | None:
        """Energy since the driver was loaded; None before Volta."""
        millijoules = self._ask(self._nvml.nvmlDeviceGetTotalEnergyConsumption)
        return None if millijoules is None else millijoules / 1000

    def _has_others(self, listed: list[int], own: Set[int]) -> bool | None:
        others = [pid for pid in listed if pid not in own and pid != os.getpid()]
        if len(others) < len(listed) or len(listed) < 2:
            return len(listed) > 1 and bool(others)
        # Ours is there under a number of another namespace, as in a container; or it has not begun to compute. Which of
        # the rest are those with which it takes turns cannot be told.
        return None if self._is_shared else True

    def _ask(self, question: Callable[..., Any], *arguments: Any) -> Any:
        try:
            return question(self._handle, *arguments)
        except self._nvml.NVMLError:  # many GPUs lack one meter or another
            return None

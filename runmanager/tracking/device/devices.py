"""Devices: resolve names, check availability, wait for them, read their memory and properties; random states."""

import itertools
import random
import resource
import sys
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import torch

from runmanager.errors import DeviceUnavailableError, UsageError
from runmanager.records.run.run_record import Environment


def default_device() -> torch.device:
    """Return the accelerator if this host has one (cuda, mps, xpu, …), else the CPU."""
    if torch.accelerator.is_available():
        found = torch.accelerator.current_accelerator()
        if found is not None:
            return torch.device(found.type)
    return torch.device("cpu")


def devices_in_use() -> list[torch.device]:
    """Return the accelerators that this process has had memory on, the one with the most first. Starts none."""
    for name in ("cuda", "xpu"):
        module = torch.get_device_module(name)
        if module.is_initialized():
            devices = [torch.device(name, at) for at in range(module.device_count())]
            peaks = {device: peak_memory(device) for device in devices}
            if None in peaks.values():  # the program replaced the allocator by one that does not count
                return [torch.device(name, module.current_device())]
            return sorted((each for each, peak in peaks.items() if peak), key=lambda each: -(peaks[each] or 0))
    return [torch.device("mps")] if _uses_mps() else []


def _uses_mps() -> bool:
    return torch.backends.mps.is_available() and torch.mps.current_allocated_memory() > 0


def device_in_use() -> torch.device:
    """Return the accelerator that this process uses most, else the CPU. Starts none."""
    return next(iter(devices_in_use()), torch.device("cpu"))


def device_of(network: torch.nn.Module | None) -> torch.device | None:
    """Return the device of the network's first tensor that is on one; None for one without."""
    tensors = () if network is None else itertools.chain(network.parameters(), network.buffers())
    return next((tensor.device for tensor in tensors if not tensor.is_meta), None)


def is_same_device(one: torch.device, other: torch.device) -> bool:
    """Return whether two names are of one device; one without an index is the current device of its kind."""
    return one.type == other.type and (one.type == "cpu" or _index(one) == _index(other))


def indexed(device: torch.device) -> torch.device:
    """Return a device with its index, by default that of the current one of its kind; a program may change that one.

    Devices without several of their kind have none.
    """
    return device if device.type in ("cpu", "mps") else torch.device(device.type, _index(device))


def _index(device: torch.device) -> int:
    if device.index is not None:
        return device.index
    module: Any = torch.get_device_module(device)
    return int(module.current_device()) if hasattr(module, "current_device") else 0


def resolve_device(name: str) -> torch.device:
    """Return the device for `name`: `auto`, `cpu`, `cuda`, `cuda:1`, `mps`, `xpu`.

    Raises `DeviceUnavailableError` if PyTorch sees no such device: it never falls back silently. Raises `UsageError`
    for an invalid name.
    """
    if name == "auto":
        return default_device()
    try:
        device = torch.device(name)
    except RuntimeError:
        # No host has such a device, so this is a typo, not a missing device.
        raise UsageError(
            f"`device` must be auto, cpu or an accelerator that PyTorch knows, got '{name}'; use `device=auto`."
        ) from None
    if is_available(device):
        return device
    seen = "no CUDA device" if device.type == "cuda" and not torch.cuda.is_available() else "no such device"
    raise DeviceUnavailableError(
        f"Device '{name}' was asked for but PyTorch sees {seen}; use `device=cpu`, or leave {name} out of the sweep."
    )


def is_available(device: torch.device) -> bool:
    """Return whether PyTorch can use `device` on this host."""
    if device.type == "cpu":
        return True
    try:
        module: Any = torch.get_device_module(device)
        count = module.device_count() if module.is_available() else 0
    except (RuntimeError, AttributeError):
        return False
    return (device.index or 0) < int(count)


def synchronize(device: torch.device) -> None:
    """Wait until `device` has finished all queued work; does nothing for the CPU."""
    if device.type != "cpu":
        torch.accelerator.synchronize(device)


def made_current(device: torch.device) -> AbstractContextManager[None]:
    """Return a `with` block in which `device` is the current one of its kind.

    What names no device, as pinning memory does, would else take memory of the first one, which may be another run's.
    """
    index: AbstractContextManager[None] = torch.accelerator.device_index(None if device.type == "cpu" else device.index)
    return index


def reset_peak_memory(device: torch.device) -> None:
    """Reset the device's peak memory statistics, if its backend has any."""
    if device.type != "cpu":
        _of_memory(device, "reset_peak_memory_stats")


def peak_memory(device: torch.device) -> int | None:
    """Return the peak memory: allocated on an accelerator, resident in this process for the CPU.

    None if the backend has no such statistic.
    """
    return peak_host_bytes() if device.type == "cpu" else _of_memory(device, "max_memory_allocated")


def peak_reserved_bytes(device: torch.device) -> int | None:
    """Return the peak memory that PyTorch reserved on an accelerator; None if the backend has no such statistic."""
    return None if device.type == "cpu" else _of_memory(device, "max_memory_reserved")


def _of_memory(device: torch.device, function: str) -> int | None:
    """Call a function of the device's backend, or of the newer ones for all (Apple's has them there); None without."""
    found: Any = getattr(torch.get_device_module(device), function, None) or getattr(torch.accelerator, function, None)
    try:
        return None if found is None else found(device)
    except RuntimeError:  # the program replaced the allocator by one that does not count, or this one does not yet
        return None


def peak_host_bytes() -> int:
    """Return the peak resident memory of this process since it began."""
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak if sys.platform == "darwin" else peak * 1024


def device_facts(device: torch.device, *, cpu_model: str | None) -> dict[str, Any]:
    """Return the fields of `Environment` that describe the device."""
    facts: dict[str, Any] = {
        "device_name": cpu_model or "cpu",
        "cuda": torch.version.cuda,
        "cudnn": _cudnn_version(),
        "cudnn_benchmark": torch.backends.cudnn.benchmark,
        "cudnn_deterministic": torch.backends.cudnn.deterministic,
        "tf32_matmul": _tf32(torch.backends.cuda.matmul),
        "tf32_cudnn": _tf32(torch.backends.cudnn),
    }
    if device.type == "cuda":
        properties = torch.cuda.get_device_properties(device)
        facts["device_name"] = properties.name
        facts["compute_capability"] = f"{properties.major}.{properties.minor}"
        facts["driver"] = _nvidia_driver()
    elif device.type != "cpu":
        module: Any = torch.get_device_module(device)
        get_name = getattr(module, "get_device_name", None)
        facts["device_name"] = get_name(device) if get_name is not None else device.type
        if device.type == "mps" and hasattr(torch.backends.mps, "get_name"):  # newer versions tell Apple's GPUs apart
            facts["device_name"] = torch.backends.mps.get_name()
    assert set(facts) <= set(Environment.__struct_fields__)
    return facts


def _tf32(backend: Any) -> bool | None:
    """Return whether a backend may use TF32, by PyTorch's newer setting, else by the older one; None if unknown.

    The older one raises in a program that has used the newer one.
    """
    precision = getattr(getattr(backend, "conv", backend), "fp32_precision", None)
    if precision in ("tf32", "ieee"):
        return bool(precision == "tf32")
    try:
        return bool(backend.allow_tf32)
    except RuntimeError:
        return None


def _cudnn_version() -> str | None:
    version = torch.backends.cudnn.version() if torch.backends.cudnn.is_available() else None
    return None if version is None else str(version)


def _nvidia_driver() -> str | None:
    path = Path("/proc/driver/nvidia/version")
    if not path.exists():
        return None
    words = path.read_text().split()
    return next((word for word in words if word[0].isdigit() and "." in word), None)


def seed_everything(seed: int) -> None:
    """Seed Python, NumPy and PyTorch, on every device."""
    random.seed(seed)
    np.random.seed(seed % 2**32)
    torch.manual_seed(seed)


def random_states(device: torch.device | None = None) -> dict[str, Any]:
    """Return the states of the global generators, in types that `torch.load(weights_only=True)` accepts.

    Of accelerators only that of `device`, so that a run can resume on a host with fewer devices; None includes all.
    """
    kind, keys, position, has_gauss, cached = np.random.get_state()
    states: dict[str, Any] = {
        "python": random.getstate(),
        "numpy": [kind, torch.from_numpy(np.asarray(keys).astype(np.int64)), position, has_gauss, cached],
        "torch": torch.get_rng_state(),
    }
    if device is not None:
        if device.type != "cpu":
            states["device"] = _get_state(device)
        return states
    accelerator = accelerator_in_use()
    if accelerator is not None:
        states[accelerator] = torch.get_device_module(accelerator).get_rng_state_all()
    elif _uses_mps():
        states["mps"] = torch.mps.get_rng_state()
    return states


def _get_state(device: torch.device) -> torch.Tensor:
    module: Any = torch.get_device_module(device)
    state: torch.Tensor = module.get_rng_state() if device.type == "mps" else module.get_rng_state(device)
    return state


def restore_random_states(states: dict[str, Any], device: torch.device | None = None) -> None:
    """Restore the states that `random_states` returned, called with the same `device`."""
    random.setstate(_as_tuples(states["python"]))
    kind, keys, position, has_gauss, cached = states["numpy"]
    np.random.set_state((kind, keys.numpy().astype(np.uint32), position, has_gauss, cached))
    torch.set_rng_state(states["torch"])
    if device is not None:
        if device.type != "cpu" and "device" in states:
            of_device: Any = torch.get_device_module(device)
            arguments = () if device.type == "mps" else (device,)
            of_device.set_rng_state(states["device"], *arguments)
        return
    accelerator = accelerator_in_use()
    if accelerator is not None and accelerator in states:
        module: Any = torch.get_device_module(accelerator)
        module.set_rng_state_all(states[accelerator][: module.device_count()])  # this host may have fewer
    elif "mps" in states and torch.backends.mps.is_available():
        torch.mps.set_rng_state(states["mps"])


def _as_tuples(state: Any) -> Any:
    return tuple(_as_tuples(item) for item in state) if isinstance(state, list | tuple) else state


def accelerator_in_use() -> str | None:
    """Return the initialised accelerator's type; calling `is_available` first could initialise an idle one."""
    for name in ("cuda", "xpu"):
        module: Any = getattr(torch, name)
        if module.is_initialized() and module.is_available():
            return name
    return None


@contextmanager
def preserve_random_states() -> Iterator[None]:
    """Restore all random states after the body of the `with` block."""
    states = random_states()
    try:
        yield
    finally:
        restore_random_states(states)

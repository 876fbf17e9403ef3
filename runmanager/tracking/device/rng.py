"""Random number generators: seed them, and save and restore their states."""

import random
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
import torch

__all__ = ["accelerator_in_use", "preserve_random_states", "random_states", "restore_random_states", "seed_everything"]


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
            module: Any = torch.get_device_module(device)
            arguments = () if device.type == "mps" else (device,)
            module.set_rng_state(states["device"], *arguments)
        return
    accelerator = accelerator_in_use()
    if accelerator is not None and accelerator in states:
        torch.get_device_module(accelerator).set_rng_state_all(states[accelerator])


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

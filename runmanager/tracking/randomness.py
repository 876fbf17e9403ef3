"""Random states: seeding a run, and leaving every generator as it was found."""

import random
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
import torch

__all__ = ["preserved", "random_states", "restore_random_states", "seed_everything"]


def seed_everything(seed: int) -> None:
    """Seed Python, NumPy and PyTorch, on every device."""
    random.seed(seed)
    np.random.seed(seed % 2**32)
    torch.manual_seed(seed)


def random_states() -> dict[str, Any]:
    """The state of every global generator, in types that `torch.load(weights_only=True)` takes."""
    kind, keys, position, has_gauss, cached = np.random.get_state()
    states: dict[str, Any] = {
        "python": random.getstate(),
        "numpy": [kind, torch.from_numpy(np.asarray(keys).astype(np.int64)), position, has_gauss, cached],
        "torch": torch.get_rng_state(),
    }
    device = _accelerator_in_use()
    if device is not None:
        states[device] = torch.get_device_module(device).get_rng_state_all()
    return states


def restore_random_states(states: dict[str, Any]) -> None:
    """Put every generator back to what `random_states` returned."""
    random.setstate(_as_tuples(states["python"]))
    kind, keys, position, has_gauss, cached = states["numpy"]
    np.random.set_state((kind, keys.numpy().astype(np.uint32), position, has_gauss, cached))
    torch.set_rng_state(states["torch"])
    device = _accelerator_in_use()
    if device is not None and device in states:
        torch.get_device_module(device).set_rng_state_all(states[device])


def _as_tuples(state: Any) -> Any:
    return tuple(_as_tuples(item) for item in state) if isinstance(state, list | tuple) else state


def _accelerator_in_use() -> str | None:
    """The accelerator's type if its generators exist; asking an idle one would start it up."""
    for name in ("cuda", "xpu"):
        module: Any = getattr(torch, name)
        if module.is_available() and module.is_initialized():
            return name
    return None


@contextmanager
def preserved() -> Iterator[None]:
    """Let the body draw random numbers without anybody noticing afterwards."""
    states = random_states()
    try:
        yield
    finally:
        restore_random_states(states)

"""Moving batches and models to a device: nested containers, and a loader that moves what it yields."""

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import torch

from runmanager.tracking.device.devices import default_device

__all__ = ["PINNING_DEVICES", "DeviceDataLoader", "Packed", "get_default_device", "to_device"]

PINNING_DEVICES = ("cuda", "xpu")
"""To which pinned memory is sent without waiting; mps shares its memory with the CPU, and refuses."""


@dataclass(frozen=True)
class Packed:
    """A tensor that is sent as it is stored, and made into what the batch holds by `unpack` where it has arrived."""

    stored: torch.Tensor
    unpack: Callable[[torch.Tensor], torch.Tensor]


def get_default_device() -> torch.device:
    """The accelerator if this host has one, else the CPU."""
    return default_device()


def to_device(data: Any, device: torch.device | str) -> Any:
    """`data` on `device`: a tensor, a module, or lists, tuples, named tuples and mappings of them at any depth.

    A tensor in pinned memory is sent to CUDA or XPU without waiting; any other is waited for, since what is read before
    it has arrived, or changed before it has left, would be garbage. What is `Packed` is unpacked there. Other values
    come back as they are. A module is moved in place and returned.
    """
    if isinstance(data, torch.Tensor):
        if type(data) is torch.Tensor and data.device == device:
            return data  # as its `to` would, after asking more: a batch that lies there already costs next to nothing
        return data.to(device, non_blocking=_may_run_ahead(data, torch.device(device)))
    if isinstance(data, Packed):
        return data.unpack(to_device(data.stored, device))
    if isinstance(data, torch.nn.Module):
        return data.to(device)
    if isinstance(data, Mapping):
        return {key: to_device(value, device) for key, value in data.items()}
    if isinstance(data, tuple) and hasattr(data, "_fields"):
        return type(data)(*(to_device(value, device) for value in data))
    if isinstance(data, list | tuple):
        return type(data)(to_device(value, device) for value in data)
    return data


def _may_run_ahead(tensor: torch.Tensor, device: torch.device) -> bool:
    # The target is asked first: is_pinned() would start CUDA up in a run that has nothing to do with it.
    return device.type in PINNING_DEVICES and tensor.device.type == "cpu" and tensor.is_pinned()


class DeviceDataLoader:
    """Wraps a loader and moves each batch to a device when it is taken."""

    def __init__(self, dl: Iterable[Any], device: torch.device | str) -> None:
        self.dl = dl
        self.device = torch.device(device)

    def __iter__(self) -> Iterator[Any]:
        for batch in self.dl:
            yield to_device(batch, self.device)

    def __len__(self) -> int:
        """The number of batches. Raises TypeError where the wrapped loader has no length."""
        return len(self.dl)  # type: ignore[arg-type]  # its own TypeError says it best

"""Transfer of batches and models to a device: nested containers, and a loader that moves its batches."""

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import torch

from runmanager.tracking.device.devices import default_device

__all__ = ["PINNING_DEVICES", "DeviceDataLoader", "Packed", "get_default_device", "to_device"]

PINNING_DEVICES = ("cuda", "xpu")
"""Devices to which pinned memory is copied asynchronously; mps shares the CPU's memory, and refuses."""


@dataclass(frozen=True)
class Packed:
    """A tensor that is transferred as `stored`, and converted by `unpack` on the device."""

    stored: torch.Tensor
    unpack: Callable[[torch.Tensor], torch.Tensor]


def get_default_device() -> torch.device:
    """Return the accelerator if this host has one, else the CPU."""
    return default_device()


def to_device(data: Any, device: torch.device | str) -> Any:
    """Move `data` to `device`: a tensor, a module, or nested lists, tuples, named tuples and mappings of them.

    A tensor in pinned memory is copied to CUDA or XPU asynchronously. Any other copy is waited for: its data could
    otherwise be read before it arrives, or changed before it is sent. `Packed` tensors are unpacked on the device.
    Other values are returned unchanged. A module is moved in place and returned.
    """
    if isinstance(data, torch.Tensor):
        if type(data) is torch.Tensor and data.device == device:
            return data  # as `to` would, but faster: a batch that is there already costs next to nothing
        return data.to(device, non_blocking=_is_async_copy(data, torch.device(device)))
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


def _is_async_copy(tensor: torch.Tensor, device: torch.device) -> bool:
    # The target is checked first: is_pinned() would initialise CUDA in a run that does not use it.
    return device.type in PINNING_DEVICES and tensor.device.type == "cpu" and tensor.is_pinned()


class DeviceDataLoader:
    """Wraps a loader and moves each batch to a device as it is taken."""

    def __init__(self, dl: Iterable[Any], device: torch.device | str) -> None:
        self.dl = dl
        self.device = torch.device(device)

    def __iter__(self) -> Iterator[Any]:
        for batch in self.dl:
            yield to_device(batch, self.device)

    def __len__(self) -> int:
        """Return the number of batches. Raises TypeError if the wrapped loader has no length."""
        return len(self.dl)  # type: ignore[arg-type]  # its TypeError is clear enough

"""Transfer of batches and models to a device: nested containers, and a loader that moves its batches."""

import contextlib
import copy
from collections import OrderedDict, defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, MutableMapping
from dataclasses import dataclass
from typing import Any

import torch

from runmanager.tracking.device.devices import accelerator_in_use, default_device
from runmanager.tracking.torch_internals import device_of

PINNING_DEVICES = ("cuda", "xpu")
"""Devices to which pinned memory is copied asynchronously; mps shares the CPU's memory, and refuses."""
_META = torch.device("meta")
_PLAIN_CONTAINERS = (list, tuple, dict, OrderedDict, defaultdict)  # reading one runs no code of a program


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

    What is there already is returned as it is, the container itself where none of its parts moves; else the container
    keeps its type, and one with a method `to`, as a packed sequence, moves itself. A tensor in pinned memory is copied
    to CUDA or XPU asynchronously. Any other copy is waited for: its data could otherwise be read before it arrives, or
    changed before it is sent. `Packed` tensors are unpacked on the device. A module is moved in place and returned.
    Other values, tensors on `meta`, which have no data, and containers that cannot be read are returned unchanged.
    """
    return _moved(data, device, ())


def _moved(data: Any, device: torch.device | str, around: tuple[int, ...]) -> Any:
    """Move `data`, which lies within the containers with the ids `around`: one may contain itself."""
    kind = type(data)
    if kind is torch.Tensor and data.device == device:
        return data  # as `to` would, but faster: a batch that is there already costs next to nothing
    if issubclass(kind, torch.Tensor):
        where, target = device_of(data), torch.device(device)
        if where == _META or (where == target and kind.to is torch.Tensor.to):
            return data
        if where == target:  # a class of its own may do more than move
            with contextlib.suppress(Exception):
                return data.to(device)
            return data
        return data.to(device, non_blocking=_is_async_copy(data, target))
    if issubclass(kind, Packed):
        return data.unpack(to_device(data.stored, device))
    if issubclass(kind, torch.nn.Module):
        return data.to(device)
    if id(data) in around or not issubclass(kind, Mapping | list | tuple) or _is_left_alone(kind, device):
        return data
    try:
        parts = dict(data.items()) if issubclass(kind, Mapping) else dict(enumerate(data))
    except Exception:  # the program may read it in its own way
        return data
    around = (*around, id(data))
    moved = {key: _moved(part, device, around) for key, part in parts.items()}
    return data if all(moved[key] is part for key, part in parts.items()) else _with_parts(data, moved, device)


def _is_left_alone(kind: type, device: torch.device | str) -> bool:
    """Whether a container need not be read, which may run code of a program: no tensor can be elsewhere."""
    if kind in _PLAIN_CONTAINERS or hasattr(kind, "_fields"):
        return False
    return torch.device(device).type == "cpu" and accelerator_in_use() is None and not torch.backends.mps.is_available()


def _with_parts(data: Any, parts: Mapping[Any, Any], device: torch.device | str) -> Any:
    """Return a container like `data` with these parts, by key or position."""
    if type(data) not in _PLAIN_CONTAINERS and callable(getattr(data, "to", None)):
        return data.to(device)
    if isinstance(data, tuple) and hasattr(data, "_fields"):
        return type(data)(*parts.values())
    if not isinstance(data, Mapping):
        return type(data)(parts.values())
    if type(data) is dict or not isinstance(data, MutableMapping):
        return dict(parts)
    copied = copy.copy(data)  # with what else it holds, as the default of a `defaultdict`
    for key, part in parts.items():
        copied[key] = part
    return copied


def _is_async_copy(tensor: torch.Tensor, device: torch.device) -> bool:
    # The target is checked first: is_pinned() would initialise CUDA in a run that does not use it.
    if device.type not in PINNING_DEVICES or device_of(tensor).type != "cpu":
        return False
    try:
        return tensor.is_pinned()
    except Exception:  # a layout that does not know, as some sparse ones
        return False


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

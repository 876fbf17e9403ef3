"""Transfer of batches and models to a device: nested containers, a loader that moves its batches, and prefetching.

A prefetched batch is copied on a side stream while the device computes the current step.

```
main stream    … step 1          | step 2          | step 3 …
side stream      copy of batch 2   copy of batch 3
```

A batch may reuse the memory of one whose step is over, so the copy of batch 3 begins only when step 1 has ended; step 3
begins when the copy has ended. Events in the streams order both: the host does not wait.
"""

import contextlib
import copy
from collections import OrderedDict, defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, MutableMapping
from dataclasses import dataclass
from typing import Any, Protocol

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


class BatchCopier(Protocol):
    """Copies batches to a device while it computes."""

    def send(self, batch: Any) -> "PendingBatch":
        """Begin to copy a batch, without waiting."""

    def arrive(self, sent: "PendingBatch") -> None:
        """Let all later work of the device wait until the batch has arrived."""


@dataclass(frozen=True, eq=False)
class PendingBatch:
    """A batch that `copier` is copying: the tensors of `batch` are on the device, and hold garbage until then."""

    batch: Any
    event: Any
    copier: BatchCopier

    def __getitem__(self, index: int) -> Any:
        return self.batch[index]

    def arrived(self) -> Any:
        """Return the batch, for use by later work of the device."""
        self.copier.arrive(self)
        return self.batch


class SideStream:
    """A batch copier on a second stream of a CUDA or XPU device."""

    def __init__(self, device: torch.device) -> None:
        self._device = device
        self._module: Any = torch.get_device_module(device)
        self._stream = self._module.Stream(device)

    def send(self, batch: Any) -> PendingBatch:
        # The memory belongs to the main stream, which reuses it in its own order. So the copy begins only after all
        # work queued there so far, and only a few batches exist at a time.
        target = _empty_like(batch, self._device)
        self._stream.wait_stream(self._module.current_stream(self._device))
        with self._module.stream(self._stream):
            _fill(target, batch)
        return PendingBatch(target, self._stream.record_event(), self)

    def arrive(self, sent: PendingBatch) -> None:
        self._module.current_stream(self._device).wait_event(sent.event)


def _empty_like(batch: Any, device: torch.device) -> Any:
    if isinstance(batch, torch.Tensor):
        return torch.empty_like(batch, device=device)
    if isinstance(batch, Packed):
        return Packed(_empty_like(batch.stored, device), batch.unpack)
    return tuple(_empty_like(part, device) for part in batch)


def _fill(target: Any, batch: Any) -> None:
    if isinstance(batch, torch.Tensor):
        target.copy_(batch, non_blocking=True)
    elif isinstance(batch, Packed):
        _fill(target.stored, batch.stored)
    else:
        for slot, part in zip(target, batch, strict=True):
            _fill(slot, part)


def prefetch(batches: Iterable[Any], copier: BatchCopier) -> Iterator[PendingBatch]:
    """Yield batches (images, labels) of pinned tensors, `Packed` or not, each copied from one step earlier on."""
    ahead: PendingBatch | None = None
    last: PendingBatch | None = None
    try:
        for batch in batches:
            last = copier.send(batch)
            if ahead is not None:
                yield ahead
            ahead = last
        if ahead is not None:
            last = None
            yield ahead
    finally:
        if last is not None:
            copier.arrive(last)  # the batch is unused, but its memory must not be reused before the copy has ended


def batch_on_device(batch: Any, device: torch.device | None) -> Any:
    """Return a loader's batch on `device`, whether it was prefetched or not; for None it stays where it is."""
    arrived = batch.arrived() if type(batch) is PendingBatch else batch
    return arrived if device is None else to_device(arrived, device)

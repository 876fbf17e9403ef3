"""Prefetching: copy the next batch to the device on a side stream while the device computes the current step.

```
main stream    … step 1          | step 2          | step 3 …
side stream      copy of batch 2   copy of batch 3
```

A batch may reuse the memory of one whose step is over, so the copy of batch 3 begins only when step 1 has ended; step 3
begins when the copy has ended. Events in the streams order both: the host does not wait.
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any, Protocol

import torch

from runmanager.tracking.device.transfer import Packed, to_device


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

"""Batches that are sent to the device ahead, on a stream of their own, while it computes the step before.

```
device's own stream    … step 1          | step 2          | step 3 …
second stream             batch 2 arrives   batch 3 arrives
```

A batch may take the place in memory of one whose step is over, so its way begins when the step before the one that it
flies beside has ended; the step that uses it begins when it has arrived. Both are said by events in the streams: the
host waits for nothing.
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any, Protocol

import torch

from runmanager.tracking.device.transfer import Packed, to_device

__all__ = ["Lane", "SecondStream", "Sent", "arrived", "sent_ahead"]


class Lane(Protocol):
    """A way to a device beside what it computes."""

    def send(self, batch: Any) -> "Sent":
        """Begin to send a batch; nothing waits for it."""

    def arrive(self, sent: "Sent") -> None:
        """Let what the device computes from now on wait until the batch is there."""


@dataclass(frozen=True, eq=False)
class Sent:
    """A batch on its way over `lane`: `batch` has its tensors on the device, which hold garbage before they arrive."""

    batch: Any
    event: Any
    lane: Lane

    def __getitem__(self, place: int) -> Any:
        return self.batch[place]

    def arrived(self) -> Any:
        """The batch, for work that is asked of the device from now on."""
        self.lane.arrive(self)
        return self.batch


class SecondStream:
    """A second stream of a CUDA or XPU device."""

    def __init__(self, device: torch.device) -> None:
        self._device = device
        self._module: Any = torch.get_device_module(device)
        self._stream = self._module.Stream(device)

    def send(self, batch: Any) -> Sent:
        # The memory is the computing stream's, which gives it out again in its own order: so the copy begins only when
        # all that this stream was asked for by now has ended, and a few batches are there at most.
        places = _empty_like(batch, self._device)
        self._stream.wait_stream(self._module.current_stream(self._device))
        with self._module.stream(self._stream):
            _fill(places, batch)
        return Sent(places, self._stream.record_event(), self)

    def arrive(self, sent: Sent) -> None:
        self._module.current_stream(self._device).wait_event(sent.event)


def _empty_like(batch: Any, device: torch.device) -> Any:
    if isinstance(batch, torch.Tensor):
        return torch.empty_like(batch, device=device)
    if isinstance(batch, Packed):
        return Packed(_empty_like(batch.stored, device), batch.unpack)
    return tuple(_empty_like(part, device) for part in batch)


def _fill(places: Any, batch: Any) -> None:
    if isinstance(batch, torch.Tensor):
        places.copy_(batch, non_blocking=True)
    elif isinstance(batch, Packed):
        _fill(places.stored, batch.stored)
    else:
        for place, part in zip(places, batch, strict=True):
            _fill(place, part)


def sent_ahead(batches: Iterable[Any], lane: Lane) -> Iterator[Sent]:
    """Each batch (images, labels), tensors or `Packed` ones in pinned memory, on its way since the one before it."""
    ahead: Sent | None = None
    last: Sent | None = None
    try:
        for batch in batches:
            last = lane.send(batch)
            if ahead is not None:
                yield ahead
            ahead = last
        if ahead is not None:
            last = None
            yield ahead
    finally:
        if last is not None:
            lane.arrive(last)  # if nobody wants it, its memory still is not to be given out before it is there


def arrived(batch: Any, device: torch.device) -> Any:
    """A loader's batch on `device`, whether it is on its way already or not."""
    return to_device(batch.arrived() if isinstance(batch, Sent) else batch, device)

"""The values that a program logs under one name, step by step: on their device until they are read, then reduced."""

import math
from array import array
from typing import Literal, Self, cast

import torch

from runmanager.errors import UsageError
from runmanager.tracking.device.devices import synchronize
from runmanager.tracking.epoch_metrics.loss_buffer import ASYNC_COPY_DEVICES, LoggedLosses, sum_type, zeros
from runmanager.tracking.epoch_part import SeriesState

Reduce = Literal["last", "mean", "sum", "min", "max"]
_REDUCTIONS = ("last", "mean", "sum", "min", "max")

_NUM_SLOTS = 128  # on a device
_NUM_ON_HOST = 4096  # numbers kept as Python objects


def check_reduce(reduce: str) -> None:
    """Raise `UsageError` unless `reduce` is a known reduction."""
    if reduce not in _REDUCTIONS:
        raise UsageError(f"`reduce` must be {', '.join(_REDUCTIONS[:-1])} or {_REDUCTIONS[-1]}, got {reduce!r}.")


class StepValues:
    """Collects numbers and tensors of one number. `add` never waits for a device; `read` and `result` wait once.

    A value on a device is copied into a slot of a small buffer there, as the caller may reuse its memory.
    """

    def __init__(self) -> None:
        self.reduce: Reduce = "last"
        self._steps = array("q")  # of the values that were not read yet
        self._parts: list[torch.Tensor] = []  # their values in order, on the host, before those of the two buffers
        self._on_host: list[float] = []
        self._buffer: torch.Tensor | None = None
        self._num_buffered = 0
        self._points = array("q"), array("d")  # steps and values that were not handed out yet
        self._count = 0
        self._last = self._total = math.nan
        self._least, self._largest = math.inf, -math.inf

    def add(self, value: float | torch.Tensor, step: int) -> None:
        """Add the value of a step: a number, or a tensor of one number on another device than the CPU."""
        if isinstance(value, torch.Tensor):
            self._slot(value.device).copy_(value.detach().reshape(()))
        else:
            if self._num_buffered or len(self._on_host) == _NUM_ON_HOST:
                self._empty()
            self._on_host.append(value)
        self._steps.append(step)

    def read(self) -> LoggedLosses:
        """Return the values since the last call, with their steps."""
        self._fold()
        points, self._points = self._points, (array("q"), array("d"))
        return LoggedLosses(*points)

    def result(self) -> float:
        """Return the reduction of all values; NaN without any."""
        self._fold()
        if not self._count:
            return math.nan
        return {
            "last": self._last,
            "mean": self._total / self._count,
            "sum": self._total,
            "min": self._least,
            "max": self._largest,
        }[self.reduce]

    def state(self) -> SeriesState:
        """Return all that was added, for a checkpoint; waits as `read`, but hands nothing out."""
        self._fold()
        steps, values = self._points
        return SeriesState(
            self.reduce, self._count, self._last, self._total, self._least, self._largest, [*steps], [*values]
        )

    @classmethod
    def restored(cls, state: SeriesState) -> Self:
        """Return a collection that continues from what `state` returned."""
        series = cls()
        series.reduce = cast(Reduce, state.reduce)
        series._count, series._last, series._total = state.count, state.last, state.total
        series._least, series._largest = state.least, state.largest
        series._points = array("q", state.steps), array("d", state.values)
        return series

    def _fold(self) -> None:
        """Add what is buffered to the points and to the reductions."""
        if not self._steps:
            return
        self._empty()
        if self._buffer is not None:
            synchronize(self._buffer.device)  # the transfers must have ended
        values = array("d", torch.cat([part.double() for part in self._parts]).numpy().tobytes())
        self._parts.clear()
        self._total = (self._total if self._count else 0.0) + sum(values)
        is_unknown = math.isnan(self._total) and any(map(math.isnan, (self._least, *values)))
        self._least = math.nan if is_unknown else min(self._least, *values)
        self._largest = math.nan if is_unknown else max(self._largest, *values)
        self._count += len(values)
        self._last = values[-1]
        self._points[0].extend(self._steps)
        self._points[1].extend(values)
        self._steps = array("q")

    def _slot(self, device: torch.device) -> torch.Tensor:
        is_other = self._buffer is None or self._buffer.device != device
        if self._on_host or is_other or self._num_buffered == _NUM_SLOTS:
            self._empty()
        if self._buffer is not None and is_other:
            synchronize(self._buffer.device)  # `_fold` waits for the last device only
        if self._buffer is None or is_other:
            self._buffer = zeros(_NUM_SLOTS, dtype=sum_type(device), device=device)
        self._num_buffered += 1
        return self._buffer[self._num_buffered - 1]

    def _empty(self) -> None:
        """Move what is buffered to the end of the parts; a copy of it, as the buffer is used again."""
        if self._on_host:
            self._parts.append(torch.tensor(self._on_host, dtype=torch.float64))
            self._on_host.clear()
        if self._num_buffered:
            assert self._buffer is not None
            is_async = self._buffer.device.type in ASYNC_COPY_DEVICES
            self._parts.append(self._buffer[: self._num_buffered].to("cpu", non_blocking=is_async, copy=True))
            self._num_buffered = 0

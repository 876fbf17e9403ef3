"""The losses of an epoch's steps: kept on their device in one small buffer, summed and sent home a buffer at a time."""

from array import array
from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import groupby

import torch

from runmanager.errors import TensorMismatchError
from runmanager.tracking.devices import synchronize

__all__ = ["LoggedLosses", "LossBuffer", "sum_type", "zeros"]

_RUNNING_AHEAD = ("cuda", "xpu")  # where a copy into pinned memory need not be waited for
_NUM_SLOTS = 128  # emptying a full buffer costs some ten operations: none of a step's own


@dataclass(frozen=True)
class LoggedLosses:
    """The losses of the steps that were to be logged, in order: `values[i]` is that of step `steps[i]`."""

    steps: Sequence[int] = ()
    values: Sequence[float] = field(default_factory=lambda: array("f"))


class LossBuffer:
    """Adds up mean losses, each by its number of samples, and keeps every `log_every`th (0: none).

    A step costs one copy on the device, into a slot of its own: the caller may write its next loss into the same
    tensor, as CUDA graphs do. Nothing waits for the device but `total` and `logged`, and however long the epoch is,
    the device holds no more than one buffer; what is to be logged goes home whenever that is full.
    `steps_before` is how many steps the run had taken before the first one here.
    """

    def __init__(self, *, log_every: int = 0, steps_before: int = 0) -> None:
        self._log_every = log_every
        self._steps_before = steps_before
        self._num_emptied = 0
        self._buffer: torch.Tensor | None = None
        self._slots: list[torch.Tensor] = []  # views of it, made when first used: an epoch may be short
        self._sum: torch.Tensor | None = None
        self._samples: list[int] = []  # of the losses in the buffer
        self._at_home: list[torch.Tensor] = []

    def add(self, loss: torch.Tensor | float, samples: int) -> None:
        """Take in a step's mean loss over `samples` samples. Raises `TensorMismatchError` for more than one number."""
        if isinstance(loss, torch.Tensor):
            self._slot(loss.device).copy_(_single(loss))
        else:
            self._slot(torch.device("cpu")).fill_(float(loss))
        self._samples.append(samples)

    def total(self) -> float | None:
        """The sum of loss times samples, None without a loss; waits for the device."""
        self._empty()
        return None if self._sum is None else float(self._sum)

    def logged(self) -> LoggedLosses:
        """What was to be logged; waits for the device."""
        self._empty()
        if not self._at_home:
            return LoggedLosses()
        assert self._buffer is not None
        synchronize(self._buffer.device)  # what was sent home must have arrived
        values = array("f", torch.cat(self._at_home).numpy().tobytes())
        first = self._steps_before + _first_index(self._steps_before, self._log_every) + 1
        return LoggedLosses(range(first, first + len(values) * self._log_every, self._log_every), values)

    def _slot(self, device: torch.device) -> torch.Tensor:
        """Where the next loss goes; a buffer lives on the device of the first one."""
        if self._buffer is None:
            self._buffer = zeros(_NUM_SLOTS, dtype=sum_type(device), device=device)
        if len(self._samples) == _NUM_SLOTS:
            self._empty()
        used = len(self._samples)
        if used == len(self._slots):
            self._slots.append(self._buffer[used])
        return self._slots[used]

    def _empty(self) -> None:
        """Add the buffer's losses to the sum, and send home those to be logged."""
        if not self._samples:
            return
        assert self._buffer is not None
        if self._sum is None:
            self._sum = zeros(dtype=self._buffer.dtype, device=self._buffer.device)
        begin = 0
        for samples, equal in groupby(self._samples):  # batches are of one size, but for an epoch's last
            end = begin + len(list(equal))
            self._sum.add_(self._buffer[begin:end].sum(), alpha=samples)
            begin = end
        if self._log_every:
            chosen = self._buffer[_first_index(self._steps_before + self._num_emptied, self._log_every) : begin]
            self._send_home(chosen[:: self._log_every])
        self._num_emptied += begin
        self._samples.clear()

    def _send_home(self, losses: torch.Tensor) -> None:
        if len(losses):
            runs_ahead = losses.device.type in _RUNNING_AHEAD
            self._at_home.append(losses.float().to("cpu", non_blocking=runs_ahead))  # never the buffer's own memory


def zeros(*shape: int, dtype: torch.dtype, device: torch.device) -> torch.Tensor:
    """Zeros that may be added to within `torch.inference_mode`, as in an evaluation, and after it."""
    with torch.inference_mode(False):
        return torch.zeros(shape, dtype=dtype, device=device)


def _first_index(steps_before: int, log_every: int) -> int:
    """Which of the steps that follow, from 0, is the first to be logged: those whose number `log_every` divides."""
    return -(steps_before + 1) % log_every


def _single(loss: torch.Tensor) -> torch.Tensor:
    if loss.ndim == 0:
        return loss.detach()
    if loss.numel() != 1:
        raise TensorMismatchError(
            f"The loss must be one number a step, got shape {tuple(loss.shape)}; take its mean before tracking it."
        )
    return loss.detach().reshape(())


def sum_type(device: torch.device) -> torch.dtype:
    """The most exact type that sums can be kept in on `device`."""
    return torch.float32 if device.type == "mps" else torch.float64  # Apple's GPUs have no float64

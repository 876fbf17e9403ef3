"""The losses of an epoch's steps: held where they are in one small buffer, summed and sent home a buffer at a time."""

from array import array
from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import groupby

import torch

from runmanager.errors import TensorMismatchError
from runmanager.tracking.device.devices import synchronize

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

    On the host a step costs one number. On a device it costs one copy there, into a slot of its own: the caller may
    write its next loss into the same tensor, as CUDA graphs do. Nothing waits for the device but `total` and `logged`,
    and however long the epoch is, no more than one buffer is held; when that is full, what is to be logged goes home.
    `steps_before` is how many steps the run had taken before the first one here.
    """

    def __init__(self, *, log_every: int = 0, steps_before: int = 0) -> None:
        self._log_every = log_every
        self._steps_before = steps_before
        self._num_emptied = 0
        self._samples: list[int] = []  # of the losses held: all on the host, or all in the buffer
        self._on_host: list[float] = []
        self._buffer: torch.Tensor | None = None
        self._slots: list[torch.Tensor] = []  # views of it, made when first used: an epoch may be short
        self._sums: dict[torch.device, torch.Tensor] = {}
        self._at_home: list[torch.Tensor] = []

    def add(self, loss: torch.Tensor | float, samples: int) -> None:
        """Take in a step's mean loss over `samples` samples. Raises `TensorMismatchError` for more than one number."""
        if isinstance(loss, torch.Tensor) and not loss.is_cpu:
            self._make_room(on_host=False)
            self._slot(loss.device).copy_(_single(loss))
        else:
            value = _single(loss).item() if isinstance(loss, torch.Tensor) else float(loss)
            self._make_room(on_host=True)
            self._on_host.append(value)
        self._samples.append(samples)

    def total(self) -> float | None:
        """The sum of loss times samples, None without a loss; waits for the device."""
        self._empty()
        return sum(map(float, self._sums.values())) if self._sums else None

    def logged(self) -> LoggedLosses:
        """What was to be logged; waits for the device."""
        self._empty()
        if not self._at_home:
            return LoggedLosses()
        if self._buffer is not None:
            synchronize(self._buffer.device)  # what was sent home must have arrived
        values = array("f", torch.cat(self._at_home).numpy().tobytes())
        first = self._steps_before + _first_index(self._steps_before, self._log_every) + 1
        return LoggedLosses(range(first, first + len(values) * self._log_every, self._log_every), values)

    def _make_room(self, *, on_host: bool) -> None:
        """Empty the buffer where it is full, or where what it holds lies elsewhere than what comes."""
        held = len(self._samples)
        if held == _NUM_SLOTS or (held and bool(self._on_host) != on_host):
            self._empty()

    def _slot(self, device: torch.device) -> torch.Tensor:
        """Where the next loss goes; a buffer lives on the device of the first one."""
        if self._buffer is None:
            self._buffer = zeros(_NUM_SLOTS, dtype=sum_type(device), device=device)
        used = len(self._samples)
        if used == len(self._slots):
            self._slots.append(self._buffer[used])
        return self._slots[used]

    def _empty(self) -> None:
        """Add the losses held to their sum, and send home those to be logged."""
        if not self._samples:
            return
        losses = torch.tensor(self._on_host, dtype=torch.float64) if self._on_host else self._buffer
        assert losses is not None
        if losses.device not in self._sums:
            self._sums[losses.device] = zeros(dtype=losses.dtype, device=losses.device)
        total = self._sums[losses.device]
        begin = 0
        for samples, equal in groupby(self._samples):  # batches are of one size, but for an epoch's last
            end = begin + len(list(equal))
            total.add_(losses[begin:end].sum(), alpha=samples)
            begin = end
        if self._log_every:
            chosen = losses[_first_index(self._steps_before + self._num_emptied, self._log_every) : begin]
            self._send_home(chosen[:: self._log_every])
        self._num_emptied += begin
        self._samples.clear()
        self._on_host.clear()

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

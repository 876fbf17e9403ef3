"""Losses of an epoch's steps: buffered on their device, and summed or transferred one buffer at a time."""

from array import array
from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import groupby

import torch

from runmanager.errors import TensorMismatchError
from runmanager.tracking.device.devices import synchronize
from runmanager.tracking.epoch_part import LossState
from runmanager.tracking.torch_internals import as_plain

ASYNC_COPY_DEVICES = ("cuda", "xpu")  # from which a copy to the host need not be waited for
_CPU = torch.device("cpu")
_NUM_SLOTS = 128  # emptying a full buffer costs about ten operations, little per step


@dataclass(frozen=True)
class LoggedLosses:
    """The logged losses in order: `values[i]` is that of step `steps[i]`."""

    steps: Sequence[int] = ()
    values: Sequence[float] = field(default_factory=lambda: array("f"))


class LossBuffer:
    """Sums up mean losses, each weighted by its number of samples, and keeps every `log_every`th one (0: none).

    A step costs one number on the host, or one copy into a slot of the buffer on a device: the caller may write its
    next loss into the same tensor, as CUDA graphs do. Only `total` and `logged` wait for the device. However long the
    epoch is, only one buffer is held; when it is full, the losses to be logged are transferred to the host.
    `steps_before` is the number of the run's steps before the first one here.
    """

    def __init__(self, *, log_every: int = 0, steps_before: int = 0) -> None:
        self._log_every = log_every
        self._steps_before = steps_before
        self._num_emptied = 0
        self._samples: list[int] = []  # of the buffered losses: all on the host, or all on a device
        self._on_host: list[float] = []
        self._buffer: torch.Tensor | None = None
        self._slots: list[torch.Tensor] = []  # views of it, made when first used: an epoch may be short
        self._sums: dict[torch.device, torch.Tensor] = {}
        self._logged: list[torch.Tensor] = []

    def add(self, loss: torch.Tensor | float, samples: int) -> None:
        """Add a step's mean loss over `samples` samples. Raises `TensorMismatchError` for more than one number."""
        if isinstance(loss, torch.Tensor):
            loss = as_plain(loss)
        on_device = loss if isinstance(loss, torch.Tensor) and not loss.is_cpu else None
        held = len(self._samples)
        if held == _NUM_SLOTS or (held and bool(self._on_host) == (on_device is not None)):
            self._empty()
        if on_device is not None:
            self._slot(on_device.device).copy_(_single(on_device))
        else:
            self._on_host.append(_single(loss).item() if isinstance(loss, torch.Tensor) else float(loss))
        self._samples.append(samples)

    def total(self) -> float | None:
        """Return the sum of loss times samples, None without a loss; waits for the device."""
        self._empty()
        return sum(map(float, self._sums.values())) if self._sums else None

    def logged(self) -> LoggedLosses:
        """Return the logged losses; waits for the device."""
        self._empty()
        values = self.logged_so_far()
        if not values:
            return LoggedLosses()
        first = self._steps_before + _first_index(self._steps_before, self._log_every) + 1
        return LoggedLosses(range(first, first + len(values) * self._log_every, self._log_every), values)

    def logged_so_far(self) -> Sequence[float]:
        """Return the losses to be logged that are not buffered; waits for the device."""
        if self._logged and self._buffer is not None:
            synchronize(self._buffer.device)  # the transfers must have ended
        return array("f", torch.cat(self._logged).numpy().tobytes() if self._logged else b"")

    def state(self) -> LossState:
        """Return the state for a checkpoint; waits for the device, and changes nothing."""
        held = self._buffer[: len(self._samples)].tolist() if self._buffer is not None and not self._on_host else None
        return LossState(
            total=sum(map(float, self._sums.values())) if self._sums else None,
            samples=list(self._samples),
            losses=list(self._on_host) if held is None else held,
            num_emptied=self._num_emptied,
            log_every=self._log_every,
            logged=list(self.logged_so_far()),
        )

    def restore(self, state: LossState) -> None:
        """Continue a new buffer from `state`; what was to be logged is dropped if `log_every` has changed since."""
        if state.total is not None:
            self._sums[_CPU] = torch.tensor(state.total, dtype=torch.float64)
        self._samples, self._on_host = list(state.samples), list(state.losses)
        self._num_emptied = state.num_emptied
        if state.log_every == self._log_every:
            self._logged = [torch.tensor(state.logged, dtype=torch.float32)] if state.logged else []
            return
        self._empty()
        self._steps_before += self._num_emptied
        self._num_emptied = 0
        self._logged.clear()

    def _slot(self, device: torch.device) -> torch.Tensor:
        """Return the slot for the next loss; the buffer is on the device of the first one."""
        if self._buffer is None:
            self._buffer = zeros(_NUM_SLOTS, dtype=sum_type(device), device=device)
        used = len(self._samples)
        if used == len(self._slots):
            self._slots.append(self._buffer[used])
        return self._slots[used]

    def _empty(self) -> None:
        """Add the buffered losses to their sum, and transfer those to be logged."""
        if not self._samples:
            return
        losses = torch.tensor(self._on_host, dtype=torch.float64) if self._on_host else self._buffer
        assert losses is not None
        if losses.device not in self._sums:
            self._sums[losses.device] = zeros(dtype=losses.dtype, device=losses.device)
        total = self._sums[losses.device]
        begin = 0
        for samples, equal in groupby(self._samples):  # batches have one size, except the last of an epoch
            end = begin + len(list(equal))
            total.add_(losses[begin:end].sum(), alpha=samples)
            begin = end
        if self._log_every:
            chosen = losses[_first_index(self._steps_before + self._num_emptied, self._log_every) : begin]
            self._keep_logged(chosen[:: self._log_every])
        self._num_emptied += begin
        self._samples.clear()
        self._on_host.clear()

    def _keep_logged(self, losses: torch.Tensor) -> None:
        if len(losses):
            is_async = losses.device.type in ASYNC_COPY_DEVICES
            self._logged.append(losses.float().to("cpu", non_blocking=is_async))  # a copy, never the buffer's memory


def zeros(*shape: int, dtype: torch.dtype, device: torch.device) -> torch.Tensor:
    """Return zeros that may be modified in place both within `torch.inference_mode` and after it."""
    with torch.inference_mode(False):
        return torch.zeros(shape, dtype=dtype, device=device)


def _first_index(steps_before: int, log_every: int) -> int:
    """Return the index, from 0, of the next step to log: one whose number in the run `log_every` divides."""
    return -(steps_before + 1) % log_every


def _single(loss: torch.Tensor) -> torch.Tensor:
    if loss.ndim == 0:
        return loss.detach() if loss.requires_grad else loss
    if loss.numel() != 1:
        raise TensorMismatchError(
            f"The loss must be one number a step, got shape {tuple(loss.shape)}; take its mean before tracking it."
        )
    return loss.detach().reshape(())


def sum_type(device: torch.device) -> torch.dtype:
    """Return the most precise type for sums on `device`: Apple's GPUs and some of Intel's have no float64."""
    has_float64 = device.type != "mps"
    if device.type == "xpu":
        has_float64 = torch.xpu.get_device_properties(device).has_fp64
    return torch.float64 if has_float64 else torch.float32

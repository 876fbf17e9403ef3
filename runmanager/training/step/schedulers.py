"""The built-in learning-rate schedules."""

import math
from typing import Any, Literal

from torch.optim import Optimizer
from torch.optim.lr_scheduler import CosineAnnealingLR, LambdaLR, LRScheduler, MultiStepLR

from runmanager.errors import ConfigurationError, UsageError
from runmanager.training.options.groups import ConstantOptions, CosineOptions, MultistepOptions, OneCycleOptions
from runmanager.validation import fault

__all__ = ["Scheduler", "build_scheduler", "one_cycle_factor"]

_START_FACTOR = 1 / 25
_END_FACTOR = _START_FACTOR / 1e4


class Scheduler:
    """A learning-rate schedule; call `step()` after each epoch or each optimiser step, according to `step_interval`."""

    def __init__(self, inner: LRScheduler, *, step_interval: Literal["epoch", "step"] = "epoch") -> None:
        self._inner = inner
        self.step_interval: Literal["epoch", "step"] = step_interval

    def step(self) -> None:
        """Set the optimiser's next learning rate; call it after `optimizer.step()`."""
        self._inner.step()

    @property
    def lr(self) -> float:
        """The learning rate that the next optimiser step will use."""
        return float(self._inner.optimizer.param_groups[0]["lr"])

    def state_dict(self) -> dict[str, Any]:
        """The state for a checkpoint; it loads with `torch.load(weights_only=True)`."""
        return dict(self._inner.state_dict())

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Restore what `state_dict` returned; the learning rate itself is part of the optimiser's state."""
        self._inner.load_state_dict(state)


def build_scheduler(options: Any, optimizer: Optimizer, *, num_epochs: int, steps_per_epoch: int) -> Scheduler:
    """Create the schedule of `options` over `num_epochs`, starting from the optimiser's learning rate.

    Raises `ConfigurationError` if cosine's `min_lr` is above that rate, `UsageError` for options of another type.
    """
    if isinstance(options, ConstantOptions):
        return Scheduler(LambdaLR(optimizer, _always_one))
    if isinstance(options, MultistepOptions):
        return Scheduler(MultiStepLR(optimizer, list(options.milestones), gamma=options.gamma))
    if isinstance(options, CosineOptions):
        rate = optimizer.param_groups[0]["lr"]
        if options.min_lr > rate:
            raise ConfigurationError([fault("scheduler.min_lr", f"be at most `lr`={rate:g}", options.min_lr)])
        return Scheduler(CosineAnnealingLR(optimizer, T_max=num_epochs, eta_min=options.min_lr))
    if isinstance(options, OneCycleOptions):
        total, share = num_epochs * steps_per_epoch, options.pct_start
        schedule = LambdaLR(optimizer, lambda step: one_cycle_factor(step, total_steps=total, pct_start=share))
        return Scheduler(schedule, step_interval="step")
    raise UsageError(f"The scheduler's options must be a scheduler dataclass, got {options!r}.")


def _always_one(_epoch: int) -> float:
    return 1.0


def one_cycle_factor(step: int, *, total_steps: int, pct_start: float) -> float:
    """The factor of `lr` at a step, counted from 0: half a cosine up to 1, then half a cosine down to almost 0.

    The rates are those of PyTorch's OneCycleLR with its defaults (Smith and Topin, 2017, arXiv:1708.07120). That class
    is not used, because it divides by zero for some numbers of steps and also changes the momentum.
    """
    top = pct_start * total_steps - 1
    if step < top:
        return _cosine_between(_START_FACTOR, 1.0, step / top)
    last = total_steps - 1
    if top >= last:
        return 1.0
    return _cosine_between(1.0, _END_FACTOR, min(1.0, (step - top) / (last - top)))


def _cosine_between(start: float, end: float, fraction: float) -> float:
    return end + (start - end) * (1 + math.cos(math.pi * fraction)) / 2

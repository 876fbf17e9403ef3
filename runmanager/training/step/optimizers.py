"""The built-in optimisers and learning-rate schedules."""

import math
from collections.abc import Iterable, Sequence
from typing import Any, Literal

import torch
from torch import nn
from torch.optim import Optimizer
from torch.optim.lr_scheduler import CosineAnnealingLR, LambdaLR, LRScheduler, MultiStepLR

from runmanager.errors import ConfigurationError, UsageError
from runmanager.training.options.groups import (
    AdamOptions,
    AdamWOptions,
    ConstantOptions,
    CosineOptions,
    MultistepOptions,
    OneCycleOptions,
    SgdOptions,
)
from runmanager.validation import fault

_FUSED_DEVICES = ("cpu", "cuda", "mps", "xpu", "hpu", "mtia")  # those with fused kernels in PyTorch 2.9 to 2.15
_FUSED_BY_DEFAULT = ("cpu", "cuda")
_IMPLEMENTATION = ("fused", "foreach", "capturable")  # how a step is computed, not its result


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


def build_optimizer(
    options: Any, parameters: Iterable[nn.Parameter], *, lr: float, is_scaled: bool = False
) -> torch.optim.Optimizer:
    """Create an optimiser with learning rate `lr` for those `parameters` that require a gradient.

    With scaled gradients (`is_scaled`) every optimiser is fused where possible, unless `fused` is false: with any other
    the scaler waits for the device in each step.

    A state saved with another implementation (fused or not) or on another device can be loaded. Raises
    `ConfigurationError` if no parameter requires a gradient, or `fused` is true and not supported; `UsageError` for
    options of another type.
    """
    trainable = [each for each in parameters if each.requires_grad]
    if not trainable:
        raise ConfigurationError(
            ["The model must have a parameter that requires a gradient, got none; unfreeze a layer of it."]
        )
    optimizer = _create(options, trainable, lr, is_scaled)
    optimizer.register_load_state_dict_pre_hook(_adapt_saved_state)
    return optimizer


def _create(options: Any, trainable: Sequence[nn.Parameter], lr: float, is_scaled: bool) -> torch.optim.Optimizer:
    if isinstance(options, SgdOptions):
        return torch.optim.SGD(
            trainable,
            lr=lr,
            momentum=options.momentum,
            weight_decay=options.weight_decay,
            nesterov=options.nesterov,
            fused=_fused(options.fused, trainable, default=is_scaled),
        )
    if isinstance(options, AdamOptions):
        kind = torch.optim.AdamW if isinstance(options, AdamWOptions) else torch.optim.Adam
        first, second = options.betas
        return kind(
            trainable,
            lr=lr,
            betas=(first, second),
            eps=options.eps,
            weight_decay=options.weight_decay,
            fused=_fused(options.fused, trainable, default=True),
        )
    raise UsageError(f"The optimizer's options must be an optimizer dataclass, got {options!r}.")


def _fused(setting: bool | None, trainable: Sequence[nn.Parameter], *, default: bool) -> bool | None:
    """PyTorch's `fused` argument: True, or None for the fastest other implementation, which False would restrict."""
    if setting is None:
        is_usual_device = all(each.device.type in _FUSED_BY_DEFAULT for each in trainable)
        setting = default and is_usual_device and not _unsupported(trainable)
    elif setting and (reason := _unsupported(trainable)):
        raise ConfigurationError([fault("optimizer.fused", "be null or false for such a model", "true", reason)])
    return True if setting else None


def _unsupported(trainable: Sequence[nn.Parameter]) -> str:
    """Why the fused kernels do not support these parameters; empty if they do."""
    for each in trainable:
        if not each.is_floating_point():
            return f"it has parameters of {each.dtype}, and fused kernels take real numbers"
        if each.device.type not in _FUSED_DEVICES:
            return f"PyTorch has no fused kernels for {each.device.type}"
    return ""


def _adapt_saved_state(optimizer: torch.optim.Optimizer, state: dict[str, Any]) -> dict[str, Any]:
    """Replace the saved implementation flags with this optimiser's: the state may come from another device."""
    groups = [
        {**saved, **{name: here[name] for name in _IMPLEMENTATION if name in here}}
        for saved, here in zip(state["param_groups"], optimizer.param_groups, strict=True)
    ]
    return {**state, "param_groups": groups}

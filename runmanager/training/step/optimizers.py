"""The built-in optimisers."""

from collections.abc import Iterable, Sequence
from typing import Any

import torch
from torch import nn

from runmanager.errors import ConfigurationError, UsageError
from runmanager.training.options.groups import AdamOptions, AdamWOptions, SgdOptions
from runmanager.validation import fault

__all__ = ["build_optimizer"]

_FUSED_DEVICES = ("cpu", "cuda", "mps", "xpu", "hpu", "mtia")  # that have the kernels in PyTorch 2.9 to 2.15
_FUSED_UNASKED = ("cpu", "cuda")
_IMPLEMENTATION = ("fused", "foreach", "capturable")  # how a step is made, not what it computes


def build_optimizer(
    options: Any, parameters: Iterable[nn.Parameter], *, lr: float, is_scaled: bool = False
) -> torch.optim.Optimizer:
    """An optimiser at learning rate `lr` over those `parameters` that require a gradient; frozen ones are left out.

    Where a scaler has scaled the gradients (`is_scaled`), every optimiser that can be is fused, unless that is
    forbidden: the scaler waits for the device in each step of any other.

    Its state can be loaded from one that makes its steps another way, on another device too. Raises
    `ConfigurationError` when none is left, or `fused` is asked for where it cannot be; `UsageError` for options that
    are no optimiser's.
    """
    trainable = [each for each in parameters if each.requires_grad]
    if not trainable:
        raise ConfigurationError(
            ["The model must have a parameter that requires a gradient, got none; unfreeze a layer of it."]
        )
    optimizer = _built(options, trainable, lr, is_scaled)
    optimizer.register_load_state_dict_pre_hook(_as_here)
    return optimizer


def _built(options: Any, trainable: Sequence[nn.Parameter], lr: float, is_scaled: bool) -> torch.optim.Optimizer:
    if isinstance(options, SgdOptions):
        return torch.optim.SGD(
            trainable,
            lr=lr,
            momentum=options.momentum,
            weight_decay=options.weight_decay,
            nesterov=options.nesterov,
            fused=_fused(options.fused, trainable, unasked=is_scaled),
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
            fused=_fused(options.fused, trainable, unasked=True),
        )
    raise UsageError(f"The optimizer's options must be an optimizer dataclass, got {options!r}.")


def _fused(asked: bool | None, trainable: Sequence[nn.Parameter], *, unasked: bool) -> bool | None:
    """What PyTorch is told: True, or None for the fastest of its other ways; False would forbid it one of these."""
    if asked is None:
        asked = unasked and all(each.device.type in _FUSED_UNASKED for each in trainable) and not _odd(trainable)
    elif asked and (odd := _odd(trainable)):
        raise ConfigurationError([fault("optimizer.fused", "be null or false for such a model", "true", odd)])
    return True if asked else None


def _odd(trainable: Sequence[nn.Parameter]) -> str:
    """What about these parameters the fused kernels cannot take; empty where they take all."""
    for each in trainable:
        if not each.is_floating_point():
            return f"it has parameters of {each.dtype}, and fused kernels take real numbers"
        if each.device.type not in _FUSED_DEVICES:
            return f"there are no fused kernels for {each.device.type}"
    return ""


def _as_here(optimizer: torch.optim.Optimizer, state: dict[str, Any]) -> dict[str, Any]:
    """A saved state whose steps are made as this optimiser makes them: the saved one may be of another device."""
    groups = [
        {**saved, **{name: here[name] for name in _IMPLEMENTATION if name in here}}
        for saved, here in zip(state["param_groups"], optimizer.param_groups, strict=True)
    ]
    return {**state, "param_groups": groups}

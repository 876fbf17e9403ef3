"""The built-in optimisers."""

from collections.abc import Iterable, Sequence
from typing import Any

import torch
from torch import nn

from runmanager.errors import ConfigurationError, UsageError
from runmanager.training.options.groups import AdamOptions, AdamWOptions, SgdOptions
from runmanager.validation import fault

__all__ = ["build_optimizer"]

_FUSED_DEVICES = ("cpu", "cuda", "mps", "xpu", "hpu", "mtia")  # those with fused kernels in PyTorch 2.9 to 2.15
_FUSED_BY_DEFAULT = ("cpu", "cuda")
_IMPLEMENTATION = ("fused", "foreach", "capturable")  # how a step is computed, not its result


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

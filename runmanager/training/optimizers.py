"""The built-in optimisers."""

from collections.abc import Iterable
from typing import Any

import torch
from torch import nn

from runmanager.errors import ConfigurationError, UsageError
from runmanager.training.options import AdamOptions, AdamWOptions, SgdOptions

__all__ = ["build_optimizer"]


def build_optimizer(options: Any, parameters: Iterable[nn.Parameter], *, lr: float) -> torch.optim.Optimizer:
    """An optimiser at learning rate `lr` over those `parameters` that require a gradient; frozen ones are left out.

    Raises `ConfigurationError` when none is left, `UsageError` for options that are no optimiser's.
    """
    trainable = [each for each in parameters if each.requires_grad]
    if not trainable:
        raise ConfigurationError(
            ["The model must have a parameter that requires a gradient, got none; unfreeze a layer of it."]
        )
    if isinstance(options, SgdOptions):
        return torch.optim.SGD(
            trainable,
            lr=lr,
            momentum=options.momentum,
            weight_decay=options.weight_decay,
            nesterov=options.nesterov,
        )
    if isinstance(options, AdamOptions):
        kind = torch.optim.AdamW if isinstance(options, AdamWOptions) else torch.optim.Adam
        first, second = options.betas
        return kind(trainable, lr=lr, betas=(first, second), eps=options.eps, weight_decay=options.weight_decay)
    raise UsageError(f"The optimizer's options must be an optimizer dataclass, got {options!r}.")

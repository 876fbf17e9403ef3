"""What can be proved of a network's forward pass from its modules: all known, each sample alone, random numbers."""

import math
from collections.abc import Callable
from typing import Any

import torch
from torch import nn

from runmanager.tracking.introspect.isolation import isolated
from runmanager.tracking.introspect.model_copy import copy_to_meta
from runmanager.tracking.torch_internals import (
    CALL_HOOK_TABLES,
    GLOBAL_HOOK_TABLES,
    has_gradient_hooks,
    module_hooks,
)
from runmanager.training.models.builtin_models import Network
from runmanager.training.models.torchvision_models import Resized

__all__ = ["draws_by_layout", "draws_numbers", "is_known", "takes_any_batch"]

_DROPOUTS = (nn.Dropout, nn.Dropout1d, nn.Dropout2d, nn.Dropout3d)

_KNOWN: frozenset[type[nn.Module]] = frozenset(
    {
        *(nn.Sequential, nn.Identity, Network, Resized, *_DROPOUTS),
        *(nn.Linear, nn.Conv1d, nn.Conv2d, nn.Conv3d, nn.ConvTranspose1d, nn.ConvTranspose2d, nn.ConvTranspose3d),
        *(nn.MaxPool1d, nn.MaxPool2d, nn.MaxPool3d, nn.AvgPool1d, nn.AvgPool2d, nn.AvgPool3d),
        *(nn.AdaptiveMaxPool1d, nn.AdaptiveMaxPool2d, nn.AdaptiveMaxPool3d),
        *(nn.AdaptiveAvgPool1d, nn.AdaptiveAvgPool2d, nn.AdaptiveAvgPool3d),
        *(nn.ReLU, nn.ReLU6, nn.LeakyReLU, nn.PReLU, nn.ELU, nn.SELU, nn.CELU, nn.GELU, nn.SiLU, nn.Mish),
        *(nn.Sigmoid, nn.Tanh, nn.Softplus, nn.Softsign, nn.Hardtanh, nn.Hardswish, nn.Hardsigmoid),
        *(nn.LayerNorm, nn.GroupNorm, nn.BatchNorm1d, nn.BatchNorm2d, nn.BatchNorm3d),
        *(nn.InstanceNorm1d, nn.InstanceNorm2d, nn.InstanceNorm3d, nn.LocalResponseNorm),
        *(nn.ZeroPad2d, nn.ReflectionPad2d, nn.ReplicationPad2d, nn.Upsample, nn.PixelShuffle, nn.PixelUnshuffle),
    }
)
"""Modules whose forward pass treats the first dimension as samples, apart from normalisation by batch statistics."""

_KNOWN_IF: dict[type[nn.Module], Callable[[Any], bool]] = {
    nn.Flatten: lambda module: module.start_dim >= 1,
    nn.Unflatten: lambda module: isinstance(module.dim, int) and module.dim >= 1,
    nn.Softmax: lambda module: module.dim is not None and module.dim >= 1,
    nn.LogSoftmax: lambda module: module.dim is not None and module.dim >= 1,
    nn.MultiheadAttention: lambda module: bool(module.batch_first),
    nn.modules.linear.NonDynamicallyQuantizableLinear: lambda module: True,  # within MultiheadAttention
}

_KNOWN_PACKAGES = ("torchvision.models.", "torchvision.ops.")
"""The classifiers there are built of the modules above, and of functions that treat each sample alone."""


def is_known(network: nn.Module) -> bool:
    """Whether the code of the whole forward pass is known, without user code in modules, functions or hooks.

    Apart from rounding and random numbers its result does not depend on how tensors lie in memory, and that of a sample
    on other samples by batch statistics only (if it `takes_any_batch`). Any other network may compute anything.
    """
    if any(GLOBAL_HOOK_TABLES) or any(map(has_gradient_hooks, network.parameters())):
        return False
    return all(map(_is_known_module, network.modules()))


def _is_known_module(module: nn.Module) -> bool:
    if "forward" in vars(module) or any(module_hooks(module, table) for table in CALL_HOOK_TABLES):
        return False
    kind = type(module)
    if kind in _KNOWN_IF:
        return _KNOWN_IF[kind](module)
    return kind in _KNOWN or f"{kind.__module__}.".startswith(_KNOWN_PACKAGES)


def takes_any_batch(network: nn.Module, in_shape: tuple[int, ...]) -> bool:
    """Whether the first dimension of inputs and outputs is that of samples; layers may take it for another one."""
    try:
        with isolated(network):
            on_meta, _ = copy_to_meta(network)
            return all(len(on_meta(torch.empty((count, *in_shape), device="meta"))) == count for count in (2, 3))
    except Exception:  # a network may raise anything without data
        return False


def draws_numbers(network: nn.Module) -> bool:
    """Whether a known network draws random numbers in training: the pieces of a batch would draw others."""
    return any(map(_draws, network.modules()))


def _draws(module: nn.Module) -> bool:
    """Modules of torchvision and attention keep the probability of a function that drops values as an attribute."""
    probabilities = [
        value for name, value in vars(module).items() if "drop" in name.lower() and isinstance(value, int | float)
    ]
    if isinstance(module, _DROPOUTS) or type(module).__name__ == "StochasticDepth":
        probabilities.append(module.p)  # type: ignore[arg-type]  # a number in all of them
    return any(value > 0 for value in probabilities)


def draws_by_layout(network: nn.Module, in_shape: tuple[int, ...]) -> bool:
    """Whether which random number a value gets may depend on how a known network's tensors lie in memory.

    `Dropout` draws in the order of memory. For inputs (batch, features) that is the same in every layout.
    """
    drawing = [(name, module) for name, module in network.named_modules() if _draws(module)]
    # One number a sample, drawn into a tensor of its own.
    layers = [(name, module) for name, module in drawing if type(module).__name__ != "StochasticDepth"]
    if not layers:
        return False
    if not all(isinstance(module, _DROPOUTS) for _, module in layers):
        return True
    return _most_dimensions(network, [name for name, _ in layers], in_shape) > 2


def _most_dimensions(network: nn.Module, names: list[str], in_shape: tuple[int, ...]) -> float:
    """Return the largest number of dimensions of the inputs of the modules with these names; infinity if unknown."""
    seen: list[int] = []
    try:
        with isolated(network):
            on_meta, _ = copy_to_meta(network)
            for name in names:
                on_meta.get_submodule(name).register_forward_pre_hook(lambda _, inputs: seen.append(inputs[0].ndim))
            on_meta(torch.empty((2, *in_shape), device="meta"))
    except Exception:  # a network may raise anything without data
        return math.inf
    return max(seen, default=0)

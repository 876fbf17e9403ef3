"""The built-in models with their pooling, and the creation of user-defined ones."""

import math
from collections.abc import Callable, Mapping
from itertools import pairwise
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.autograd.function import once_differentiable

from runmanager.errors import ConfigurationError, UsageError
from runmanager.training.custom_targets import call_target, resolve_target
from runmanager.training.models.torchvision_models import build_torchvision_model
from runmanager.training.options.groups import (
    CnnOptions,
    LogisticOptions,
    MlpOptions,
    MlpTowerOptions,
    TorchvisionModelOptions,
)
from runmanager.validation import fault

MODEL_ARGUMENTS = ("in_shape", "num_classes")
"""Arguments that a user-defined model receives if it takes them."""

_MIN_CNN_SIDE = 16


def max_pool_2x2(images: Tensor) -> Tensor:
    """Max-pool (batch, channels, height, width) to half the height and width; an odd last row or column is dropped.

    The values equal those of `torch.nn.functional.max_pool2d`. If several values of a square are the largest, one of
    them gets the gradient, as in PyTorch, but not always the same one. Not twice differentiable on a CPU.
    """
    is_plain = images.device.type == "cpu" and not images.shape[-1] % 2 and not images.shape[-2] % 2
    if not is_plain or torch.compiler.is_compiling():
        return F.max_pool2d(images, kernel_size=2, stride=2)
    pooled: Tensor = _MaxPool2x2.apply(images)
    return pooled


class _MaxPool2x2(torch.autograd.Function):
    """The maximum of two rows, then of two columns, each one vectorized comparison.

    PyTorch's kernel is vectorized over channels, which does not help a network with six of them. Backward needs one
    byte for each comparison, instead of the input and an index of eight bytes for each square.
    """

    @staticmethod
    def forward(ctx: Any, images: Tensor) -> Tensor:
        top, bottom = _halves(images, -2)
        rows = torch.maximum(top, bottom)
        left, right = _halves(rows, -1)
        if ctx.needs_input_grad[0]:
            ctx.save_for_backward(top >= bottom, left >= right)
            ctx.layout = images.dim_order()
        return torch.maximum(left, right)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> Tensor:
        is_top, is_left = ctx.saved_tensors
        return _routed(_routed(grad, is_left, -1, ctx.layout), is_top, -2, ctx.layout)


def _halves(images: Tensor, dim: int) -> tuple[Tensor, Tensor]:
    """The values at even and at odd indices along a dimension."""
    return (images[..., ::2, :], images[..., 1::2, :]) if dim == -2 else (images[..., ::2], images[..., 1::2])


def _routed(grad: Tensor, is_first: Tensor, dim: int, layout: tuple[int, ...]) -> Tensor:
    """Expand a gradient along a dimension: each value goes to the first or to the second of two positions."""
    shape = list(grad.shape)
    shape[dim] *= 2
    whole = torch.empty_permuted(shape, layout, dtype=grad.dtype)
    first, second = _halves(whole, dim)
    torch.mul(grad, is_first, out=first)
    torch.sub(grad, first, out=second)
    return whole


def build_model(
    options: Any, *, in_shape: tuple[int, ...], num_classes: int, resolve: Callable[..., Any] = resolve_target
) -> nn.Module:
    """Create a network with new weights, from (batch, *in_shape), float32, to logits (batch, num_classes).

    `options` is one of the model dataclasses, or a mapping with `_target_` for a user-defined model; `resolve` looks up
    the target, which receives `in_shape` and `num_classes` if it takes them. Weights are drawn from PyTorch's global
    random state, on the CPU.
    Raises `ConfigurationError` if the model cannot be built for these samples, or the target is not found.
    """
    if isinstance(options, Mapping):
        return _custom(resolve(options, group="model"), options, in_shape, num_classes)
    if isinstance(options, TorchvisionModelOptions):
        return build_torchvision_model(options, in_shape=in_shape, num_classes=num_classes)
    if type(options) not in _BUILDERS:
        raise UsageError(
            f"The model's options must be a model dataclass or a mapping with `_target_`, got {options!r}."
        )
    return _BUILDERS[type(options)](options, in_shape, num_classes)


class Network(nn.Module):
    """The tutorials' network: two 5x5 convolutions with pooling, then three linear layers."""

    def __init__(self, in_shape: tuple[int, ...] = (1, 28, 28), num_classes: int = 10) -> None:
        super().__init__()
        if len(in_shape) != 3 or min(in_shape[1:]) < _MIN_CNN_SIDE:
            rule = f"be given images (channels, height, width) of at least {_MIN_CNN_SIDE}x{_MIN_CNN_SIDE}"
            way_out = "use `model=mlp`, or another dataset"
            raise ConfigurationError([fault("model=cnn", rule, f"samples of shape {tuple(in_shape)}", way_out)])
        channels, height, width = in_shape
        self.conv1 = nn.Conv2d(channels, 6, kernel_size=5)
        self.conv2 = nn.Conv2d(6, 12, kernel_size=5)
        self.fc1 = nn.Linear(12 * _after_convolutions(height) * _after_convolutions(width), 120)
        self.fc2 = nn.Linear(120, 60)
        self.out = nn.Linear(60, num_classes)

    def forward(self, images: Tensor) -> Tensor:
        """Logits (batch, classes) of images (batch, channels, height, width)."""
        # ReLU is monotonic, so pooling first gives the same result with a quarter of the ReLU work.
        hidden = F.relu(max_pool_2x2(self.conv1(images)))
        hidden = F.relu(max_pool_2x2(self.conv2(hidden)))
        hidden = F.relu(self.fc1(hidden.flatten(start_dim=1)))
        hidden = F.relu(self.fc2(hidden))
        logits: Tensor = self.out(hidden)
        return logits


def _after_convolutions(side: int) -> int:
    return ((side - 4) // 2 - 4) // 2


def _cnn(_options: CnnOptions, in_shape: tuple[int, ...], num_classes: int) -> nn.Module:
    return Network(in_shape, num_classes)


def _mlp(options: MlpOptions, in_shape: tuple[int, ...], num_classes: int) -> nn.Module:
    return _linear_layers([math.prod(in_shape), *options.hidden, num_classes])


def _logistic(_options: LogisticOptions, in_shape: tuple[int, ...], num_classes: int) -> nn.Module:
    return _linear_layers([math.prod(in_shape), num_classes])


def _mlp_tower(options: MlpTowerOptions, in_shape: tuple[int, ...], num_classes: int) -> nn.Module:
    hidden = [4 * 2**number for number in range(options.depth - 1)]
    return _linear_layers([math.prod(in_shape), *hidden, num_classes])


def _linear_layers(widths: list[int]) -> nn.Sequential:
    layers: list[nn.Module] = [nn.Flatten()]
    for width_in, width_out in pairwise(widths):
        layers += [nn.Linear(width_in, width_out), nn.ReLU()]
    return nn.Sequential(*layers[:-1])


def _custom(
    target: Callable[..., Any], options: Mapping[str, Any], in_shape: tuple[int, ...], num_classes: int
) -> nn.Module:
    offered = dict(zip(MODEL_ARGUMENTS, (tuple(in_shape), num_classes), strict=True))
    model = call_target(target, options, offered, group="model")
    if isinstance(model, nn.Module):
        return model
    rule, got = "return a torch.nn.Module", f"{type(model).__name__} from {options['_target_']}"
    raise ConfigurationError([fault("model._target_", rule, got)])


_BUILDERS: dict[type, Callable[[Any, tuple[int, ...], int], nn.Module]] = {
    CnnOptions: _cnn,
    MlpOptions: _mlp,
    LogisticOptions: _logistic,
    MlpTowerOptions: _mlp_tower,
}

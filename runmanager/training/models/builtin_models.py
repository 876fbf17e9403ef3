"""The built-in models, and the creation of user-defined ones."""

import math
from collections.abc import Callable, Mapping
from itertools import pairwise
from typing import Any

import torch.nn.functional as F
from torch import Tensor, nn

from runmanager.errors import ConfigurationError, UsageError
from runmanager.training.custom_targets import call_target, resolve_target
from runmanager.training.models.pooling import max_pool_2x2
from runmanager.training.models.torchvision_models import build_torchvision_model
from runmanager.training.options.groups import (
    CnnOptions,
    LogisticOptions,
    MlpOptions,
    MlpTowerOptions,
    TorchvisionModelOptions,
)
from runmanager.validation import fault

__all__ = ["MODEL_ARGUMENTS", "Network", "build_model"]

MODEL_ARGUMENTS = ("in_shape", "num_classes")
"""Arguments that a user-defined model receives if it takes them."""

_MIN_CNN_SIDE = 16


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

"""The built-in models with their pooling, torchvision's classifiers, adapted to the images, and those of users."""

import importlib
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
from runmanager.training.options.groups import (
    CnnOptions,
    LogisticOptions,
    MlpOptions,
    MlpTowerOptions,
    TorchvisionModelOptions,
)
from runmanager.validation import fault, suggestion

# Without auxiliary heads the output is one tensor; an explicit `init_weights` avoids a warning.
_EXTRA_ARGUMENTS: dict[str, dict[str, Any]] = {
    name: {"aux_logits": False, "init_weights": True} for name in ("googlenet", "inception_v3")
}
_MIN_SIDE = 32  # five halvings
_MIN_SIDES = {"alexnet": 64, "inception_v3": 75}
# Architectures that need square images whose side is a multiple of a number.
_MULTIPLES = {"vit_b_16": 16, "vit_b_32": 32, "vit_l_16": 16, "vit_l_32": 32, "vit_h_14": 14, "maxvit_t": 224}


def import_torchvision() -> Any:
    """Import torchvision, only when it is used, because that takes a second.

    Raises `UsageError` if it is missing or was built for another PyTorch.
    """
    try:
        torchvision = importlib.import_module("torchvision")
    except (ImportError, RuntimeError) as error:
        raise UsageError(
            f"torchvision must fit PyTorch {torch.__version__}, but cannot be imported ({error}); "
            "install both from the same index (`runmanager doctor` shows more)."
        ) from error
    return torchvision


def architecture_faults(architecture: str) -> list[str]:
    """Check that torchvision has a classifier of this name; the fault suggests close names."""
    models = import_torchvision().models
    known = models.list_models(module=models)
    if architecture in known:
        return []
    return [
        fault(
            "model.architecture", "be a classifier of torchvision.models", architecture, suggestion(architecture, known)
        )
    ]


def build_torchvision_model(
    options: TorchvisionModelOptions, *, in_shape: tuple[int, ...], num_classes: int
) -> nn.Module:
    """Create the classifier for images of `in_shape` (channels, height, width), with new weights.

    Its first convolution is adapted to the number of channels. Images that are too small, or do not have the side that
    it needs, are resized first. Raises `ConfigurationError` for an unknown name, an unsupported `input_size`, and
    samples that are not images.
    """
    faults = architecture_faults(options.architecture)
    if len(in_shape) != 3:
        way_out = "use `model=mlp`, or a dataset of images"
        faults.append(fault("model", "take images (channels, height, width)", f"samples of shape {in_shape}", way_out))
    if not faults and options.input_size is not None:
        faults = _size_faults(options.architecture, options.input_size)
    if faults:
        raise ConfigurationError(faults)
    channels, height, width = in_shape
    side = options.input_size or _resized_side(options.architecture, height, width)
    extra = dict(_EXTRA_ARGUMENTS.get(options.architecture, {}))
    if options.architecture.startswith("vit"):
        extra["image_size"] = side
    if options.architecture.startswith("maxvit"):
        extra["input_size"] = (side, side)
    models = import_torchvision().models
    network = models.get_model(options.architecture, weights=None, num_classes=num_classes, **extra)
    _fit_channels(network, channels)
    return network if side is None or (height, width) == (side, side) else Resized(network, side)


def _min_side(architecture: str) -> tuple[int, int]:
    """The smallest side that an architecture supports, and the number of which the side must be a multiple."""
    multiple = _MULTIPLES.get(architecture, 1)
    return math.ceil(_MIN_SIDES.get(architecture, _MIN_SIDE) / multiple) * multiple, multiple


def _resized_side(architecture: str, height: int, width: int) -> int | None:
    """The side of the square to resize to; None if the images need no resizing."""
    smallest, multiple = _min_side(architecture)
    if multiple == 1 and min(height, width) >= smallest:
        return None
    return math.ceil(max(height, width, smallest) / multiple) * multiple


def _size_faults(architecture: str, side: int) -> list[str]:
    smallest, multiple = _min_side(architecture)
    if side >= smallest and side % multiple == 0:
        return []
    rule = (
        f"be at least {smallest}" + (f" and a multiple of {multiple}" if multiple > 1 else "") + f" for {architecture}"
    )
    return [fault("model.input_size", rule, side, "null chooses the side")]


def _fit_channels(network: nn.Module, channels: int) -> None:
    """Replace the first convolution by one with `channels` inputs, whose outputs have the same scale."""
    name, first = next((name, each) for name, each in network.named_modules() if isinstance(each, nn.Conv2d))
    if first.in_channels == channels:
        return
    replacement = nn.Conv2d(
        channels,
        first.out_channels,
        kernel_size=first.kernel_size,  # type: ignore[arg-type]  # a pair, typed as a tuple of any length
        stride=first.stride,  # type: ignore[arg-type]  # so is this one
        padding=first.padding,  # type: ignore[arg-type]  # and this
        bias=first.bias is not None,
    )
    with torch.no_grad():
        replacement.weight.normal_().mul_(first.weight.std() * math.sqrt(first.in_channels / channels))
        if first.bias is not None and replacement.bias is not None:
            replacement.bias.copy_(first.bias)
    owner, _, attribute = name.rpartition(".")
    setattr(network.get_submodule(owner), attribute, replacement)


class Resized(nn.Module):
    """A network whose images are first resized to (`side`, `side`), bilinearly."""

    def __init__(self, network: nn.Module, side: int) -> None:
        super().__init__()
        self.network = network
        self.side = side

    def forward(self, images: Tensor) -> Tensor:
        """Logits (batch, classes) of images (batch, channels, height, width)."""
        shrinks = min(images.shape[-2:]) > self.side
        resized = F.interpolate(images, size=(self.side, self.side), mode="bilinear", antialias=shrinks)
        logits: Tensor = self.network(resized)
        return logits


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

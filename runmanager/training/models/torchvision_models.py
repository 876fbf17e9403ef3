"""torchvision's classifiers, untrained and adapted to the images."""

import importlib
import math
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from runmanager.errors import ConfigurationError, UsageError
from runmanager.training.options.groups import TorchvisionModelOptions
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

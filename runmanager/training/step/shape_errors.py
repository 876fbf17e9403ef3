"""Readable errors for a batch that does not fit the network: which tensor is wrong, and what to change."""

from collections.abc import Iterator
from contextlib import contextmanager

import torch

from runmanager.errors import TensorMismatchError
from runmanager.text import pluralize

__all__ = ["explain_shape_errors"]

# PyTorch's messages about a tensor of the wrong shape contain one of these.
_SHAPE_WORDS = ("shape", "size", "dimension", "channels", "expected input", "3d", "4d")


@contextmanager
def explain_shape_errors(network: torch.nn.Module, images: torch.Tensor, labels: torch.Tensor) -> Iterator[None]:
    """Convert PyTorch's error about a batch (images, labels) to a `TensorMismatchError` if the cause is clear."""
    try:
        yield
    except (RuntimeError, IndexError, ValueError) as error:
        if isinstance(error, torch.OutOfMemoryError):
            raise
        cause = _wrong_device(network, images, labels) or _wrong_classes(network, images, labels, error)
        cause = cause or _wrong_shape(network, images, error)
        if cause is None:
            raise
        raise TensorMismatchError(cause) from error


def _wrong_device(network: torch.nn.Module, images: torch.Tensor, labels: torch.Tensor) -> str | None:
    parameter = next(network.parameters(), None)
    for name, tensor in (("images", images), ("labels", labels)):
        expected = images.device if parameter is None else parameter.device
        if tensor.device != expected:
            owner = "the network's parameters" if parameter is not None else "the images"
            return (
                f"The {name} must be on the device of {owner}, {expected}, got {tensor.device}; "
                f"move them with {name}.to('{expected}')."
            )
    return None


def _wrong_classes(
    network: torch.nn.Module, images: torch.Tensor, labels: torch.Tensor, error: Exception
) -> str | None:
    text = str(error).lower()
    if not any(word in text for word in ("out of bounds", "target", "scalar type")):
        return None
    of_pixels = labels.ndim > 2
    if labels.dtype not in (torch.int64, torch.uint8) or (labels.ndim != 1 and not of_pixels):
        shape, flattened = ("(batch, height, width)", "") if of_pixels else ("(batch,)", ".reshape(-1)")
        return (
            f"The labels must be class numbers, int64 of shape {shape}, got {labels.dtype} of shape "
            f"{tuple(labels.shape)}; convert them with labels.to(torch.int64){flattened}."
        )
    if len(labels) != len(images):
        got = f"{pluralize(len(labels), 'label')} and {pluralize(len(images), 'image')}"
        return f"A batch must have one label an image, got {got}."
    if "out of bounds" not in text:
        return None
    layers = [module for module in network.modules() if isinstance(module, torch.nn.Linear | torch.nn.Conv2d)]
    low, high = int(labels.min()), int(labels.max())
    outputs = (
        f"the network's last layer has {pluralize(_outputs(layers[-1]), 'output')}"
        if layers
        else "the network has fewer outputs"
    )
    return (
        f"The labels must be class numbers below the number of classes, got {low} to {high} where {outputs}; "
        "give the network as many outputs as there are classes, and count classes from 0."
    )


def _outputs(layer: torch.nn.Linear | torch.nn.Conv2d) -> int:
    return layer.out_features if isinstance(layer, torch.nn.Linear) else layer.out_channels


def _wrong_shape(network: torch.nn.Module, images: torch.Tensor, error: Exception) -> str | None:
    if not any(word in str(error).lower() for word in _SHAPE_WORDS):
        return None  # an error of the model itself; its first layer may not receive the images
    for name, module in network.named_modules():
        if isinstance(module, torch.nn.Conv2d):
            if images.ndim == 4 and images.shape[1] != module.in_channels:
                return (
                    f"The images must have {pluralize(module.in_channels, 'channel')} for the network's first layer "
                    f"({name}), got {images.shape[1]} (images {tuple(images.shape)}); build that layer with "
                    f"in_channels={images.shape[1]}."
                )
            return None
        if isinstance(module, torch.nn.Linear):
            features = images.numel() // max(images.shape[0], 1)
            if features != module.in_features:
                return (
                    f"A sample must have {pluralize(module.in_features, 'value')} for the network's first layer "
                    f"({name}), got {features} (images {tuple(images.shape)}); build that layer with "
                    f"in_features={features}."
                )
            if images.ndim != 2:
                return (
                    f"The network's first layer ({name}) takes flat samples (batch, {features}), got images "
                    f"{tuple(images.shape)}; begin the network with nn.Flatten()."
                )
            return None
    return None

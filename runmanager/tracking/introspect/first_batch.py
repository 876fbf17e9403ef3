"""A look at a loader's first batch that nobody notices: no random state moves, no worker starts, nothing is used up."""

from collections.abc import Sequence
from typing import Any

import torch
import torch.nn.functional as F
from torch.utils.data import DataLoader, IterableDataset

from runmanager.tracking.device.rng import preserve_random_states
from runmanager.tracking.device.transfer import DeviceDataLoader

__all__ = ["batch_images", "batch_inputs", "full_batch_size", "peek_batch"]

_PEEKED_SAMPLES = 64
_MAX_PIXELS = 64  # on a side: a grid of photographs would else take seconds to write, and megabytes


def peek_batch(loader: Any) -> Any | None:
    """Up to 64 samples as a batch, None where taking them could be noticed.

    A `DataLoader` is not iterated, which would draw random numbers and start workers: its dataset's first samples are
    collated. A list of batches gives its first. One-shot and unknown loaders are left alone, and so is a dataset that
    cannot be read at 0, 1, …: its keys may be others, and if it is broken the training will say so.
    """
    with preserve_random_states():
        if isinstance(loader, DeviceDataLoader):
            return peek_batch(loader.dl)
        if hasattr(loader, "first_samples"):
            return loader.first_samples(_PEEKED_SAMPLES)
        if isinstance(loader, DataLoader):
            try:
                return _from_dataset(loader)
            except Exception:  # somebody's dataset: anything may be raised
                return None
        if isinstance(loader, Sequence) and len(loader) > 0:
            return loader[0]
    return None


def _from_dataset(loader: DataLoader[Any]) -> Any | None:
    dataset = loader.dataset
    if isinstance(dataset, IterableDataset) or not hasattr(dataset, "__len__"):
        return None
    if loader.batch_sampler is None and len(dataset):
        return loader.collate_fn(dataset[0])  # a dataset of whole batches
    count = min(len(dataset), _PEEKED_SAMPLES, loader.batch_size or _PEEKED_SAMPLES)
    if count == 0:
        return None
    if hasattr(dataset, "__getitems__"):
        return loader.collate_fn(dataset.__getitems__(list(range(count))))
    return loader.collate_fn([dataset[index] for index in range(count)])


def full_batch_size(loader: Any) -> int | None:
    """How many samples a full batch of a loader has that can be peeked into; None where it does not say."""
    if isinstance(loader, DeviceDataLoader):
        return full_batch_size(loader.dl)
    if isinstance(loader, DataLoader) and loader.batch_sampler is not None:
        size = getattr(loader.batch_sampler, "batch_size", None)
        return min(size, len(loader.dataset)) if isinstance(size, int) else None  # type: ignore[arg-type]  # `peek_batch` has measured it
    if hasattr(loader, "first_samples"):
        size, count = getattr(loader, "batch_size", None), getattr(loader, "num_samples", None)
        return min(size, count) if isinstance(size, int) and isinstance(count, int) else None
    inputs = batch_inputs(peek_batch(loader))  # whole batches are what it is made of
    return None if inputs is None else len(inputs)


def batch_inputs(batch: Any) -> torch.Tensor | None:
    """A batch's first part, (batch, …), None where that is no tensor."""
    first = batch[0] if isinstance(batch, Sequence) and len(batch) else batch
    return first if isinstance(first, torch.Tensor) and first.ndim > 0 else None


def batch_images(batch: Any, count: int) -> torch.Tensor | None:
    """The first images of a batch, (count, 1 or 3, height, width), None where it holds none.

    They are uint8, or float32 in [0, 1]; large ones are made smaller, to 64 pixels on the longer side.
    """
    inputs = batch_inputs(batch)
    if inputs is None or inputs.ndim != 4 or inputs.shape[1] not in (1, 3):
        return None
    images = inputs[:count].detach().cpu()
    seen = _small(images.float())
    return seen.round().to(torch.uint8) if images.dtype == torch.uint8 else _visible(seen)


def _small(images: torch.Tensor) -> torch.Tensor:
    height, width = images.shape[2:]
    scale = _MAX_PIXELS / max(height, width, 1)
    if scale >= 1 or not len(images):
        return images
    return F.interpolate(images, size=(max(1, round(height * scale)), max(1, round(width * scale))), mode="area")


def _visible(images: torch.Tensor) -> torch.Tensor:
    """Images whose values were normalised, brought back into [0, 1]."""
    low, high = float(images.min()), float(images.max())
    if low >= 0 and high <= 1:
        return images
    return (images - low) / max(high - low, 1e-12)

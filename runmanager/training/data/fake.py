"""Random images with random labels: nothing to learn, everything to measure."""

import torch

from runmanager.training.data.arrays import ArrayDataset
from runmanager.training.data.splits import generator_for
from runmanager.training.options.dataset import FakeOptions

__all__ = ["fake_sets"]


def fake_sets(options: FakeOptions) -> tuple[ArrayDataset, ArrayDataset]:
    """Training and validation bytes of `in_shape`; they depend on nothing but the options."""
    return _samples(options, "training", options.size), _samples(options, "validation", options.val_size)


def _samples(options: FakeOptions, part: str, size: int) -> ArrayDataset:
    generator = generator_for("fake", part, options.data_seed)
    images = torch.empty((size, *options.in_shape), dtype=torch.uint8).random_(0, 256, generator=generator)
    return ArrayDataset(images, torch.randint(options.num_classes, (size,), generator=generator))

"""Generated datasets: points in a disc, which can be learned, and random images, which are only for timing."""

import math

import torch
from torch import Tensor

from runmanager.training.datasets.array_dataset import ArrayDataset
from runmanager.training.datasets.splits import generator_for
from runmanager.training.options.dataset import DiscOptions, FakeOptions

__all__ = ["disc_points", "disc_sets", "fake_sets"]

_DISC_CLASSES = ("outside", "inside")


def disc_points(num_points: int, generator: torch.Generator) -> tuple[Tensor, Tensor]:
    """Points (num_points, 2), uniform in the unit square, and labels: 1 within the disc of area 1/2.

    Source: "When to use GPU for training?" (Penny Xu, 2019).
    """
    points = torch.empty(num_points, 2).uniform_(0, 1, generator=generator)
    return points, (points.square().sum(dim=1) <= 1 / (2 * math.pi)).to(torch.int64)


def disc_sets(options: DiscOptions, *, seed: int) -> tuple[ArrayDataset, ArrayDataset]:
    """Training and validation points, normalised by the mean and standard deviation of all training coordinates.

    The two sets have the same size, unless `holdout` gives the share or the number of validation points.
    """
    generator = generator_for("disc", seed)
    points, labels = disc_points(options.size, generator)
    val_points, val_labels = disc_points(options.num_validation, generator)
    mean, deviation = points.mean(), points.std()
    training = ArrayDataset((points - mean) / deviation, labels, classes=_DISC_CLASSES)
    return training, ArrayDataset((val_points - mean) / deviation, val_labels, classes=_DISC_CLASSES)


def fake_sets(options: FakeOptions) -> tuple[ArrayDataset, ArrayDataset]:
    """Training and validation images of random bytes with shape `in_shape` and random labels, fixed by the options."""
    return _fake_samples(options, "training", options.size), _fake_samples(options, "validation", options.val_size)


def _fake_samples(options: FakeOptions, part: str, size: int) -> ArrayDataset:
    generator = generator_for("fake", part, options.data_seed)
    images = torch.empty((size, *options.in_shape), dtype=torch.uint8).random_(0, 256, generator=generator)
    return ArrayDataset(images, torch.randint(options.num_classes, (size,), generator=generator))

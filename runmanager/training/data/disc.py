"""The points of "When to use GPU for training?" (Penny Xu, 2019): inside or outside a disc around the origin."""

import math

import torch
from torch import Tensor

from runmanager.training.data.arrays import ArrayDataset
from runmanager.training.data.splits import generator_for
from runmanager.training.options.dataset import DiscOptions

__all__ = ["disc_points", "disc_sets"]

_CLASSES = ("outside", "inside")


def disc_points(num_points: int, generator: torch.Generator) -> tuple[Tensor, Tensor]:
    """Points (num_points, 2), uniform in the unit square, and labels: 1 within the disc of area 1/2."""
    points = torch.empty(num_points, 2).uniform_(0, 1, generator=generator)
    return points, (points.square().sum(dim=1) <= 1 / (2 * math.pi)).to(torch.int64)


def disc_sets(options: DiscOptions, *, seed: int) -> tuple[ArrayDataset, ArrayDataset]:
    """Training and validation points; both are normalised by the mean and deviation of all training coordinates.

    Validation has as many points as training, or with a `holdout` as many as make that part of all.
    """
    generator = generator_for("disc", seed)
    points, labels = disc_points(options.size, generator)
    further, further_labels = disc_points(options.num_validation, generator)
    mean, deviation = points.mean(), points.std()
    training = ArrayDataset((points - mean) / deviation, labels, classes=_CLASSES)
    return training, ArrayDataset((further - mean) / deviation, further_labels, classes=_CLASSES)

"""The points of the disc, and the random images."""

import math
from pathlib import Path

import pytest
import torch

from runmanager.training.datasets.array_dataset import generator_for
from runmanager.training.datasets.registry import disc_points, load_dataset
from runmanager.training.options.dataset import DiscOptions, FakeOptions


def load(options, seed=0):
    return load_dataset(options, data_root=Path("unused"), seed=seed)


def test_the_points_are_as_in_the_tutorial():
    points, labels = disc_points(20_000, torch.Generator().manual_seed(1))
    formula = points.pow(2).sum(1).sub(1 / (2 * math.pi)).sign().neg().add(1).div(2).ceil().long()
    assert torch.equal(labels, formula)
    # A quarter of a disc with area 1/2 is in the square.
    assert labels.float().mean().item() == pytest.approx(1 / 8, abs=0.01)


def test_validation_points_are_normalised_by_the_training_statistics():
    data = load(DiscOptions(size=5000))
    train, validation = data.train.tensors()[0], data.validation.tensors()[0]
    assert train.shape == validation.shape == (5000, 2)
    assert train.mean().item() == pytest.approx(0, abs=1e-5) and train.std().item() == pytest.approx(1, abs=1e-5)
    assert validation.mean().item() == pytest.approx(0, abs=0.05) and validation.mean() != 0
    assert data.in_shape == (2,) and data.num_classes == 2
    generator = generator_for("disc", 0)
    points, further = (disc_points(5000, generator)[0] for _ in range(2))
    assert torch.equal(validation, (further - points.mean()) / points.std())


def test_the_seed_decides_the_points_and_validation_has_others():
    first, again, other = (load(DiscOptions(), seed).train.tensors()[0] for seed in (0, 0, 1))
    assert torch.equal(first, again) and not torch.equal(first, other)
    data = load(DiscOptions())
    points = {tuple(point) for point in data.train.tensors()[0].tolist()}
    assert not points & {tuple(point) for point in data.validation.tensors()[0].tolist()}


@pytest.mark.parametrize(("holdout", "expected"), [(None, 400), (0.2, 100), (30, 30)])
def test_holdout(holdout, expected):
    data = load(DiscOptions(size=400, holdout=holdout))
    assert (len(data.train), len(data.validation)) == (400, expected)
    assert torch.equal(data.train.tensors()[0], load(DiscOptions(size=400)).train.tensors()[0])


def test_fake_images():
    options = FakeOptions(size=50, val_size=20, in_shape=[3, 8, 4], num_classes=5)
    data, again = load(options), load(options, seed=9)
    assert data.in_shape == (3, 8, 4) and data.num_classes == 5
    images, labels = data.train.tensors()
    assert images.shape == (50, 3, 8, 4) and len(data.validation) == 20
    assert set(labels.tolist()) <= set(range(5))
    assert torch.equal(images, again.train.tensors()[0])
    assert not torch.equal(images[:20], data.validation.tensors()[0])

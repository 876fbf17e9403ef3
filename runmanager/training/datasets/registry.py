"""Datasets by their options: preparation before the runs, loading in a run, and the generated ones."""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from torch.utils.data import Dataset

from runmanager.errors import UsageError
from runmanager.records.files.file_errors import creation_obstacle
from runmanager.tracking.epoch_metrics.prediction_task import IGNORED
from runmanager.training.custom_targets import resolve_target
from runmanager.training.datasets.array_dataset import ArrayDataset, generator_for
from runmanager.training.datasets.custom_dataset import custom_sets
from runmanager.training.datasets.digits import digits_are_cached, digits_sets
from runmanager.training.datasets.torchvision_files import (
    SOURCES,
    download,
    missing_files,
    report_missing,
    unwritable_folder,
    vision_sets,
)
from runmanager.training.options.dataset import DigitsOptions, DiscOptions, FakeOptions, VisionOptions

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


@dataclass(frozen=True)
class Data:
    """Training and validation samples: (float32 tensor of `in_shape`, label below `num_classes`).

    A label has `label_shape`, () unless it is an image or several numbers. `num_classes` is 0 if labels do not
    number classes and the dataset names no number of classes.
    """

    train: Dataset[Any]
    validation: Dataset[Any]
    in_shape: tuple[int, ...]
    num_classes: int
    label_shape: tuple[int, ...] = ()


def prepare_dataset(options: Any, *, data_root: Path) -> None:
    """Download or build the data that `load_dataset` reads, once before all runs; report a download on stderr.

    `options` is one of the dataset dataclasses, or a mapping with `_target_` for a user-defined dataset, whose target
    is only looked up. If the files exist, nothing is written. Raises `DatasetError` if the data folder cannot be
    written or the files cannot be downloaded, `ConfigurationError` if a target is not found.
    """
    if isinstance(options, Mapping):
        resolve_target(options, group="dataset")
    elif isinstance(options, VisionOptions):
        download(options.name, data_root=data_root.expanduser())
    elif isinstance(options, DigitsOptions) and options.holdout is None and not digits_are_cached(options, seed=0):
        digits_sets(options, seed=0)  # with a holdout they depend on the seed, so each run builds them


def must_be_downloaded(options: Any, *, data_root: Path) -> bool:
    """Whether `prepare_dataset` would download the dataset."""
    return isinstance(options, VisionOptions) and bool(missing_files(SOURCES[options.name], data_root.expanduser()))


def download_faults(options: VisionOptions, *, data_root: Path) -> list[str]:
    """Return what would keep `prepare_dataset` from downloading the dataset, without writing anything.

    Where nothing is known to, report on stderr that a run downloads it.
    """
    problem = creation_obstacle(data_root.expanduser())
    if problem:
        return [str(unwritable_folder(options.name, data_root.expanduser(), problem))]
    report_missing(options.name, data_root=data_root.expanduser())
    return []


def load_dataset(options: Any, *, data_root: Path, seed: int, ignored: int = IGNORED) -> Data:
    """Load the samples of a run; nothing is downloaded.

    `seed` decides which samples `holdout` holds out and `size` keeps, and the points of `disc`. The label `ignored` is
    no class. Raises `DatasetError` if files are missing or damaged, or more samples are requested than exist.
    """
    if isinstance(options, Mapping):
        return Data(*custom_sets(options, data_root=data_root.expanduser(), seed=seed, ignored=ignored))
    if isinstance(options, DigitsOptions):
        return Data(*digits_sets(options, seed=seed), in_shape=(1, 28, 28), num_classes=10)
    if isinstance(options, DiscOptions):
        return Data(*disc_sets(options, seed=seed), in_shape=(2,), num_classes=2)
    if isinstance(options, FakeOptions):
        return Data(*fake_sets(options), in_shape=tuple(options.in_shape), num_classes=options.num_classes)
    if isinstance(options, VisionOptions) and options.name in SOURCES:
        source = SOURCES[options.name]
        sets = vision_sets(options, data_root=data_root.expanduser(), seed=seed)
        return Data(*sets, in_shape=source.shape, num_classes=source.num_classes)
    raise UsageError(
        f"The dataset's options must be a dataset dataclass or a mapping with `_target_`, got {options!r}."
    )

"""Datasets by their options: preparation before the runs, loading in a run, the generated ones and those of users."""

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.utils.data import Dataset, IterableDataset

from runmanager.errors import ConfigurationError, DatasetError, UsageError
from runmanager.records.files.file_errors import creation_obstacle
from runmanager.tracking.epoch_metrics.prediction_task import IGNORED
from runmanager.training.custom_targets import call_target, parameter_names, resolve_target
from runmanager.training.datasets.array_dataset import (
    ArrayDataset,
    as_arrays,
    base_dataset,
    generator_for,
    hold_out,
    random_subset,
)
from runmanager.training.datasets.digits import digits_are_cached, digits_sets
from runmanager.training.datasets.torchvision_files import (
    SOURCES,
    download,
    missing_files,
    report_missing,
    unwritable_folder,
    vision_sets,
)
from runmanager.training.options.dataset import DigitsOptions, DiscOptions, FakeOptions, VisionOptions, holdout_faults
from runmanager.validation import range_faults

_DEFAULT_HOLDOUT = 0.2
_OWN_SETTINGS = ("holdout", "size", "num_classes")  # applied here unless the target takes them


def custom_sets(
    options: Mapping[str, Any], *, data_root: Path, seed: int, ignored: int = IGNORED
) -> tuple[Dataset[Any], Dataset[Any], tuple[int, ...], int, tuple[int, ...]]:
    """Create both sets of samples; return them with the shape of a sample, the number of classes, a label's shape.

    A target that takes `train` is called with True and with False; any other is called once and split by
    `dataset.holdout` (default 0.2). `root` and `data_root` receive the data folder. `dataset.size` and
    `dataset.num_classes` are passed to a target that takes them, and applied here otherwise. The number of classes is
    `dataset.num_classes`, or comes from the dataset's `num_classes` or `classes`, or from the largest label other than
    `ignored`; it is 0 for floating-point labels without it. Known in-memory datasets are converted to `ArrayDataset`.

    Raises `ConfigurationError` if the target cannot be called this way, `DatasetError` for samples that are not pairs
    of a tensor and a number or tensor.
    """
    target = resolve_target(options, group="dataset")
    taken = parameter_names(target)
    unset = {key for key in _OWN_SETTINGS if options.get(key) is None}
    own = {key: options[key] for key in _OWN_SETTINGS if key not in unset and key not in taken}
    _check(own)
    passed = {key: value for key, value in options.items() if key not in own and key not in unset}
    parts = _create_parts(target, passed, own.get("holdout"), data_root=data_root, seed=seed)
    classes = _declared_classes(options, parts[0])
    training, validation = (as_arrays(part) for part in parts)
    inputs, label = _first_sample(training, str(options["_target_"]))
    if classes is None:
        classes = 0
        if not label.is_floating_point():
            classes = 1 + max(_largest_label(part, ignored) for part in (training, validation))
    training = random_subset(training, own.get("size"), seed=seed, name=str(options["_target_"]))
    return training, validation, tuple(inputs.shape), classes, tuple(label.shape)


def _check(own: Mapping[str, Any]) -> None:
    faults = holdout_faults(own.get("holdout"))
    for key in ("size", "num_classes"):
        if own.get(key) is not None and not isinstance(own[key], int):
            faults.append(f"`dataset.{key}` must be a whole number, got {own[key]}.")
        else:
            faults += range_faults(f"dataset.{key}", own.get(key), ge=1)
    if faults:
        raise ConfigurationError(faults)


def _create_parts(
    target: Callable[..., Any], passed: Mapping[str, Any], holdout: int | float | None, *, data_root: Path, seed: int
) -> tuple[Dataset[Any], Dataset[Any]]:
    offered: dict[str, Any] = {"root": data_root, "data_root": data_root}
    if "train" not in parameter_names(target) or "train" in passed:
        whole = _create(target, passed, offered)
        return hold_out(whole, _DEFAULT_HOLDOUT if holdout is None else holdout, seed=seed)
    training = _create(target, passed, offered | {"train": True})
    if holdout is not None:
        return hold_out(training, holdout, seed=seed)
    return training, _create(target, passed, offered | {"train": False})


def _create(target: Callable[..., Any], passed: Mapping[str, Any], offered: Mapping[str, Any]) -> Dataset[Any]:
    dataset = call_target(target, passed, offered, group="dataset")
    is_readable = hasattr(dataset, "__len__") and hasattr(dataset, "__getitem__")
    if not is_readable or isinstance(dataset, IterableDataset):
        raise DatasetError(
            f"{passed['_target_']} must make a dataset with a length and indexed samples, got a "
            f"{type(dataset).__name__}; give it `__len__` and `__getitem__`."
        )
    if len(dataset) == 0:
        raise DatasetError(f"{passed['_target_']} must make a dataset with samples, got an empty one.")
    created: Dataset[Any] = dataset
    return created


def _first_sample(dataset: Dataset[Any], name: str) -> tuple[Tensor, Tensor]:
    sample = dataset[0]
    if isinstance(sample, tuple | list) and len(sample) == 2 and isinstance(sample[0], Tensor):
        label = sample[1]
        if isinstance(label, int | float | np.generic | np.ndarray):
            label = torch.as_tensor(label)
        if isinstance(label, Tensor) and not label.is_complex():
            return sample[0], label
    got = (
        ", ".join(type(each).__name__ for each in sample) if isinstance(sample, tuple | list) else type(sample).__name__
    )
    raise DatasetError(
        f"The samples of {name} must be pairs of a tensor and a label (a number or a tensor), got ({got}); "
        "convert the images to tensors in its `__getitem__`."
    )


def _declared_classes(options: Mapping[str, Any], training: Dataset[Any]) -> int | None:
    if options.get("num_classes") is not None:
        return int(options["num_classes"])
    base: Any = base_dataset(training)  # a Subset does not have these attributes
    if isinstance(getattr(base, "num_classes", None), int):
        return int(base.num_classes)
    return None if getattr(base, "classes", None) is None else len(base.classes)


def _largest_label(dataset: Dataset[Any], ignored: int) -> int:
    """The largest label other than `ignored`; -1 if there is none."""
    if isinstance(dataset, ArrayDataset):
        return _largest(dataset.tensors()[1], ignored)
    count = len(dataset)  # type: ignore[arg-type]  # `_create` has checked the length
    return max(_largest(torch.as_tensor(dataset[index][1]), ignored) for index in range(count))


def _largest(labels: Tensor, ignored: int) -> int:
    counted = labels[labels != ignored]
    return int(counted.max()) if counted.numel() else -1


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

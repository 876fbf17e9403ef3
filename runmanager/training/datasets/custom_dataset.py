"""User-defined datasets: creation by their target, splitting, sample shape and number of classes."""

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.utils.data import Dataset, IterableDataset

from runmanager.errors import ConfigurationError, DatasetError
from runmanager.tracking.epoch_metrics.prediction_task import IGNORED
from runmanager.training.custom_targets import call_target, parameter_names, resolve_target
from runmanager.training.datasets.array_dataset import ArrayDataset, as_arrays, base_dataset, hold_out, random_subset
from runmanager.training.options.dataset import holdout_faults
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

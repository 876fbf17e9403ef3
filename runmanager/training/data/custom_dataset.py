"""Somebody's own dataset: made by its target, split, and asked for its shape and classes."""

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from torch.utils.data import Dataset, IterableDataset

from runmanager.errors import ConfigurationError, DatasetError
from runmanager.training.data.array_dataset import ArrayDataset, as_arrays, base_dataset
from runmanager.training.data.splits import hold_out, random_subset
from runmanager.training.options.dataset import holdout_faults
from runmanager.training.targets import call_target, parameter_names, resolve_target
from runmanager.validation import range_faults

__all__ = ["custom_sets"]

_DEFAULT_HOLDOUT = 0.2
_OURS = ("holdout", "size", "num_classes")  # settings that are ours where the target does not take them


def custom_sets(
    options: Mapping[str, Any], *, data_root: Path, seed: int
) -> tuple[Dataset[Any], Dataset[Any], tuple[int, ...], int]:
    """Training samples, validation samples, the shape of one, and the number of classes.

    A target that takes `train` is called with True and with False; any other is called once and split by
    `dataset.holdout` (0.2 unless set). `root` or `data_root` get the data folder. `dataset.size` and
    `dataset.num_classes` are passed to a target that takes them, else they are applied here. The classes are told by
    `dataset.num_classes`, by the dataset's `num_classes` or `classes`, or else by the greatest label. What is known to
    lie in memory comes as an `ArrayDataset`.

    Raises `ConfigurationError` for a target that cannot be called so, `DatasetError` for samples that are not
    (tensor, int) pairs.
    """
    target = resolve_target(options, group="dataset")
    taken = parameter_names(target)
    unset = {key for key in _OURS if options.get(key) is None}
    ours = {key: options[key] for key in _OURS if key not in unset and key not in taken}
    _check(ours)
    passed = {key: value for key, value in options.items() if key not in ours and key not in unset}
    made = _made(target, passed, ours.get("holdout"), data_root=data_root, seed=seed)
    classes = _told_classes(options, made[0])
    training, validation = (as_arrays(part) for part in made)
    shape = _sample_shape(training, str(options["_target_"]))
    if classes is None:
        classes = 1 + max(int(_labels(part).max()) for part in (training, validation))
    training = random_subset(training, ours.get("size"), seed=seed, name=str(options["_target_"]))
    return training, validation, shape, classes


def _check(ours: Mapping[str, Any]) -> None:
    faults = holdout_faults(ours.get("holdout"))
    for key in ("size", "num_classes"):
        if ours.get(key) is not None and not isinstance(ours[key], int):
            faults.append(f"`dataset.{key}` must be a whole number, got {ours[key]}.")
        else:
            faults += range_faults(f"dataset.{key}", ours.get(key), ge=1)
    if faults:
        raise ConfigurationError(faults)


def _made(
    target: Callable[..., Any], passed: Mapping[str, Any], holdout: int | float | None, *, data_root: Path, seed: int
) -> tuple[Dataset[Any], Dataset[Any]]:
    offered: dict[str, Any] = {"root": data_root, "data_root": data_root}
    if "train" not in parameter_names(target) or "train" in passed:
        whole = _called(target, passed, offered)
        return hold_out(whole, _DEFAULT_HOLDOUT if holdout is None else holdout, seed=seed)
    training = _called(target, passed, offered | {"train": True})
    if holdout is not None:
        return hold_out(training, holdout, seed=seed)
    return training, _called(target, passed, offered | {"train": False})


def _called(target: Callable[..., Any], passed: Mapping[str, Any], offered: Mapping[str, Any]) -> Dataset[Any]:
    dataset = call_target(target, passed, offered, group="dataset")
    readable = hasattr(dataset, "__len__") and hasattr(dataset, "__getitem__")
    if not readable or isinstance(dataset, IterableDataset):
        raise DatasetError(
            f"{passed['_target_']} must make a dataset with a length and samples by number, got a "
            f"{type(dataset).__name__}; give it `__len__` and `__getitem__`."
        )
    if len(dataset) == 0:
        raise DatasetError(f"{passed['_target_']} must make a dataset with samples, got an empty one.")
    made: Dataset[Any] = dataset
    return made


def _sample_shape(dataset: Dataset[Any], name: str) -> tuple[int, ...]:
    sample = dataset[0]
    if isinstance(sample, tuple | list) and len(sample) == 2 and isinstance(sample[0], Tensor):
        label = sample[1]
        if isinstance(label, int) or (isinstance(label, Tensor) and label.ndim == 0 and not label.is_floating_point()):
            return tuple(sample[0].shape)
    got = (
        ", ".join(type(each).__name__ for each in sample) if isinstance(sample, tuple | list) else type(sample).__name__
    )
    raise DatasetError(
        f"The samples of {name} must be (tensor, int) pairs, got ({got}); "
        "make tensors of the images in its `__getitem__`."
    )


def _told_classes(options: Mapping[str, Any], training: Dataset[Any]) -> int | None:
    if options.get("num_classes") is not None:
        return int(options["num_classes"])
    owner: Any = base_dataset(training)  # a Subset says nothing itself
    if isinstance(getattr(owner, "num_classes", None), int):
        return int(owner.num_classes)
    return None if getattr(owner, "classes", None) is None else len(owner.classes)


def _labels(dataset: Dataset[Any]) -> Tensor:
    if isinstance(dataset, ArrayDataset):
        return dataset.tensors()[1]
    count = len(dataset)  # type: ignore[arg-type]  # `_called` has seen to the length
    return torch.tensor([int(dataset[index][1]) for index in range(count)])

"""Somebody's own datasets that lie in memory: taken as tensors, where a sample is no more than a row of them."""

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor
from torch.utils.data import Dataset, Subset, TensorDataset

from runmanager.training.data.arrays import ArrayDataset, as_floats, as_stored

__all__ = ["as_arrays", "owner_of", "transform_of"]

# Whose samples are read from `data` and `targets`: a class that reads otherwise defines how itself.
_TORCHVISION_READERS = (("torchvision.datasets.mnist", "MNIST"), ("torchvision.datasets.cifar", "CIFAR10"))
_TO_TENSOR = ("torchvision.transforms.transforms", "ToTensor")


def as_arrays(dataset: Dataset[Any]) -> Dataset[Any]:
    """The same samples as an `ArrayDataset`, bit for bit, where that is known to be so; else the dataset itself.

    Known are a `TensorDataset` of inputs and whole-numbered labels, torchvision's MNIST and CIFAR families without a
    transform or with `ToTensor` alone, and a `Subset` of these. Without a transform torchvision's samples are no
    tensors; they become those that `ToTensor` would make.
    """
    known: Any = dataset
    reader, classes = _reader(dataset), getattr(dataset, "classes", None)
    if reader is TensorDataset and _is_plain(known.tensors):
        return ArrayDataset(*known.tensors, unpack=as_stored, classes=classes)
    if _is_of_torchvision(reader) and _only_scales(known):
        labels = torch.as_tensor(known.targets)
        return ArrayDataset(_images(known.data), labels, unpack=as_floats, classes=classes)
    if type(dataset) is Subset and min(dataset.indices, default=0) >= 0:
        whole = as_arrays(dataset.dataset)
        return whole.take(dataset.indices) if isinstance(whole, ArrayDataset) else dataset
    return dataset


def transform_of(dataset: Dataset[Any]) -> str | None:
    """The names of a dataset's transforms, in their order; None where it has none that can be seen."""
    names = [getattr(step, "__name__", type(step).__name__) for step in _transforms(owner_of(dataset))]
    return ", ".join(names) or None


def owner_of(dataset: Dataset[Any]) -> Dataset[Any]:
    """The dataset whose samples these are: that of a `Subset`, of whatever depth."""
    return owner_of(dataset.dataset) if isinstance(dataset, Subset) else dataset


def _reader(dataset: Dataset[Any]) -> type | None:
    """The class that says how samples are read and counted; None where these are two, or batches are read."""
    kinds = type(dataset).__mro__
    owners = {next((each for each in kinds if name in vars(each)), None) for name in ("__getitem__", "__len__")}
    return owners.pop() if len(owners) == 1 and not hasattr(dataset, "__getitems__") else None


def _is_of_torchvision(reader: type | None) -> bool:
    return reader is not None and (reader.__module__, reader.__qualname__) in _TORCHVISION_READERS


def _is_plain(tensors: Sequence[Tensor]) -> bool:
    """Whether these are inputs and labels in the CPU's memory that no gradient is asked of."""
    if len(tensors) != 2 or any(each.device.type != "cpu" or each.requires_grad for each in tensors):
        return False
    labels = tensors[1]
    return labels.ndim == 1 and not labels.is_floating_point() and not labels.is_complex()


def _images(data: Any) -> Tensor:
    """The bytes of torchvision's images, (samples, channels, height, width)."""
    images = torch.as_tensor(data)
    return images.unsqueeze(1) if images.ndim == 3 else images.permute(0, 3, 1, 2).contiguous()


def _only_scales(dataset: Any) -> bool:
    """Whether what is done to torchvision's images makes no more of them than `as_floats` does: nothing, or ToTensor.

    Not so the newer `v2.ToDtype(scale=True)`: it multiplies by a rounded 1/255, and its last bit is another one.
    """
    steps = [] if dataset.transform is None else _flat(dataset.transform)
    if dataset.target_transform is not None or len(steps) > 1:
        return False
    return all((type(step).__module__, type(step).__name__) == _TO_TENSOR for step in steps)


def _transforms(dataset: Any) -> list[Any]:
    """The transforms of a dataset that has them as torchvision's do, one after the other."""
    separate = [getattr(dataset, name, None) for name in ("transform", "target_transform")]
    together = getattr(dataset, "transforms", None)
    found = [each for each in separate if each is not None] or ([] if together is None else [together])
    return [step for each in found for step in _flat(each)]


def _flat(transform: Any) -> list[Any]:
    steps = getattr(transform, "transforms", None) if type(transform).__name__ == "Compose" else None
    return [transform] if steps is None else [step for each in steps for step in _flat(each)]

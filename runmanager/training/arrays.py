"""A dataset that lies in two tensors, and is read a whole batch at a time."""

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor
from torch.utils.data import Dataset, Subset, default_collate

from runmanager.errors import DatasetError

__all__ = ["ArrayDataset", "as_floats", "collate_pairs", "subset"]


def as_floats(images: Tensor) -> Tensor:
    """Images as float32: bytes become numbers in [0, 1], floating-point numbers stay what they are."""
    if images.dtype == torch.uint8:
        return images.to(torch.float32).div_(255)
    return images.to(torch.float32)


def collate_pairs(samples: list[Any]) -> tuple[Tensor, Tensor]:
    """A batch of any dataset's (tensor, int) samples: (batch, …) and (batch,), int64."""
    images, labels = default_collate(samples)
    return images, labels


class ArrayDataset(Dataset[tuple[Tensor, Tensor]]):
    """Samples in memory: `images` (samples, …), uint8 or floating point, and `labels` (samples,), int64.

    A sample is (float32 tensor, int64 scalar tensor). Raises `DatasetError` where the two lengths differ.
    """

    def __init__(self, images: Tensor, labels: Tensor) -> None:
        if len(images) != len(labels):
            raise DatasetError(f"A dataset must have one label an image, got {len(images)} and {len(labels)}.")
        self._images = images
        self._labels = labels.to(torch.int64)

    def __len__(self) -> int:
        return len(self._labels)

    def __getitem__(self, index: int) -> tuple[Tensor, Tensor]:
        # A clone, so that a transform in place leaves the dataset alone.
        return as_floats(self._images[index].clone()), self._labels[index].clone()

    def __getitems__(self, indices: Sequence[int]) -> tuple[Tensor, Tensor]:
        """The whole batch: images (batch, …), float32, and labels (batch,), int64."""
        chosen = torch.as_tensor(indices, dtype=torch.int64)
        return as_floats(self._images[chosen]), self._labels[chosen]

    @staticmethod
    def collate(batch: Any) -> Any:
        """Pass on what `__getitems__` has put together already."""
        return batch

    def tensors(self) -> tuple[Tensor, Tensor]:
        """All images as they are stored, and all labels; `as_floats` makes of them what a batch holds."""
        return self._images, self._labels

    def take(self, indices: Sequence[int]) -> "ArrayDataset":
        """The samples at `indices`, in that order."""
        chosen = torch.as_tensor(indices, dtype=torch.int64)
        return ArrayDataset(self._images[chosen], self._labels[chosen])


def subset(dataset: Dataset[Any], indices: Sequence[int]) -> Dataset[Any]:
    """The samples of any dataset at `indices`, in that order; arrays stay arrays."""
    return dataset.take(indices) if isinstance(dataset, ArrayDataset) else Subset(dataset, indices)

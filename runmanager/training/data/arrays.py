"""A dataset that lies in two tensors, and is read a whole batch at a time."""

from collections.abc import Callable, Sequence
from functools import cache
from typing import Any

import torch
from torch import Tensor
from torch.utils.data import Dataset, Subset, default_collate

from runmanager.errors import DatasetError

__all__ = ["ArrayDataset", "Unpack", "as_floats", "as_stored", "collate_pairs", "subset"]

Unpack = Callable[[Tensor], Tensor]
"""Makes of stored inputs (batch, …) what a batch holds, on whatever device they lie."""


def as_floats(images: Tensor) -> Tensor:
    """Images as float32: bytes become numbers in [0, 1], floating-point numbers stay what they are.

    The same numbers on every device: each is the float32 nearest to byte/255.
    """
    if images.dtype != torch.uint8:
        return images.to(torch.float32)
    return images.to(torch.float32).div_(_largest_byte(images.device))


@cache
def _largest_byte(device: torch.device) -> Tensor:
    """255 as a tensor: by a plain number CUDA divides by multiplying with its rounded reciprocal.

    Made once: to make it is a launch, and a batch has few of them where steps are captured.
    """
    return torch.full((), 255.0, device=device)


def as_stored(inputs: Tensor) -> Tensor:
    """The inputs as they are: somebody's own, who knows what they stand for."""
    return inputs


def collate_pairs(samples: list[Any]) -> tuple[Tensor, Tensor]:
    """A batch of any dataset's (tensor, int) samples: (batch, …) and (batch,), int64."""
    inputs, labels = default_collate(samples)
    return inputs, labels.to(torch.int64)


class ArrayDataset(Dataset[tuple[Tensor, Tensor]]):
    """Samples in memory: `images` (samples, …), uint8 or floating point, and `labels` (samples,), int64.

    A sample is (tensor, int64 scalar tensor): what `unpack` makes of the stored image. `classes` are the names of the
    classes, where they have some. Raises `DatasetError` where the two lengths differ.
    """

    def __init__(
        self,
        images: Tensor,
        labels: Tensor,
        *,
        unpack: Unpack = as_floats,
        classes: Sequence[str] | None = None,
    ) -> None:
        if len(images) != len(labels):
            raise DatasetError(f"A dataset must have one label an image, got {len(images)} and {len(labels)}.")
        self._images = images
        self._labels = labels.to(torch.int64)
        self.unpack = unpack
        self.classes = classes

    def __len__(self) -> int:
        return len(self._labels)

    def __getitem__(self, index: int) -> tuple[Tensor, Tensor]:
        # A clone, so that a transform in place leaves the dataset alone.
        return self.unpack(self._images[index].clone()), self._labels[index].clone()

    def __getitems__(self, indices: Sequence[int]) -> tuple[Tensor, Tensor]:
        """The whole batch: images (batch, …) and labels (batch,), int64."""
        images, labels = self.gather(torch.as_tensor(indices, dtype=torch.int64))
        return self.unpack(images), labels

    def gather(self, indices: Tensor) -> tuple[Tensor, Tensor]:
        """Copies of the samples at `indices` (batch,), int64, on the dataset's device: images as stored, and labels."""
        # Copies whole rows; indexing by a tensor goes value by value, and takes several times as long.
        return self._images.index_select(0, indices), self._labels.index_select(0, indices)

    def tensors(self) -> tuple[Tensor, Tensor]:
        """All images as they are stored, and all labels; `unpack` makes of them what a batch holds."""
        return self._images, self._labels

    def take(self, indices: Sequence[int]) -> "ArrayDataset":
        """The samples at `indices`, in that order."""
        return self._alike(*self.gather(torch.as_tensor(indices, dtype=torch.int64)))

    def to(self, device: torch.device) -> "ArrayDataset":
        """The same samples on `device`; where they lie there already, the same tensors."""
        return self._alike(self._images.to(device), self._labels.to(device))

    def _alike(self, images: Tensor, labels: Tensor) -> "ArrayDataset":
        return ArrayDataset(images, labels, unpack=self.unpack, classes=self.classes)


def subset(dataset: Dataset[Any], indices: Sequence[int]) -> Dataset[Any]:
    """The samples of any dataset at `indices`, in that order; arrays stay arrays."""
    return dataset.take(indices) if isinstance(dataset, ArrayDataset) else Subset(dataset, indices)

"""The loader whose whole set lies on the training device: no worker, no transfer, no waiting."""

import math
from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor
from torch.utils.data import Dataset

from runmanager.training.arrays import ArrayDataset, as_floats, collate_pairs
from runmanager.training.orders import epoch_order

__all__ = ["ResidentLoader"]

_CHUNK_BYTES = 256 * 2**20


class ResidentLoader:
    """Batches cut from tensors on `device`, as an `EpochLoader`.

    Bytes stay bytes until they are used, which takes a quarter of the memory. A dataset that is no `ArrayDataset` is
    read once, sample by sample, so that a random transform of it is drawn only once.
    """

    def __init__(
        self, dataset: Dataset[Any], batch_size: int, *, shuffle: bool, seed: int, device: torch.device
    ) -> None:
        images, labels = _whole(dataset)
        self._images = images.to(device)
        self._labels = labels.to(device)
        self.batch_size = batch_size
        self._shuffle = shuffle
        self._seed = seed
        self._epoch = 1
        self.num_samples = len(labels)

    def __len__(self) -> int:
        return math.ceil(self.num_samples / self.batch_size)

    def __iter__(self) -> Iterator[tuple[Tensor, Tensor]]:
        order = None
        if self._shuffle:
            drawn = epoch_order(self.num_samples, seed=self._seed, epoch=self._epoch)
            order = drawn.to(self._images.device)
        length = self._batches_a_chunk() * self.batch_size
        for start in range(0, self.num_samples, length):
            images, labels = self._samples(order, slice(start, start + length))
            yield from zip(images.split(self.batch_size), labels.split(self.batch_size), strict=True)

    def set_epoch(self, epoch: int) -> None:
        """Choose the order of epoch number `epoch`."""
        self._epoch = epoch

    def first_samples(self, count: int) -> tuple[Tensor, Tensor]:
        """The dataset's first samples as a batch on the device; fewer where there are fewer."""
        return self._samples(None, slice(0, count))

    def _samples(self, order: Tensor | None, part: slice) -> tuple[Tensor, Tensor]:
        # Copies in any case: a model that works in place must not change the set.
        chosen = part if order is None else order[part]
        images, labels = self._images[chosen], self._labels[chosen]
        if order is None:
            images, labels = images.clone(), labels.clone()
        return as_floats(images), labels

    def _batches_a_chunk(self) -> int:
        """How many batches to gather at once: many on an accelerator, where each kernel's launch costs a step time.

        On the CPU one, which stays in the cache until it is used.
        """
        if self._images.device.type == "cpu":
            return 1
        batch_bytes = 4 * self.batch_size * math.prod(self._images.shape[1:])
        return max(1, _CHUNK_BYTES // batch_bytes)


def _whole(dataset: Dataset[Any]) -> tuple[Tensor, Tensor]:
    if isinstance(dataset, ArrayDataset):
        return dataset.tensors()
    count = len(dataset)  # type: ignore[arg-type]  # datasets here have a length
    return collate_pairs([dataset[index] for index in range(count)])

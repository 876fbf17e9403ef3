"""Loader for a dataset in the memory of the training device: no workers, no transfers, no waiting."""

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.utils.data import Dataset

from runmanager.errors import DatasetError
from runmanager.tracking.device.transfer import PINNING_DEVICES, to_device
from runmanager.training.datasets.array_dataset import ArrayDataset, as_stored, base_dataset, collate_pairs
from runmanager.training.loading.batch_sampler import EpochBatchSampler, SampleBatches

__all__ = ["ResidentLoader"]

_CHUNK_SHARE = 1 / 16  # of the dataset; two chunks exist at a time, so a run needs less than 1.2 times its size
_READ_CHUNK = 64


class ResidentLoader:
    """Batches cut from tensors on `device`, as an `EpochLoader`.

    Bytes are converted to floats only when a batch is taken, which needs a quarter of the memory. A dataset that is
    already on `device` is shared, not copied. Any other than an `ArrayDataset` is read once, so that its random
    transforms are drawn only once.
    """

    def __init__(
        self, dataset: Dataset[Any], batch_size: int, *, shuffle: bool, seed: int, device: torch.device
    ) -> None:
        self._device = device
        self._samples = dataset.to(device) if isinstance(dataset, ArrayDataset) else _read(dataset, device)
        self._batches = EpochBatchSampler(len(self._samples), batch_size, shuffle=shuffle, seed=seed)
        self._next: tuple[int, Tensor] | None = None  # an epoch and its order
        self.batch_size = batch_size
        self.num_samples = len(self._samples)

    def __len__(self) -> int:
        return len(self._batches)

    def __iter__(self) -> Iterator[tuple[Tensor, Tensor]]:
        for chosen in self._order().split(self._batches_per_chunk() * self.batch_size):
            stored, labels = self._samples.gather(chosen)
            for batch, batch_labels in zip(stored.split(self.batch_size), labels.split(self.batch_size), strict=True):
                yield self._samples.unpack(batch), batch_labels
        if self._batches.shuffles:
            # Prepared here, while an accelerator still has queued steps; in the next epoch it would have to wait.
            self._next = self._batches.epoch + 1, self._to_device(self._batches.order(epochs_ahead=1))

    def set_epoch(self, epoch: int) -> None:
        """Select the order of epoch number `epoch`."""
        self._batches.epoch = epoch

    def first_samples(self, count: int) -> tuple[Tensor, Tensor]:
        """The first `count` samples of the dataset as a batch on the device, or all if it has fewer."""
        return self.samples(range(min(count, self.num_samples)))

    def samples(self, indices: Sequence[int]) -> tuple[Tensor, Tensor]:
        """The dataset's samples at `indices` as a batch on the device."""
        stored, labels = self._samples.gather(torch.as_tensor(indices, dtype=torch.int64, device=self._device))
        return self._samples.unpack(stored), labels

    @property
    def dataset(self) -> Dataset[Any]:
        """The samples on the device."""
        return self._samples

    def _order(self) -> Tensor:
        """The epoch's order on the device."""
        if self._next is not None and self._next[0] == self._batches.epoch:
            return self._next[1]
        return self._to_device(self._batches.order())

    def _to_device(self, order: Tensor) -> Tensor:
        """Copy an order to the device, if possible without waiting for earlier steps."""
        copied: Tensor = to_device(order.pin_memory() if self._device.type in PINNING_DEVICES else order, self._device)
        return copied

    def _batches_per_chunk(self) -> int:
        """The number of batches to gather in one kernel: several on an accelerator, where each launch delays the step.

        One on the CPU, so that it stays in the cache until it is used.
        """
        if self._device.type == "cpu":
            return 1
        return max(1, int(_CHUNK_SHARE * self.num_samples) // self.batch_size)


def _read(dataset: Dataset[Any], device: torch.device) -> ArrayDataset:
    """Read all samples of any dataset to `device`, with only a few of them twice in memory."""
    count = len(dataset)  # type: ignore[arg-type]  # datasets here have a length
    samples = SampleBatches(dataset)
    inputs = labels = torch.empty(0)
    for start in range(0, count, _READ_CHUNK):
        part = slice(start, min(start + _READ_CHUNK, count))
        part_inputs, part_labels = collate_pairs(samples.__getitems__(np.arange(part.start, part.stop)))
        if start == 0:
            inputs, labels = (
                torch.empty((count, *each.shape[1:]), dtype=each.dtype, device=device)
                for each in (part_inputs, part_labels)
            )
        for what, whole, part_of_it in (("samples", inputs, part_inputs), ("labels", labels, part_labels)):
            if (part_of_it.shape[1:], part_of_it.dtype) != (whole.shape[1:], whole.dtype):
                raise DatasetError(
                    f"The {what} must have one shape and type with `loader=resident`, got {_description(whole)} and "
                    f"{_description(part_of_it)}; convert them, or use `loader=dataloader`."
                )
        inputs[part], labels[part] = part_inputs, part_labels
    classes = getattr(base_dataset(dataset), "classes", None)
    return ArrayDataset(inputs, labels, unpack=as_stored, classes=classes)


def _description(inputs: Tensor) -> str:
    return f"{tuple(inputs.shape[1:])} of {inputs.dtype}"

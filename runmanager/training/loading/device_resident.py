"""The loader whose whole set lies on the training device: no worker, no transfer, no waiting."""

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.utils.data import Dataset

from runmanager.errors import DatasetError
from runmanager.tracking.device.transfer import PINNING_DEVICES, to_device
from runmanager.training.data.array_dataset import ArrayDataset, as_stored, base_dataset, collate_pairs
from runmanager.training.loading.batch_sampler import EpochBatchSampler, SampleBatches

__all__ = ["ResidentLoader"]

_CHUNK_SHARE = 1 / 16  # of the set; two chunks are there at a time, which leaves a run within 1.2 times the set
_SAMPLES_AT_ONCE = 64


class ResidentLoader:
    """Batches cut from tensors on `device`, as an `EpochLoader`.

    Bytes stay bytes until they are used, which takes a quarter of the memory. A set that lies on `device` already is
    shared, not copied. A dataset that is no `ArrayDataset` is read once, so that a random transform of it is drawn
    only once.
    """

    def __init__(
        self, dataset: Dataset[Any], batch_size: int, *, shuffle: bool, seed: int, device: torch.device
    ) -> None:
        self._device = device
        self._samples = dataset.to(device) if isinstance(dataset, ArrayDataset) else _read(dataset, device)
        self._batches = EpochBatchSampler(len(self._samples), batch_size, shuffle=shuffle, seed=seed)
        self._next: tuple[int, Tensor] | None = None  # an epoch, and its order
        self.batch_size = batch_size
        self.num_samples = len(self._samples)

    def __len__(self) -> int:
        return len(self._batches)

    def __iter__(self) -> Iterator[tuple[Tensor, Tensor]]:
        for chosen in self._order().split(self._batches_a_chunk() * self.batch_size):
            stored, labels = self._samples.gather(chosen)
            for part, its_labels in zip(stored.split(self.batch_size), labels.split(self.batch_size), strict=True):
                yield self._samples.unpack(part), its_labels
        if self._batches.shuffles:
            # Now, as an accelerator has steps left to do, which at the beginning of the next epoch it would wait for.
            self._next = self._batches.epoch + 1, self._sent(self._batches.order(epochs_ahead=1))

    def set_epoch(self, epoch: int) -> None:
        """Choose the order of epoch number `epoch`."""
        self._batches.epoch = epoch

    def first_samples(self, count: int) -> tuple[Tensor, Tensor]:
        """The dataset's first samples as a batch on the device; fewer where there are fewer."""
        return self.samples(range(min(count, self.num_samples)))

    def samples(self, indices: Sequence[int]) -> tuple[Tensor, Tensor]:
        """The dataset's samples at `indices` as a batch on the device."""
        stored, labels = self._samples.gather(torch.as_tensor(indices, dtype=torch.int64, device=self._device))
        return self._samples.unpack(stored), labels

    @property
    def dataset(self) -> Dataset[Any]:
        """The samples, as they lie on the device."""
        return self._samples

    def _order(self) -> Tensor:
        """The epoch's order on the device."""
        if self._next is not None and self._next[0] == self._batches.epoch:
            return self._next[1]
        return self._sent(self._batches.order())

    def _sent(self, order: Tensor) -> Tensor:
        """An order on the device, sent without waiting where it can be: steps before may not have ended."""
        sent: Tensor = to_device(order.pin_memory() if self._device.type in PINNING_DEVICES else order, self._device)
        return sent

    def _batches_a_chunk(self) -> int:
        """How many batches to gather at once: several on an accelerator, where each kernel's launch costs a step time.

        On the CPU one, which stays in the cache until it is used.
        """
        if self._device.type == "cpu":
            return 1
        return max(1, int(_CHUNK_SHARE * self.num_samples) // self.batch_size)


def _read(dataset: Dataset[Any], device: torch.device) -> ArrayDataset:
    """All samples of any dataset on `device`, with never more than a few of them twice in memory."""
    count = len(dataset)  # type: ignore[arg-type]  # datasets here have a length
    samples = SampleBatches(dataset)
    inputs, labels = torch.empty(0), torch.empty(count, dtype=torch.int64, device=device)
    for start in range(0, count, _SAMPLES_AT_ONCE):
        part = slice(start, min(start + _SAMPLES_AT_ONCE, count))
        its_inputs, its_labels = collate_pairs(samples.__getitems__(np.arange(part.start, part.stop)))
        if start == 0:
            inputs = torch.empty((count, *its_inputs.shape[1:]), dtype=its_inputs.dtype, device=device)
        if (its_inputs.shape[1:], its_inputs.dtype) != (inputs.shape[1:], inputs.dtype):
            raise DatasetError(
                "The samples must be alike with `loader=resident`, got "
                f"{_described(inputs)} and {_described(its_inputs)}; make them so, or use `loader=dataloader`."
            )
        inputs[part], labels[part] = its_inputs, its_labels
    classes = getattr(base_dataset(dataset), "classes", None)
    return ArrayDataset(inputs, labels, unpack=as_stored, classes=classes)


def _described(inputs: Tensor) -> str:
    return f"{tuple(inputs.shape[1:])} of {inputs.dtype}"

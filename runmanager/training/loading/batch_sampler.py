"""Which samples each batch of an epoch holds, and what a DataLoader fetches for it.

The order of an epoch is the same for every loader, for every number of workers and after every resume.
"""

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor
from torch.utils.data import Dataset, Sampler, get_worker_info

from runmanager.tracking.device.devices import seed_everything
from runmanager.training.datasets.array_dataset import ArrayDataset, derived_seed


def epoch_seed(seed: int, epoch: int) -> int:
    """The seed of one epoch of a run: 32 bits that depend on these two numbers only."""
    return derived_seed("epoch", seed, epoch)


def epoch_order(num_samples: int, *, seed: int, epoch: int) -> Tensor:
    """A permutation (num_samples,), int64, on the CPU: what RandomSampler draws from a generator with `epoch_seed`."""
    return torch.randperm(num_samples, generator=torch.Generator().manual_seed(epoch_seed(seed, epoch)))


class EpochBatchSampler(Sampler[npt.NDArray[np.int64]]):
    """The indices of each batch of epoch number `epoch`; the last, smaller batch is kept.

    NumPy arrays, because each tensor would be sent to a worker through a file in shared memory.
    """

    def __init__(self, num_samples: int, batch_size: int, *, shuffle: bool, seed: int) -> None:
        self.epoch = 1
        self.batch_size = batch_size
        self.num_samples = num_samples
        self.shuffles = shuffle
        self._seed = seed

    @property
    def epoch_seed(self) -> int:
        """The seed of the current epoch."""
        return epoch_seed(self._seed, self.epoch)

    def __len__(self) -> int:
        return math.ceil(self.num_samples / self.batch_size)

    def __iter__(self) -> Iterator[npt.NDArray[np.int64]]:
        return (indices.numpy() for indices in self.order().split(self.batch_size))

    def order(self, *, epochs_ahead: int = 0) -> Tensor:
        """All samples (num_samples,), int64, on the CPU, in the order of the current epoch or of a later one."""
        if not self.shuffles:
            return torch.arange(self.num_samples)
        return epoch_order(self.num_samples, seed=self._seed, epoch=self.epoch + epochs_ahead)


class ArrayBatches(Dataset[Any]):
    """Whole batches of an `ArrayDataset`, as stored: bytes take a quarter of the memory traffic of floats."""

    def __init__(self, dataset: ArrayDataset) -> None:
        self._dataset = dataset

    def __getitems__(self, indices: npt.NDArray[np.int64]) -> tuple[Tensor, Tensor]:
        return self._dataset.gather(torch.from_numpy(indices))


class SampleBatches(Dataset[Any]):
    """Lists of samples of any dataset, read one by one unless the dataset defines `__getitems__`."""

    def __init__(self, dataset: Dataset[Any]) -> None:
        self._dataset = dataset

    def __getitems__(self, indices: npt.NDArray[np.int64]) -> list[Any]:
        numbers = indices.tolist()  # a user-defined dataset may need plain integers
        get_many = getattr(self._dataset, "__getitems__", None)
        return get_many(numbers) if get_many else [self._dataset[number] for number in numbers]


def already_collated(batch: Any) -> Any:
    """Collate function for a dataset that returns whole batches."""
    return batch


@dataclass(frozen=True)
class _BatchRequest:
    """The indices of one batch, the number of its pass over the data, and the seed of that pass."""

    indices: npt.NDArray[np.int64]
    pass_number: int
    seed: int


class SeededBatchSampler(Sampler[_BatchRequest]):
    """The batches of an epoch, each with the number and the seed of its pass over the data."""

    def __init__(self, batches: EpochBatchSampler) -> None:
        self._batches = batches
        self._num_passes = 0

    def __len__(self) -> int:
        return len(self._batches)

    def __iter__(self) -> Iterator[_BatchRequest]:
        self._num_passes += 1
        number, seed = self._num_passes, self._batches.epoch_seed
        return (_BatchRequest(indices, number, seed) for indices in self._batches)


class SeededSampleBatches(Dataset[Any]):
    """Samples as `SampleBatches`, for workers: they seed Python, NumPy and PyTorch at the start of each pass.

    So the random numbers that a dataset draws depend only on the pass's seed, the number of workers and the worker, and
    a resumed run, whose workers are new, draws the same as an uninterrupted one. A generator that the dataset owns is
    left alone.
    """

    def __init__(self, dataset: Dataset[Any]) -> None:
        self._samples = SampleBatches(dataset)
        self._pass_number = 0

    def __getitems__(self, request: _BatchRequest) -> list[Any]:
        if request.pass_number != self._pass_number:
            self._pass_number = request.pass_number
            worker = get_worker_info()
            seed_everything(derived_seed("worker", request.seed, worker.id if worker else 0))
        return self._samples.__getitems__(request.indices)

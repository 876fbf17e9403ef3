"""The order of an epoch's samples: the same for every loader, every number of workers, and after every resume."""

import math
from collections.abc import Iterator

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor
from torch.utils.data import Sampler

from runmanager.training.data.splits import derived_seed

__all__ = ["EpochBatches", "epoch_order", "epoch_seed"]


def epoch_seed(seed: int, epoch: int) -> int:
    """The seed of one epoch of a run, 32 bits, from nothing but these two numbers."""
    return derived_seed("epoch", seed, epoch)


def epoch_order(num_samples: int, *, seed: int, epoch: int) -> Tensor:
    """A permutation (num_samples,), int64, on the CPU: what RandomSampler draws from a generator with `epoch_seed`."""
    return torch.randperm(num_samples, generator=torch.Generator().manual_seed(epoch_seed(seed, epoch)))


class EpochBatches(Sampler[npt.NDArray[np.int64]]):
    """Which samples each batch of epoch number `epoch` has; the last, smaller batch is kept.

    Arrays and no tensors, which would go to a worker by way of a file in shared memory each.
    """

    def __init__(self, num_samples: int, batch_size: int, *, shuffle: bool, seed: int) -> None:
        self.epoch = 1
        self.batch_size = batch_size
        self.num_samples = num_samples
        self.shuffles = shuffle
        self._seed = seed

    @property
    def epoch_seed(self) -> int:
        """The seed of the epoch that was set last."""
        return epoch_seed(self._seed, self.epoch)

    def __len__(self) -> int:
        return math.ceil(self.num_samples / self.batch_size)

    def __iter__(self) -> Iterator[npt.NDArray[np.int64]]:
        return (indices.numpy() for indices in self.order().split(self.batch_size))

    def order(self, *, epochs_ahead: int = 0) -> Tensor:
        """All samples (num_samples,), int64, on the CPU, in the order of the epoch that was set last, or of a later."""
        if not self.shuffles:
            return torch.arange(self.num_samples)
        return epoch_order(self.num_samples, seed=self._seed, epoch=self.epoch + epochs_ahead)

"""The order of an epoch's samples: the same for every loader, every number of workers, and after every resume."""

from collections.abc import Iterator

import torch
from torch import Tensor
from torch.utils.data import Sampler

from runmanager.training.splits import derived_seed

__all__ = ["EpochSampler", "epoch_order", "epoch_seed"]


def epoch_seed(seed: int, epoch: int) -> int:
    """The seed of one epoch of a run, 32 bits, from nothing but these two numbers."""
    return derived_seed("epoch", seed, epoch)


def epoch_order(num_samples: int, *, seed: int, epoch: int) -> Tensor:
    """A permutation (num_samples,), int64, on the CPU: what RandomSampler draws from a generator with `epoch_seed`."""
    return torch.randperm(num_samples, generator=torch.Generator().manual_seed(epoch_seed(seed, epoch)))


class EpochSampler(Sampler[int]):
    """The indices of epoch number `epoch`: those that PyTorch's RandomSampler draws from a generator with its seed."""

    def __init__(self, num_samples: int, *, shuffle: bool, seed: int) -> None:
        self.epoch = 1
        self._num_samples = num_samples
        self._shuffle = shuffle
        self._seed = seed

    @property
    def epoch_seed(self) -> int:
        """The seed of the epoch that was set last."""
        return epoch_seed(self._seed, self.epoch)

    def __len__(self) -> int:
        return self._num_samples

    def __iter__(self) -> Iterator[int]:
        if not self._shuffle:
            return iter(range(self._num_samples))
        return iter(epoch_order(self._num_samples, seed=self._seed, epoch=self.epoch).tolist())

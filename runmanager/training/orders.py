"""The order of an epoch's samples: the same for every loader, every number of workers, and after every resume."""

import torch
from torch import Tensor

from runmanager.training.splits import derived_seed

__all__ = ["epoch_order", "epoch_seed"]


def epoch_seed(seed: int, epoch: int) -> int:
    """The seed of one epoch of a run, 32 bits, from nothing but these two numbers."""
    return derived_seed("epoch", seed, epoch)


def epoch_order(num_samples: int, *, seed: int, epoch: int) -> Tensor:
    """A permutation (num_samples,), int64, on the CPU: what RandomSampler draws from a generator with `epoch_seed`."""
    return torch.randperm(num_samples, generator=torch.Generator().manual_seed(epoch_seed(seed, epoch)))

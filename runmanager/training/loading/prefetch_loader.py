"""Loader that copies each batch to the device one step ahead."""

from collections.abc import Iterator, Sequence
from typing import Any

import torch
from torch import Tensor
from torch.utils.data import Dataset

from runmanager.tracking.device.prefetch import BatchCopier, SideStream, prefetch
from runmanager.tracking.options import STREAMING_DEVICES
from runmanager.training.loading.loaders import EpochLoader, Loaders
from runmanager.training.options.groups import DataLoaderOptions

__all__ = ["PrefetchingLoader", "with_prefetch"]


def with_prefetch(options: Any, loaders: Loaders, *, device: torch.device) -> Loaders:
    """Add prefetching to the loaders if the options ask for it and the device can copy while it computes."""
    if (
        not isinstance(options, DataLoaderOptions)
        or not options.prefetch_to_device
        or device.type not in STREAMING_DEVICES
    ):
        return loaders
    lane = SideStream(device)
    return Loaders(PrefetchingLoader(loaders.train, lane), PrefetchingLoader(loaders.validation, lane))


class PrefetchingLoader:
    """The batches of `loader`, an `EpochLoader` with pinned memory, each copied on `lane` during the previous step."""

    def __init__(self, loader: EpochLoader, lane: BatchCopier) -> None:
        self._loader = loader
        self._lane = lane
        self.num_samples = loader.num_samples
        self.batch_size = loader.batch_size

    def __len__(self) -> int:
        return len(self._loader)

    def __iter__(self) -> Iterator[Any]:
        return prefetch(self._loader, self._lane)

    def set_epoch(self, epoch: int) -> None:
        """Select the order of epoch number `epoch`."""
        self._loader.set_epoch(epoch)

    def first_samples(self, count: int) -> tuple[Tensor, Tensor]:
        """The first `count` samples of the dataset as a batch on the host, or all if it has fewer."""
        return self._loader.first_samples(count)

    def samples(self, indices: Sequence[int]) -> tuple[Tensor, Tensor]:
        """The dataset's samples at `indices` as a batch on the host."""
        return self._loader.samples(indices)

    @property
    def dataset(self) -> Dataset[Any]:
        """The dataset of the samples."""
        return self._loader.dataset

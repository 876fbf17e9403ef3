"""A loader whose batches are on their way to the device one step ahead."""

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
    """The loaders that `options` want: theirs send ahead where these say so, and the device can copy as it computes."""
    if (
        not isinstance(options, DataLoaderOptions)
        or not options.prefetch_to_device
        or device.type not in STREAMING_DEVICES
    ):
        return loaders
    lane = SideStream(device)
    return Loaders(PrefetchingLoader(loaders.train, lane), PrefetchingLoader(loaders.validation, lane))


class PrefetchingLoader:
    """The batches of `loader`, an `EpochLoader` in pinned memory, each sent over `lane` while a step is computed."""

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
        """Choose the order of epoch number `epoch`."""
        self._loader.set_epoch(epoch)

    def first_samples(self, count: int) -> tuple[Tensor, Tensor]:
        """The dataset's first samples as a batch, on the host; fewer where there are fewer."""
        return self._loader.first_samples(count)

    def samples(self, indices: Sequence[int]) -> tuple[Tensor, Tensor]:
        """The dataset's samples at `indices` as a batch, on the host."""
        return self._loader.samples(indices)

    @property
    def dataset(self) -> Dataset[Any]:
        """What the samples are taken from."""
        return self._loader.dataset

"""The loaders: what a run iterates over in an epoch, in an order that only the seed and the epoch decide."""

from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from typing import Any, Protocol

import torch
from torch import Tensor
from torch.utils.data import BatchSampler, DataLoader, Dataset

from runmanager.errors import ConfigurationError, UsageError
from runmanager.tracking.randomness import preserved
from runmanager.training.arrays import ArrayDataset, collate_pairs
from runmanager.training.datasets import Data
from runmanager.training.faults import fault
from runmanager.training.options import DataLoaderOptions, ResidentOptions
from runmanager.training.orders import EpochSampler
from runmanager.training.resident import ResidentLoader
from runmanager.training.worker_seeds import SeededBatches, SeededSamples

__all__ = ["EpochLoader", "Loaders", "WorkerLoader", "build_loaders"]

_PINNING_DEVICES = ("cuda", "xpu")  # mps shares its memory with the CPU, and refuses


class EpochLoader(Protocol):
    """Batches of (images (batch, …) float32, labels (batch,) int64); the last, smaller one is kept."""

    @property
    def num_samples(self) -> int:
        """Samples an epoch."""

    @property
    def batch_size(self) -> int:
        """Samples of a full batch."""

    def __len__(self) -> int:
        """Steps an epoch."""

    def __iter__(self) -> Iterator[tuple[Tensor, Tensor]]:
        """The batches of the epoch that was set last."""

    def set_epoch(self, epoch: int) -> None:
        """Choose the order of epoch number `epoch`; it depends on the seed and on `epoch` only."""

    def first_samples(self, count: int) -> tuple[Tensor, Tensor]:
        """The dataset's first samples as a batch, taken without moving any random state or starting a worker."""


@dataclass(frozen=True)
class Loaders:
    """The two loaders of a run; only `train` shuffles."""

    train: EpochLoader
    validation: EpochLoader


def build_loaders(
    options: Any,
    data: Data,
    *,
    batch_size: int,
    eval_batch_size: int,
    num_workers: int,
    device: torch.device,
    seed: int,
) -> Loaders:
    """Loaders for training on `device`: a resident one gives batches on it, the other on the CPU.

    Both give the same batches, bit for bit, whatever `num_workers` is, unless a dataset draws random numbers.
    Raises `ConfigurationError` for workers of a resident loader. On the CPU nothing is pinned, whatever the options
    say.
    """
    if isinstance(options, ResidentOptions):
        if num_workers > 0:
            rule = "be 0 with `loader=resident`, which has nothing to load"
            raise ConfigurationError([fault("num_workers", rule, num_workers, "use `loader=dataloader`")])
        return Loaders(
            ResidentLoader(data.train, batch_size, shuffle=options.shuffle, seed=seed, device=device),
            ResidentLoader(data.validation, eval_batch_size, shuffle=False, seed=seed, device=device),
        )
    if isinstance(options, DataLoaderOptions):
        pinned = _pinned(options, device)
        return Loaders(
            WorkerLoader(
                data.train, batch_size, options, num_workers, shuffle=options.shuffle, pinned=pinned, seed=seed
            ),
            WorkerLoader(
                data.validation, eval_batch_size, options, num_workers, shuffle=False, pinned=pinned, seed=seed
            ),
        )
    raise UsageError(f"The loader's options must be a loader dataclass, got {options!r}.")


def _pinned(options: DataLoaderOptions, device: torch.device) -> bool:
    if device.type == "cpu":
        return False  # nothing is sent anywhere: pinning would copy each batch once more, for nothing
    return device.type in _PINNING_DEVICES if options.pin_memory is None else options.pin_memory


class WorkerLoader:
    """PyTorch's DataLoader as an `EpochLoader`: nothing global is drawn, but by a dataset that does so itself.

    Without workers such a dataset draws in the run's own process, whose random states the checkpoint holds. In workers
    it draws from states that depend on seed, epoch and worker alone (see `worker_seeds`). Either way a resumed run
    draws the same; another number of workers draws other numbers.
    """

    def __init__(
        self,
        dataset: Dataset[Any],
        batch_size: int,
        options: DataLoaderOptions,
        num_workers: int,
        *,
        shuffle: bool,
        pinned: bool,
        seed: int,
    ) -> None:
        self.num_samples: int = len(dataset)  # type: ignore[arg-type]  # datasets here have a length
        self.batch_size = batch_size
        self._dataset = dataset
        self._sampler = EpochSampler(self.num_samples, shuffle=shuffle, seed=seed)
        # The DataLoader draws the first seeds of its workers from a generator, which is not to be the global one.
        self._generator = torch.Generator()
        # Our own sets draw nothing. Somebody's may, in workers that outlive an epoch too.
        is_seeded = num_workers > 0 and not isinstance(dataset, ArrayDataset)
        batches: Any = SeededBatches if is_seeded else partial(BatchSampler, drop_last=False)
        self._loader: DataLoader[Any] = DataLoader(
            SeededSamples(dataset) if is_seeded else dataset,
            batch_sampler=batches(self._sampler, batch_size),
            num_workers=num_workers,
            collate_fn=ArrayDataset.collate if isinstance(dataset, ArrayDataset) else collate_pairs,
            pin_memory=pinned,
            persistent_workers=options.persistent_workers and num_workers > 0,
            prefetch_factor=options.prefetch_factor if num_workers > 0 else None,
            generator=self._generator,
        )

    def __len__(self) -> int:
        return len(self._loader)

    def __iter__(self) -> Iterator[tuple[Tensor, Tensor]]:
        self._generator.manual_seed(self._sampler.epoch_seed)
        return iter(self._loader)

    def set_epoch(self, epoch: int) -> None:
        """Choose the order of epoch number `epoch`, and the seed of its workers."""
        self._sampler.epoch = epoch

    def first_samples(self, count: int) -> tuple[Tensor, Tensor]:
        """The dataset's first samples as a batch; fewer where there are fewer."""
        indices = list(range(min(count, self.num_samples)))
        with preserved():
            if isinstance(self._dataset, ArrayDataset):
                return self._dataset.__getitems__(indices)
            return collate_pairs([self._dataset[index] for index in indices])

"""Loaders of a run: PyTorch's DataLoader, or the whole dataset in the memory of the training device."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
import torch
from torch import Tensor
from torch.utils.data import DataLoader, Dataset

from runmanager.errors import ConfigurationError, DatasetError, UsageError
from runmanager.tracking.device.devices import preserve_random_states
from runmanager.tracking.device.transfer import PINNING_DEVICES, Packed, to_device
from runmanager.training.datasets.array_dataset import (
    ArrayDataset,
    as_stored,
    base_dataset,
    collate_pairs,
    transform_names,
)
from runmanager.training.datasets.registry import Data
from runmanager.training.loading.batch_sampler import (
    ArrayBatches,
    EpochBatchSampler,
    SampleBatches,
    SeededBatchSampler,
    SeededSampleBatches,
    already_collated,
)
from runmanager.training.options.groups import DataLoaderOptions, ResidentOptions
from runmanager.validation import fault

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


class EpochLoader(Protocol):
    """Batches of (images (batch, …), labels (batch, …)); the last, smaller one is kept.

    Labels are int64 or floating point. Images are float32, except of user-defined datasets with another type. For an
    accelerator they may be `Packed`; `to_device` unpacks them.
    """

    @property
    def num_samples(self) -> int:
        """Samples in an epoch."""

    @property
    def batch_size(self) -> int:
        """Samples in a full batch."""

    def __len__(self) -> int:
        """Steps in an epoch."""

    def __iter__(self) -> Iterator[tuple[Any, Tensor]]:
        """The batches of the current epoch."""

    def set_epoch(self, epoch: int) -> None:
        """Select the order of epoch number `epoch`; it depends only on the seed and on `epoch`."""

    def first_samples(self, count: int) -> tuple[Tensor, Tensor]:
        """The dataset's first samples as a batch; changes no random state and starts no worker."""

    def samples(self, indices: Sequence[int]) -> tuple[Tensor, Tensor]:
        """The samples at `indices`, in the same way."""

    @property
    def dataset(self) -> Dataset[Any]:
        """The dataset; its `classes` are the names of its labels."""


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
    notify: Callable[[str], None],
) -> Loaders:
    """Create the loaders for training on `device`: resident ones yield batches on it, others on the CPU.

    Both kinds yield the same batches, bit for bit, for any `num_workers`, unless a dataset draws random numbers.
    `notify` is called with a line about a dataset whose transform prevents reading whole batches. On the CPU nothing is
    pinned, regardless of the options. Raises `ConfigurationError` for a resident loader with workers.
    """
    _notify_of_transforms(data, notify, is_resident=isinstance(options, ResidentOptions))
    if isinstance(options, ResidentOptions):
        if num_workers > 0:
            rule = "be 0 with `loader=resident`, which needs none"
            raise ConfigurationError([fault("num_workers", rule, num_workers, "use `loader=dataloader`")])
        return Loaders(
            ResidentLoader(data.train, batch_size, shuffle=options.shuffle, seed=seed, device=device),
            ResidentLoader(data.validation, eval_batch_size, shuffle=False, seed=seed, device=device),
        )
    if isinstance(options, DataLoaderOptions):
        return Loaders(
            WorkerLoader(
                data.train, batch_size, options, num_workers, shuffle=options.shuffle, device=device, seed=seed
            ),
            WorkerLoader(
                data.validation, eval_batch_size, options, num_workers, shuffle=False, device=device, seed=seed
            ),
        )
    raise UsageError(f"The loader's options must be a loader dataclass, got {options!r}.")


def _notify_of_transforms(data: Data, notify: Callable[[str], None], *, is_resident: bool) -> None:
    for dataset in (data.train, data.validation):
        if isinstance(dataset, ArrayDataset) or (names := transform_names(dataset)) is None:
            continue
        if is_resident:
            notify(f"loader: samples are read once, before training: the dataset's transform ({names}) runs only once")
        elif not hasattr(base_dataset(dataset), "__getitems__"):
            notify(f"loader: samples are read one by one, through the dataset's transform ({names})")


class WorkerLoader:
    """PyTorch's DataLoader as an `EpochLoader`; only the dataset itself may draw global random numbers.

    In-memory data are gathered a batch at a time, as stored. On the CPU they are unpacked when the batch is taken; for
    an accelerator the batch is `Packed`, so that bytes are pinned and copied as bytes.

    Without workers, a dataset draws random numbers in the run's process, whose random states are in the checkpoint. In
    workers, the random states depend only on seed, epoch and worker (see `SeededSampleBatches`). Either way a resumed
    run draws the same numbers; another number of workers draws others.
    """

    def __init__(
        self,
        dataset: Dataset[Any],
        batch_size: int,
        options: DataLoaderOptions,
        num_workers: int,
        *,
        shuffle: bool,
        device: torch.device,
        seed: int,
    ) -> None:
        self.num_samples: int = len(dataset)  # type: ignore[arg-type]  # datasets here have a length
        self.batch_size = batch_size
        self.dataset = dataset
        self._device = device
        self._batches = EpochBatchSampler(self.num_samples, batch_size, shuffle=shuffle, seed=seed)
        # The DataLoader draws its workers' first seeds from a generator, which must not be the global one.
        self._generator = torch.Generator()
        fetched, batches = _dataset_and_sampler(dataset, self._batches, num_workers)
        self._loader: DataLoader[Any] = DataLoader(
            fetched,
            batch_sampler=batches,
            num_workers=num_workers,
            collate_fn=already_collated if isinstance(dataset, ArrayDataset) else collate_pairs,
            pin_memory=_pins_memory(options, device),
            persistent_workers=options.persistent_workers and num_workers > 0,
            prefetch_factor=options.prefetch_factor if num_workers > 0 else None,
            generator=self._generator,
        )

    def __len__(self) -> int:
        return len(self._batches)

    def __iter__(self) -> Iterator[tuple[Any, Tensor]]:
        self._generator.manual_seed(self._batches.epoch_seed)
        batches = iter(self._loader)
        return map(self._prepare, batches) if isinstance(self.dataset, ArrayDataset) else batches

    def set_epoch(self, epoch: int) -> None:
        """Select the order of epoch number `epoch`, and the seed of its workers."""
        self._batches.epoch = epoch

    def first_samples(self, count: int) -> tuple[Tensor, Tensor]:
        """The first `count` samples of the dataset as a batch, or all if it has fewer."""
        return self.samples(range(min(count, self.num_samples)))

    def samples(self, indices: Sequence[int]) -> tuple[Tensor, Tensor]:
        """The dataset's samples at `indices` as a batch."""
        with preserve_random_states():
            if isinstance(self.dataset, ArrayDataset):
                return self.dataset.__getitems__(indices)
            return collate_pairs([self.dataset[index] for index in indices])

    def _prepare(self, batch: tuple[Tensor, Tensor]) -> tuple[Any, Tensor]:
        assert isinstance(self.dataset, ArrayDataset)
        stored, labels = batch
        unpack = self.dataset.unpack
        return (unpack(stored) if self._device.type == "cpu" else Packed(stored, unpack)), labels


def _dataset_and_sampler(
    dataset: Dataset[Any], batches: EpochBatchSampler, num_workers: int
) -> tuple[Dataset[Any], Any]:
    """The `dataset` and `batch_sampler` arguments of the DataLoader."""
    if isinstance(dataset, ArrayDataset):
        return ArrayBatches(dataset), batches  # draws no random numbers
    if num_workers == 0:
        return SampleBatches(dataset), batches
    return SeededSampleBatches(dataset), SeededBatchSampler(batches)


def _pins_memory(options: DataLoaderOptions, device: torch.device) -> bool:
    if device.type == "cpu":
        return False  # nothing is copied to a device, so pinning would be a useless copy
    return device.type in PINNING_DEVICES if options.pin_memory is None else options.pin_memory

"""Samples and class names of a loader, read without iterating it: the training that follows is unchanged.

No random state advances, no worker starts and no one-shot iterator is used up.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from torch.nn.utils.rnn import PackedSequence
from torch.utils.data import BatchSampler, DataLoader, IterableDataset, SequentialSampler, Subset

from runmanager.tracking.device.devices import preserve_random_states
from runmanager.tracking.device.transfer import DeviceDataLoader
from runmanager.tracking.introspect.isolation import quiet_thread
from runmanager.tracking.torch_internals import as_plain

_MAX_PEEKED = 64
_MAX_PEEKED_BYTES = 1 << 28
_MAX_PIXELS = 64  # per side: a grid of photographs would take seconds and megabytes to write
_MAX_READ = 8 * _MAX_PIXELS  # per side, before the reduction: of larger images every second, third, … pixel is read


def peek_batch(loader: Any) -> Any | None:
    """Return up to 64 samples as a batch; None if reading them could change something.

    A `DataLoader` is not iterated, which would draw random numbers and start workers: the first samples of its dataset
    are collated. A list of batches gives its first one. Iterators and unknown loaders give None, as does a dataset that
    cannot be indexed by 0, 1, …: it may have other keys, and if it is broken the training will fail on it. Of large
    samples fewer are read.
    """
    with preserve_random_states():
        if isinstance(loader, DeviceDataLoader):
            return peek_batch(loader.dl)
        if hasattr(loader, "first_samples"):
            return loader.first_samples(_MAX_PEEKED)
        if isinstance(loader, DataLoader):
            try:
                return _collate_first(loader)
            except Exception:  # a user's dataset may raise anything
                return None
        if isinstance(loader, Sequence) and len(loader) > 0:
            return loader[0]
    return None


def _collate_first(loader: DataLoader[Any]) -> Any | None:
    dataset = loader.dataset
    if isinstance(dataset, IterableDataset) or not hasattr(dataset, "__len__"):
        return None
    if loader.batch_sampler is None and len(dataset):
        return loader.collate_fn(dataset[0])  # a dataset of whole batches
    count = min(len(dataset), _MAX_PEEKED, loader.batch_size or _MAX_PEEKED)
    if count == 0:
        return None
    if hasattr(dataset, "__getitems__"):
        read = dataset.__getitems__
    else:

        def read(indices: list[int]) -> list[Any]:
            return [dataset[index] for index in indices]

    first = read([0])
    fitting = _MAX_PEEKED_BYTES // max(1, sum(each.nbytes for each in _tensors(first)))
    return loader.collate_fn([*first, *read(list(range(1, max(1, min(count, fitting)))))])


def _tensors(value: Any) -> Iterator[torch.Tensor]:
    if isinstance(value, torch.Tensor):
        yield as_plain(value)
    elif isinstance(value, Mapping | list | tuple):
        for part in value.values() if isinstance(value, Mapping) else value:
            yield from _tensors(part)


def count_samples(batch: Any) -> int | None:
    """Return the number of samples in a batch; None unless it is certain.

    It is the first dimension of the inputs, the batch's first part; of a mapping that of its tensors, if they agree. Of
    nested inputs or a list of them, what labels beside them confirm. Of a packed sequence, the number of sequences.
    """
    try:
        if type(batch) in (list, tuple, dict):
            return _count(batch)
        with quiet_thread():  # another container may run code of the program
            return _count(batch)
    except Exception:  # a batch may be anything
        return None


def _count(batch: Any) -> int | None:
    if isinstance(batch, torch.Tensor):
        return _num_rows(batch)
    if isinstance(batch, np.ndarray):
        return batch.shape[0] if batch.ndim else None
    if isinstance(batch, PackedSequence):
        return int(batch.batch_sizes[0])  # which is on the host
    if isinstance(batch, Mapping):
        return _agreed(batch.values())
    if not isinstance(batch, list | tuple) or not batch:
        return None
    first, *others = batch
    if not others or isinstance(first, torch.Tensor | np.ndarray | PackedSequence):
        return _count(first)
    lengths = {len(first)} if isinstance(first, list | tuple) else set()
    if any(isinstance(each, torch.Tensor) for each in others):
        return count if (count := _agreed(others)) in lengths | {_agreed(_tensors(first))} else None
    if len(others) == 1 and len(kinds := _kinds(first) | _kinds(others[0])) == 2 and _kinds(first) < kinds:
        return lengths.pop() if lengths == {len(others[0])} else None  # as images and their boxes
    return None


def _agreed(parts: Iterable[Any]) -> int | None:
    """Return the first dimension that all tensors among the parts have; None if they differ, or without any."""
    found = {_num_rows(part) for part in parts if isinstance(part, torch.Tensor)} - {None}
    return found.pop() if len(found) == 1 else None


def _kinds(parts: Any) -> set[tuple[type, int]]:
    """Return the types of a list's elements, with the dimensions of tensors; empty for anything else."""
    elements = parts if isinstance(parts, list | tuple) else ()
    return {(type(each), as_plain(each).dim() if isinstance(each, torch.Tensor) else 0) for each in elements}


def _num_rows(tensor: torch.Tensor) -> int | None:
    tensor = as_plain(tensor)
    return int(tensor.size(0)) if tensor.dim() else None


def batch_inputs(batch: Any) -> torch.Tensor | None:
    """Return a batch's first part, (batch, …), as a plain tensor; None if it is not a tensor."""
    first = batch[0] if isinstance(batch, Sequence) and len(batch) else batch
    inputs = as_plain(first) if isinstance(first, torch.Tensor) else None
    return inputs if inputs is not None and inputs.dim() > 0 else None


def batch_images(batch: Any, count: int) -> torch.Tensor | None:
    """Return the first images of a batch, (count, 1 or 3, height, width); None if it has no images.

    They are uint8, or float32 in [0, 1]; larger ones are reduced to 64 pixels on the longer side. Only what is shown is
    copied. None also for complex numbers, and for tensors without pixels or that are not dense.
    """
    inputs = batch_inputs(batch)
    if inputs is None or not _is_dense(inputs) or inputs.ndim != 4 or inputs.shape[1] not in (1, 3):
        return None
    images = inputs[:count].detach()
    if not images.numel() or images.is_complex():
        return None
    steps = [max(1, size // _MAX_READ) for size in images.shape[2:]]
    seen = (image[None, :, :: steps[0], :: steps[1]].cpu().float() for image in images)
    reduced = torch.cat([_reduce(image) for image in seen])
    return reduced.round().to(torch.uint8) if images.dtype == torch.uint8 else _denormalize(reduced)


def _is_dense(tensor: torch.Tensor) -> bool:
    return tensor.layout is torch.strided and not (tensor.is_nested or tensor.is_quantized or tensor.is_meta)


def describe_tensor(tensor: torch.Tensor) -> str:
    """Describe shape, type and layout of a plain tensor."""
    shape = "several shapes" if tensor.is_nested else f"shape {tuple(tensor.shape)}"
    where = " without data" if tensor.is_meta else ""
    return f"{shape} of {tensor.dtype}{where} ({str(tensor.layout).removeprefix('torch.')})"


def _reduce(images: torch.Tensor) -> torch.Tensor:
    height, width = images.shape[2:]
    scale = _MAX_PIXELS / max(height, width, 1)
    if scale >= 1 or not len(images):
        return images
    return F.interpolate(images, size=(max(1, round(height * scale)), max(1, round(width * scale))), mode="area")


def _denormalize(images: torch.Tensor) -> torch.Tensor:
    """Scale normalised images back into [0, 1]."""
    low, high = float(images.min()), float(images.max())
    if low >= 0 and high <= 1:
        return images
    return (images - low) / max(high - low, 1e-12)


def read_samples(loader: Any, indices: Sequence[int]) -> tuple[torch.Tensor, torch.Tensor] | None:
    """Read the samples at these positions of an epoch again, as a batch (images, labels); None if not possible.

    Possible for this package's loaders, which have `samples`, for a list of batches, and for a `DataLoader` that does
    not shuffle. A dataset with random augmentation may give other samples than before: compare the labels. Raises what
    the dataset raises.
    """
    if isinstance(loader, DeviceDataLoader):
        return read_samples(loader.dl, indices)
    with preserve_random_states():
        if hasattr(loader, "samples"):
            return _as_pair(loader.samples(indices))
        if isinstance(loader, DataLoader) and _is_sequential(loader):
            return _as_pair(loader.collate_fn([loader.dataset[index] for index in indices]))
        if isinstance(loader, list | tuple):
            return _read_from_batches(loader, indices)
    return None


def class_names(loader: Any, num_classes: int) -> Sequence[str]:
    """Return the dataset's class names, which torchvision calls `classes`; without them the class numbers."""
    if isinstance(loader, DeviceDataLoader):
        return class_names(loader.dl, num_classes)
    dataset = getattr(loader, "dataset", None)
    while isinstance(dataset, Subset):
        dataset = dataset.dataset
    names = getattr(dataset, "classes", None)
    if isinstance(names, list | tuple) and len(names) == num_classes:
        return [str(name) for name in names]
    return [str(number) for number in range(num_classes)]


def _is_sequential(loader: DataLoader[Any]) -> bool:
    if isinstance(loader.dataset, IterableDataset) or type(loader.batch_sampler) is not BatchSampler:
        return False
    return type(loader.sampler) is SequentialSampler


def _read_from_batches(batches: Sequence[Any], indices: Sequence[int]) -> tuple[torch.Tensor, torch.Tensor] | None:
    found: dict[int, tuple[torch.Tensor, torch.Tensor]] = {}
    begin = 0
    for batch in batches:
        if (pair := _as_pair(batch)) is None:
            return None
        images, labels = pair
        inside = [index for index in indices if begin <= index < begin + len(labels)]
        found |= {index: (images[index - begin], labels[index - begin]) for index in inside}
        begin += len(labels)
    if not found.keys() >= set(indices):
        return None
    samples = [found[index] for index in indices]
    return torch.stack([image for image, _ in samples]), torch.stack([label for _, label in samples])


def _as_pair(batch: Any) -> tuple[torch.Tensor, torch.Tensor] | None:
    """Return a batch (images, labels) as such; None for any other batch."""
    if not isinstance(batch, Sequence) or len(batch) != 2:
        return None
    images, labels = batch
    is_pair = isinstance(images, torch.Tensor) and isinstance(labels, torch.Tensor) and labels.ndim == 1
    return (images, labels) if is_pair else None

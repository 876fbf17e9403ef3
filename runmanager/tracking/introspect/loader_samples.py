"""What a loader gave at some places, looked up again without a trace, and what its classes are called."""

from collections.abc import Sequence
from typing import Any

import torch
from torch.utils.data import BatchSampler, DataLoader, IterableDataset, SequentialSampler, Subset

from runmanager.tracking.device.rng import preserve_random_states
from runmanager.tracking.device.transfer import DeviceDataLoader

__all__ = ["class_names", "read_samples"]


def read_samples(loader: Any, places: Sequence[int]) -> tuple[torch.Tensor, torch.Tensor] | None:
    """The samples that came at these places of an epoch, as a batch (images, labels); None where that is not known.

    Known are our own loaders', which have `samples`, a list's of batches, and those of a `DataLoader` that does not
    shuffle. The loader is not iterated. A dataset that draws random numbers may give others than before: compare the
    labels. Raises whatever the dataset raises.
    """
    if isinstance(loader, DeviceDataLoader):
        return read_samples(loader.dl, places)
    with preserve_random_states():
        if hasattr(loader, "samples"):
            return _pair(loader.samples(places))
        if isinstance(loader, DataLoader) and _is_in_order(loader):
            return _pair(loader.collate_fn([loader.dataset[place] for place in places]))
        if isinstance(loader, list | tuple):
            return _of_batches(loader, places)
    return None


def class_names(loader: Any, num_classes: int) -> Sequence[str]:
    """What the classes are called by a loader's dataset, as torchvision's are by `classes`; else their numbers."""
    if isinstance(loader, DeviceDataLoader):
        return class_names(loader.dl, num_classes)
    dataset = getattr(loader, "dataset", None)
    while isinstance(dataset, Subset):
        dataset = dataset.dataset
    names = getattr(dataset, "classes", None)
    if isinstance(names, list | tuple) and len(names) == num_classes:
        return [str(name) for name in names]
    return [str(number) for number in range(num_classes)]


def _is_in_order(loader: DataLoader[Any]) -> bool:
    if isinstance(loader.dataset, IterableDataset) or type(loader.batch_sampler) is not BatchSampler:
        return False
    return type(loader.sampler) is SequentialSampler


def _of_batches(batches: Sequence[Any], places: Sequence[int]) -> tuple[torch.Tensor, torch.Tensor] | None:
    found: dict[int, tuple[torch.Tensor, torch.Tensor]] = {}
    begin = 0
    for batch in batches:
        if (pair := _pair(batch)) is None:
            return None
        images, labels = pair
        own = [place for place in places if begin <= place < begin + len(labels)]
        found |= {place: (images[place - begin], labels[place - begin]) for place in own}
        begin += len(labels)
    if not found.keys() >= set(places):
        return None
    rows = [found[place] for place in places]
    return torch.stack([image for image, _ in rows]), torch.stack([label for _, label in rows])


def _pair(batch: Any) -> tuple[torch.Tensor, torch.Tensor] | None:
    """A batch (images, labels) as such, None for any other."""
    if not isinstance(batch, Sequence) or len(batch) != 2:
        return None
    images, labels = batch
    is_pair = isinstance(images, torch.Tensor) and isinstance(labels, torch.Tensor) and labels.ndim == 1
    return (images, labels) if is_pair else None

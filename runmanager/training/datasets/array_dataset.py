"""Datasets held in two tensors and read a whole batch at a time, and the conversion of known datasets to them."""

import hashlib
from collections.abc import Callable, Sequence
from functools import cache
from typing import Any

import torch
from torch import Tensor
from torch.utils.data import Dataset, Subset, TensorDataset, default_collate

from runmanager.errors import DatasetError

# These classes read their samples from `data` and `targets`; subclasses that override `__getitem__` do not count.
_TORCHVISION_READERS = (("torchvision.datasets.mnist", "MNIST"), ("torchvision.datasets.cifar", "CIFAR10"))
_TO_TENSOR = ("torchvision.transforms.transforms", "ToTensor")

Unpack = Callable[[Tensor], Tensor]
"""Converts stored inputs (batch, …) to the inputs of a batch, on the device where they are."""


def as_floats(images: Tensor) -> Tensor:
    """Convert images to float32: bytes to numbers in [0, 1], floating-point numbers unscaled.

    The result is the same on every device: the float32 nearest to byte/255.
    """
    if images.dtype != torch.uint8:
        return images.to(torch.float32)
    return images.to(torch.float32).div_(_largest_byte(images.device))


@cache
def _largest_byte(device: torch.device) -> Tensor:
    """255 as a tensor, because CUDA divides by a plain number by multiplying with its rounded reciprocal.

    Created once per device, because creating it is a kernel launch, and captured steps have few of these.
    """
    return torch.full((), 255.0, device=device)


def as_stored(inputs: Tensor) -> Tensor:
    """Return the inputs unchanged, as for user-defined data whose scale is not known."""
    return inputs


def collate_pairs(samples: list[Any]) -> tuple[Tensor, Tensor]:
    """Collate (tensor, label) samples to a batch: (batch, …), and labels (batch, …) as of `as_labels`."""
    inputs, labels = default_collate(samples)
    return inputs, as_labels(labels)


def as_labels(labels: Tensor) -> Tensor:
    """Convert labels to the type that batches have: floating-point ones keep theirs, all others become int64."""
    return labels if labels.is_floating_point() else labels.to(torch.int64)


class ArrayDataset(Dataset[tuple[Tensor, Tensor]]):
    """Samples in memory: `images` (samples, …), uint8 or floating point, and `labels` (samples, …), as of `as_labels`.

    A sample is (tensor, label tensor), the first being the stored image converted by `unpack`. `classes` are
    the class names, if known. Raises `DatasetError` if the two lengths differ.
    """

    def __init__(
        self,
        images: Tensor,
        labels: Tensor,
        *,
        unpack: Unpack = as_floats,
        classes: Sequence[str] | None = None,
    ) -> None:
        if len(images) != len(labels):
            raise DatasetError(f"A dataset must have one label an image, got {len(images)} and {len(labels)}.")
        self._images = images
        self._labels = as_labels(labels)
        self.unpack = unpack
        self.classes = classes

    def __len__(self) -> int:
        return len(self._labels)

    def __getitem__(self, index: int) -> tuple[Tensor, Tensor]:
        # A clone, so that an in-place transform does not change the dataset.
        return self.unpack(self._images[index].clone()), self._labels[index].clone()

    def __getitems__(self, indices: Sequence[int]) -> tuple[Tensor, Tensor]:
        """The whole batch: images (batch, …) and labels (batch, …)."""
        images, labels = self.gather(torch.as_tensor(indices, dtype=torch.int64))
        return self.unpack(images), labels

    def gather(self, indices: Tensor) -> tuple[Tensor, Tensor]:
        """Copy the samples at `indices` (batch,), int64, on the dataset's device: images as stored, and labels."""
        # index_select copies whole rows; indexing by a tensor copies single values and takes several times as long.
        return self._images.index_select(0, indices), self._labels.index_select(0, indices)

    def tensors(self) -> tuple[Tensor, Tensor]:
        """All images as stored (before `unpack`), and all labels."""
        return self._images, self._labels

    def take(self, indices: Sequence[int]) -> "ArrayDataset":
        """The samples at `indices`, in that order."""
        return self._with_tensors(*self.gather(torch.as_tensor(indices, dtype=torch.int64)))

    def to(self, device: torch.device) -> "ArrayDataset":
        """The same samples on `device`; tensors that are already there are shared."""
        return self._with_tensors(self._images.to(device), self._labels.to(device))

    def _with_tensors(self, images: Tensor, labels: Tensor) -> "ArrayDataset":
        return ArrayDataset(images, labels, unpack=self.unpack, classes=self.classes)


def subset(dataset: Dataset[Any], indices: Sequence[int]) -> Dataset[Any]:
    """The samples of any dataset at `indices`, in that order; a subset of an `ArrayDataset` is one too."""
    return dataset.take(indices) if isinstance(dataset, ArrayDataset) else Subset(dataset, indices)


def as_arrays(dataset: Dataset[Any]) -> Dataset[Any]:
    """Convert a known kind of dataset to an `ArrayDataset` with the same samples, bit for bit; return others unchanged.

    Known kinds are a `TensorDataset` of inputs and labels, torchvision's MNIST and CIFAR families
    without a transform or with only `ToTensor`, and a `Subset` of these. Without a transform torchvision's samples are
    not tensors; they become what `ToTensor` returns.
    """
    known: Any = dataset
    reader, classes = _reader_class(dataset), getattr(dataset, "classes", None)
    if reader is TensorDataset and _are_plain_pairs(known.tensors):
        return ArrayDataset(*known.tensors, unpack=as_stored, classes=classes)
    if _is_torchvision_reader(reader) and _only_scales(known):
        labels = torch.as_tensor(known.targets)
        return ArrayDataset(_torchvision_images(known.data), labels, unpack=as_floats, classes=classes)
    if type(dataset) is Subset and min(dataset.indices, default=0) >= 0:
        whole = as_arrays(dataset.dataset)
        return whole.take(dataset.indices) if isinstance(whole, ArrayDataset) else dataset
    return dataset


def transform_names(dataset: Dataset[Any]) -> str | None:
    """The names of a dataset's transforms in order, separated by commas; None if none are found."""
    names = [getattr(step, "__name__", type(step).__name__) for step in _transforms(base_dataset(dataset))]
    return ", ".join(names) or None


def base_dataset(dataset: Dataset[Any]) -> Dataset[Any]:
    """The dataset below any number of nested `Subset`s."""
    return base_dataset(dataset.dataset) if isinstance(dataset, Subset) else dataset


def _reader_class(dataset: Dataset[Any]) -> type | None:
    """The class that defines both `__getitem__` and `__len__`; None if two do, or if batches are read."""
    kinds = type(dataset).__mro__
    owners = {next((each for each in kinds if name in vars(each)), None) for name in ("__getitem__", "__len__")}
    return owners.pop() if len(owners) == 1 and not hasattr(dataset, "__getitems__") else None


def _is_torchvision_reader(reader: type | None) -> bool:
    return reader is not None and (reader.__module__, reader.__qualname__) in _TORCHVISION_READERS


def _are_plain_pairs(tensors: Sequence[Tensor]) -> bool:
    """Whether these are inputs and labels in the CPU's memory that do not require gradients."""
    if len(tensors) != 2 or any(each.device.type != "cpu" or each.requires_grad for each in tensors):
        return False
    return tensors[1].ndim >= 1 and not tensors[1].is_complex()


def _torchvision_images(data: Any) -> Tensor:
    """The bytes of torchvision's images as (samples, channels, height, width)."""
    images = torch.as_tensor(data)
    return images.unsqueeze(1) if images.ndim == 3 else images.permute(0, 3, 1, 2).contiguous()


def _only_scales(dataset: Any) -> bool:
    """Whether torchvision's transform does the same as `as_floats`: there is none, or it is `ToTensor`.

    The newer `v2.ToDtype(scale=True)` does not count: it multiplies by a rounded 1/255, and the last bit differs.
    """
    steps = [] if dataset.transform is None else _flat_transforms(dataset.transform)
    if dataset.target_transform is not None or len(steps) > 1:
        return False
    return all((type(step).__module__, type(step).__name__) == _TO_TENSOR for step in steps)


def _transforms(dataset: Any) -> list[Any]:
    """The transforms of a dataset with torchvision's attributes, in the order in which they are applied."""
    separate = [getattr(dataset, name, None) for name in ("transform", "target_transform")]
    joint = getattr(dataset, "transforms", None)
    found = [each for each in separate if each is not None] or ([] if joint is None else [joint])
    return [step for each in found for step in _flat_transforms(each)]


def _flat_transforms(transform: Any) -> list[Any]:
    steps = getattr(transform, "transforms", None) if type(transform).__name__ == "Compose" else None
    return [transform] if steps is None else [step for each in steps for step in _flat_transforms(each)]


def derived_seed(*parts: object) -> int:
    """Derive a 32-bit seed from its purpose: different parts give unrelated random streams.

    32 bits, because PyTorch's CPU generator uses only these.
    """
    digest = hashlib.blake2b("/".join(map(str, parts)).encode(), digest_size=4).digest()
    return int.from_bytes(digest, "big")


def generator_for(*parts: object) -> torch.Generator:
    """A separate generator with a derived seed, which leaves other random streams unchanged."""
    return torch.Generator().manual_seed(derived_seed(*parts))


def num_held_out(holdout: int | float, num_samples: int) -> int:
    """The number of `num_samples` that a fraction or count holds out; at least 1 is left in each part.

    Raises `DatasetError` if that is impossible.
    """
    held = holdout if isinstance(holdout, int) else max(1, round(holdout * num_samples))
    if not 1 <= held < num_samples:
        raise DatasetError(
            f"`dataset.holdout` must leave samples to train on, got {holdout} of {num_samples}; "
            f"hold out at most {num_samples - 1}."
        )
    return held


def hold_out(dataset: Dataset[Any], holdout: int | float, *, seed: int) -> tuple[Dataset[Any], Dataset[Any]]:
    """Split at random into (training samples, held-out samples), each in the dataset's order."""
    total = _length(dataset)
    held = num_held_out(holdout, total)
    order = torch.randperm(total, generator=generator_for("holdout", seed))
    kept, held_out = order[held:].sort().values.tolist(), order[:held].sort().values.tolist()
    return subset(dataset, kept), subset(dataset, held_out)


def random_subset(
    dataset: Dataset[Any], size: int | None, *, seed: int, name: str, setting: str = "dataset.size"
) -> Dataset[Any]:
    """Draw `size` random samples, in the dataset's order; None keeps all of them. `setting` is what asks for it.

    Raises `DatasetError` if the dataset has fewer.
    """
    total = _length(dataset)
    if size is None or size == total:
        return dataset
    if size > total:
        part = "training" if setting == "dataset.size" else "validation"
        raise DatasetError(
            f"`{setting}` must be at most {total}, the {part} samples that {name} has, got {size}; "
            "lower it, or use null for all of them."
        )
    order = torch.randperm(total, generator=generator_for(setting.rpartition(".")[2], seed))
    return subset(dataset, order[:size].sort().values.tolist())


def _length(dataset: Dataset[Any]) -> int:
    return len(dataset)  # type: ignore[arg-type]  # PyTorch's Dataset has no `__len__`, but every one here does

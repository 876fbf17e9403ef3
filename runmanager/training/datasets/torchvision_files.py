"""MNIST, FashionMNIST and CIFAR, read from their files into tensors of bytes."""

import math
import struct
import warnings
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from torch import Tensor
from torch.utils.data import Dataset

from runmanager.errors import DatasetError
from runmanager.training.datasets.array_dataset import ArrayDataset, as_arrays
from runmanager.training.datasets.splits import hold_out, random_subset
from runmanager.training.models.torchvision_models import import_torchvision
from runmanager.training.options.dataset import VisionOptions

__all__ = ["SOURCES", "VisionSource", "missing_files", "read_idx", "vision_sets"]


@dataclass(frozen=True)
class VisionSource:
    """A downloadable dataset: its torchvision class, and its files in the data folder."""

    class_name: str
    folder: str
    train_files: tuple[str, ...]
    test_files: tuple[str, ...]
    shape: tuple[int, int, int]
    num_classes: int
    megabytes: int
    classes: tuple[str, ...] | None = None  # needed if torchvision, which knows them, does not read the files

    @property
    def files(self) -> tuple[str, ...]:
        return self.train_files + self.test_files + (("batches.meta",) if self.class_name == "CIFAR10" else ())


_FASHION_CLASSES = (
    *("T-shirt/top", "Trouser", "Pullover", "Dress", "Coat"),
    *("Sandal", "Shirt", "Sneaker", "Bag", "Ankle boot"),
)


def _mnist_like(class_name: str, megabytes: int, classes: tuple[str, ...] | None = None) -> VisionSource:
    train, test = ((f"{part}-images-idx3-ubyte", f"{part}-labels-idx1-ubyte") for part in ("train", "t10k"))
    return VisionSource(class_name, f"{class_name}/raw", train, test, (1, 28, 28), 10, megabytes, classes)


SOURCES: dict[str, VisionSource] = {
    "mnist": _mnist_like("MNIST", 12),
    "fashion_mnist": _mnist_like("FashionMNIST", 31, _FASHION_CLASSES),
    "cifar10": VisionSource(
        "CIFAR10",
        "cifar-10-batches-py",
        tuple(f"data_batch_{number}" for number in range(1, 6)),
        ("test_batch",),
        (3, 32, 32),
        10,
        171,
    ),
    "cifar100": VisionSource("CIFAR100", "cifar-100-python", ("train", "meta"), ("test",), (3, 32, 32), 100, 169),
}


def missing_files(source: VisionSource, data_root: Path) -> list[str]:
    """The names of the dataset's files that are missing in `data_root`."""
    return [name for name in source.files if not (data_root / source.folder / name).is_file()]


def vision_sets(options: VisionOptions, *, data_root: Path, seed: int) -> tuple[Dataset[object], Dataset[object]]:
    """Training and validation samples: the official splits, or a seeded part of the training set as validation.

    Raises `DatasetError` if files are missing or damaged, or `holdout`, `size` or `val_size` exceed the
    number of samples.
    """
    source = SOURCES[options.name]
    missing = missing_files(source, data_root)
    if missing:
        raise DatasetError(
            f"Dataset '{options.name}' must have its files in {data_root / source.folder}, "
            f"got no {', '.join(missing)}; let the first run download them on a machine with a network connection, "
            f"or set `data_root` (or RUNMANAGER_DATA) to the folder that holds {source.folder}."
        )
    training = _read(source, data_root, train=True)
    if options.holdout is None:
        # The same images for all seeds, whose runs are compared by them.
        test = _read(source, data_root, train=False)
        validation = random_subset(test, options.val_size, seed=0, name=options.name, setting="dataset.val_size")
    else:
        training, validation = hold_out(training, options.holdout, seed=seed)
    return random_subset(training, options.size, seed=seed, name=options.name), validation


def _read(source: VisionSource, data_root: Path, *, train: bool) -> Dataset[object]:
    if source.class_name.startswith("CIFAR"):
        return _read_cifar(source, data_root, train=train)
    folder = data_root / source.folder
    images, labels = (read_idx(folder / name) for name in (source.train_files if train else source.test_files))
    return ArrayDataset(images.unsqueeze(1), labels, classes=source.classes)


def read_idx(path: Path) -> Tensor:
    """Read an uncompressed IDX file of bytes (MNIST's format): 16 zero bits, type, number of dimensions, sizes, values.

    Raises `DatasetError` if the file has another format, or its length does not match its sizes.
    """
    content = np.fromfile(path, dtype=np.uint8)
    head = content[:4].tolist()
    if len(head) == 4 and head[:3] == [0, 0, 8] and len(content) >= 4 + 4 * head[3]:
        sizes = struct.unpack(f">{head[3]}I", content[4 : 4 + 4 * head[3]].tobytes())
        values = content[4 + 4 * head[3] :]
        if len(values) == math.prod(sizes):
            return torch.from_numpy(values).view(sizes)
    raise DatasetError(
        f"{path} must be a complete IDX file of bytes, got {len(content)} bytes of another format; "
        "remove it, and the next run downloads it again."
    )


def _read_cifar(source: VisionSource, data_root: Path, *, train: bool) -> Dataset[object]:
    datasets = import_torchvision().datasets
    try:
        with warnings.catch_warnings():
            # The files are pickles of an old NumPy version, for which newer ones warn.
            warnings.simplefilter("ignore", np.exceptions.VisibleDeprecationWarning)
            dataset = getattr(datasets, source.class_name)(root=data_root, train=train)
    except RuntimeError as error:
        folder = data_root / source.folder
        raise DatasetError(
            f"{folder} must hold all files of {source.class_name}, but one is damaged ({error}); "
            "remove the folder, and the next run downloads it again."
        ) from error
    return as_arrays(dataset)

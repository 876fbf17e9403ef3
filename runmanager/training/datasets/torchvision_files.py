"""MNIST, FashionMNIST and CIFAR: downloaded with checksums, and read from their files into tensors of bytes."""

import fcntl
import http.client
import math
import os
import shutil
import socket
import struct
import sys
import tarfile
import warnings
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from torch import Tensor
from torch.utils.data import Dataset

from runmanager.errors import DatasetError
from runmanager.records.host.standard_streams import print_line
from runmanager.training.datasets.array_dataset import ArrayDataset, as_arrays, hold_out, random_subset
from runmanager.training.models.builtin_models import import_torchvision
from runmanager.training.options.dataset import VisionOptions


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


_TIMEOUT_SECONDS = 60  # without data; a network that drops packets must not hang the command
_FAILURES = (OSError, RuntimeError, EOFError, http.client.HTTPException, tarfile.TarError, zlib.error)


def download(name: str, *, data_root: Path) -> None:
    """Download the dataset `name` if any of its files is missing in `data_root`; write nothing otherwise.

    Progress goes to stderr. Raises `DatasetError` if the folder cannot be written or the files cannot be downloaded.
    """
    source = SOURCES[name]
    if not missing_files(source, data_root):
        return
    folder = data_root.absolute() / source.folder
    with _download_lock(data_root, name):
        if not missing_files(source, data_root):
            return  # another process has downloaded it in the meantime
        try:
            _fetch(name, source, data_root)
        except _FAILURES as error:
            raise DatasetError(
                f"Dataset '{name}' must be in {folder}, and could not be downloaded: {_one_line(error)}; "
                f"run it again with a network connection, copy the files there, or use `dataset=digits`."
            ) from error


def report_missing(name: str, *, data_root: Path) -> None:
    """Report on stderr that the first run downloads the dataset `name`, which a dry run does not try."""
    folder = data_root.absolute() / SOURCES[name].folder
    size = f"about {SOURCES[name].megabytes} MB"
    _report(f"{name} is not in {folder}: a run downloads it first ({size}), and checks the cells with it only then.")


def unwritable_folder(name: str, data_root: Path, problem: str) -> DatasetError:
    """Return the error of a data folder that a download cannot be written to."""
    return DatasetError(
        f"Dataset '{name}' must be downloaded, but {data_root.absolute()} cannot be written ({problem}); "
        "choose another folder with `data_root=…` or RUNMANAGER_DATA."
    )


def _one_line(error: Exception) -> str:
    return " ".join(str(error).split()) or type(error).__name__


def _fetch(name: str, source: VisionSource, data_root: Path) -> None:
    _report(f"Downloading {name} to {data_root.absolute() / source.folder} (about {source.megabytes} MB, once).")
    staging = data_root / f".download-{name}"
    shutil.rmtree(staging, ignore_errors=True)  # left behind by a killed download
    try:
        with _network_timeout():
            getattr(import_torchvision().datasets, source.class_name)(root=staging, train=True, download=True)
        (data_root / source.folder).mkdir(parents=True, exist_ok=True)
        for file in source.files:
            os.replace(staging / source.folder / file, data_root / source.folder / file)
    finally:
        shutil.rmtree(staging, ignore_errors=True)


@contextmanager
def _download_lock(data_root: Path, name: str) -> Iterator[None]:
    """Hold the folder's lock; the operating system releases it when the process dies."""
    try:
        data_root.mkdir(parents=True, exist_ok=True)
        file = (data_root / ".download.lock").open("w")
    except OSError as error:
        raise unwritable_folder(name, data_root, _one_line(error)) from error
    with file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            _report(f"Waiting for another process to download to {data_root.absolute()}.")
            fcntl.flock(file, fcntl.LOCK_EX)
        yield


@contextmanager
def _network_timeout() -> Iterator[None]:
    before = socket.getdefaulttimeout()
    socket.setdefaulttimeout(_TIMEOUT_SECONDS)
    try:
        yield
    finally:
        socket.setdefaulttimeout(before)


def _report(line: str) -> None:
    print_line(line, sys.stderr)

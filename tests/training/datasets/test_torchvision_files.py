"""MNIST, FashionMNIST and CIFAR: read from their files, split, and refused if damaged or missing."""

import hashlib
import os
import pickle
import struct
import sys
from pathlib import Path

import numpy as np
import pytest
import torch
import torchvision

from runmanager.errors import DatasetError
from runmanager.training.datasets.registry import load_dataset, prepare_dataset
from runmanager.training.datasets.torchvision_files import read_idx
from runmanager.training.options.dataset import Cifar10Options, Cifar100Options, FashionMnistOptions, MnistOptions


def idx(array):
    return struct.pack(f">HBB{array.ndim}I", 0, 8, array.ndim, *array.shape) + array.tobytes()


def write_mnist(root, folder="MNIST", counts=(60, 20)):
    raw = root / folder / "raw"
    raw.mkdir(parents=True)
    random = np.random.default_rng(0)
    for part, count in zip(("train", "t10k"), counts, strict=True):
        images = random.integers(0, 256, (count, 28, 28), dtype=np.uint8)
        (raw / f"{part}-images-idx3-ubyte").write_bytes(idx(images))
        (raw / f"{part}-labels-idx1-ubyte").write_bytes(idx((np.arange(count) % 10).astype(np.uint8)))
    return raw


@pytest.fixture
def mnist(tmp_path):
    write_mnist(tmp_path)
    return tmp_path


def test_the_official_splits(mnist):
    data = load_dataset(MnistOptions(), data_root=mnist, seed=0)
    assert data.in_shape == (1, 28, 28) and data.num_classes == 10
    assert (len(data.train), len(data.validation)) == (60, 20)
    images, labels = data.train.tensors()
    reference = torchvision.datasets.MNIST(mnist, train=True)
    assert images.dtype == torch.uint8 and torch.equal(images[:, 0], reference.data)
    assert torch.equal(labels, reference.targets)


@pytest.mark.parametrize(("holdout", "expected"), [(0.2, (48, 12)), (10, (50, 10))])
def test_a_holdout_takes_from_the_training_set(mnist, holdout, expected):
    data = load_dataset(MnistOptions(holdout=holdout), data_root=mnist, seed=0)
    assert (len(data.train), len(data.validation)) == expected
    whole = load_dataset(MnistOptions(), data_root=mnist, seed=0).train.tensors()[0]
    together = torch.cat([data.train.tensors()[0], data.validation.tensors()[0]])
    assert sorted(map(bytes, together.numpy())) == sorted(map(bytes, whole.numpy()))


def test_fashion_classes_have_torchvisions_names(tmp_path):
    write_mnist(tmp_path, "FashionMNIST")
    data = load_dataset(FashionMnistOptions(holdout=10, size=30), data_root=tmp_path, seed=0)
    names = torchvision.datasets.FashionMNIST.classes
    assert list(data.train.classes) == list(data.validation.classes) == names


def test_size_applies_after_the_holdout(mnist):
    data = load_dataset(MnistOptions(holdout=10, size=30), data_root=mnist, seed=0)
    assert (len(data.train), len(data.validation)) == (30, 10)
    with pytest.raises(DatasetError, match=r"`dataset.size` must be at most 50, .* mnist has, got 51"):
        load_dataset(MnistOptions(holdout=10, size=51), data_root=mnist, seed=0)


def test_missing_files_are_named_with_their_folder(mnist):
    with pytest.raises(
        DatasetError, match=r"'fashion_mnist' must have its files in .*FashionMNIST/raw, .*RUNMANAGER_DATA"
    ):
        load_dataset(FashionMnistOptions(), data_root=mnist, seed=0)
    (mnist / "MNIST/raw/t10k-labels-idx1-ubyte").unlink()
    with pytest.raises(DatasetError, match="got no t10k-labels-idx1-ubyte;"):
        load_dataset(MnistOptions(), data_root=mnist, seed=0)


def test_torchvisions_mnist_files_are_read_into_bytes(mnist):
    options = {"name": "custom", "_target_": "torchvision.datasets.MNIST", "size": 50}
    data = load_dataset(options, data_root=mnist, seed=0)
    built_in = load_dataset(MnistOptions(size=50), data_root=mnist, seed=0)
    assert data.in_shape == (1, 28, 28) and data.num_classes == 10
    for one, other in ((data.train, built_in.train), (data.validation, built_in.validation)):
        assert all(torch.equal(*pair) for pair in zip(one.tensors(), other.tensors(), strict=True))


@pytest.mark.parametrize(
    "content", [b"", b"\0\0", b"\0\0\x08\x03\0", b"\0\0\x08\x01\0\0\0\x05abc", b"<html>not found</html>"]
)
def test_a_damaged_file_is_refused(tmp_path, content):
    (tmp_path / "file").write_bytes(content)
    with pytest.raises(DatasetError, match="file must be a complete IDX file"):
        read_idx(tmp_path / "file")


def test_nothing_is_written_if_all_files_exist(mnist):
    before = sorted((path, path.stat().st_mtime_ns) for path in mnist.rglob("*"))
    prepare_dataset(MnistOptions(), data_root=mnist)
    load_dataset(MnistOptions(), data_root=mnist, seed=0)
    assert sorted((path, path.stat().st_mtime_ns) for path in mnist.rglob("*")) == before


def test_mnist_is_read_without_torchvision(mnist):
    code = (
        "import sys; from pathlib import Path; from runmanager.training.datasets.registry import load_dataset;"
        "from runmanager.training.options.groups import MnistOptions;"
        f"load_dataset(MnistOptions(), data_root=Path({str(mnist)!r}), seed=0); sys.exit('torchvision' in sys.modules)"
    )
    assert os.spawnv(os.P_WAIT, sys.executable, [sys.executable, "-c", code]) == 0


def write_cifar(root, monkeypatch, kind, *, label_key, files):
    folder = root / kind.base_folder
    folder.mkdir()
    random = np.random.default_rng(1)
    sums = {}
    for number, name in enumerate(files):
        if "meta" in name:
            entry = {kind.meta["key"]: [str(each) for each in range(10)]}
        else:
            entry = {"data": random.integers(0, 256, (6, 3072), dtype=np.uint8), label_key: [number] * 6}
        content = pickle.dumps(entry)
        (folder / name).write_bytes(content)
        sums[name] = hashlib.md5(content).hexdigest()
    monkeypatch.setattr(kind, "train_list", [[name, sums[name]] for name, _ in kind.train_list])
    monkeypatch.setattr(kind, "test_list", [[name, sums[name]] for name, _ in kind.test_list])
    monkeypatch.setattr(kind, "meta", kind.meta | {"md5": sums[kind.meta["filename"]]})
    return folder


def test_cifar10(tmp_path, monkeypatch):
    files = [f"data_batch_{number}" for number in range(1, 6)] + ["test_batch", "batches.meta"]
    folder = write_cifar(tmp_path, monkeypatch, torchvision.datasets.CIFAR10, label_key="labels", files=files)
    prepare_dataset(Cifar10Options(), data_root=tmp_path)
    data = load_dataset(Cifar10Options(), data_root=tmp_path, seed=0)
    assert data.in_shape == (3, 32, 32) and data.num_classes == 10
    images, labels = data.train.tensors()
    assert images.shape == (30, 3, 32, 32) and images.is_contiguous() and images.dtype == torch.uint8
    assert labels.tolist() == [0] * 6 + [1] * 6 + [2] * 6 + [3] * 6 + [4] * 6
    stored = pickle.loads((folder / "data_batch_1").read_bytes())["data"]
    assert torch.equal(images[0].flatten(), torch.from_numpy(stored[0]))
    assert data.validation.tensors()[1].tolist() == [5] * 6
    (folder / "test_batch").write_bytes(b"damaged")
    with pytest.raises(DatasetError, match="cifar-10-batches-py must hold all files of CIFAR10"):
        load_dataset(Cifar10Options(), data_root=tmp_path, seed=0)


def test_cifar100(tmp_path, monkeypatch):
    kind = torchvision.datasets.CIFAR100
    write_cifar(tmp_path, monkeypatch, kind, label_key="fine_labels", files=["train", "test", "meta"])
    data = load_dataset(Cifar100Options(), data_root=tmp_path, seed=0)
    assert data.num_classes == 100 and len(data.train) == len(data.validation) == 6


def test_real_mnist():
    root = os.environ.get("RUNMANAGER_DATA")
    if not root or not (Path(root) / "MNIST" / "raw").is_dir():
        pytest.skip("RUNMANAGER_DATA names no folder with MNIST/raw")
    data = load_dataset(MnistOptions(holdout=10_000), data_root=Path(root), seed=0)
    assert (len(data.train), len(data.validation)) == (50_000, 10_000)
    images, labels = data.validation.tensors()
    assert images.float().mean().item() == pytest.approx(33.3, abs=0.5)
    assert labels.bincount().min() > 800


def test_val_size_draws_the_same_test_images_for_all_seeds(mnist):
    drawn = [load_dataset(MnistOptions(size=30, val_size=6), data_root=mnist, seed=seed) for seed in (0, 1)]
    assert [(len(data.train), len(data.validation)) for data in drawn] == [(30, 6)] * 2
    assert torch.equal(drawn[0].validation.tensors()[0], drawn[1].validation.tensors()[0])
    with pytest.raises(
        DatasetError, match=r"`dataset\.val_size` must be at most 20, the validation samples that mnist"
    ):
        load_dataset(MnistOptions(val_size=21), data_root=mnist, seed=0)

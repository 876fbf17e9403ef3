"""Generated images are read as MNIST's, by us and by torchvision; the real ones are taken where they are."""

import shutil
from pathlib import Path

import numpy as np
import pytest
import torch
import torchvision

from benchmarks import mnist_files
from benchmarks.mnist_files import MnistFiles, find_or_generate
from runmanager.training.datasets.registry import load_dataset
from runmanager.training.options.dataset import MnistOptions


def test_generated_images_are_mnist_to_every_reader(few_images: MnistFiles) -> None:
    ours = load_dataset(MnistOptions(), data_root=few_images.root, seed=0)
    theirs = torchvision.datasets.MNIST(few_images.root, train=True)
    assert (len(ours.train), len(ours.validation), len(theirs)) == (600, 200, 600)  # type: ignore[arg-type]
    image, label = theirs[17]
    assert torch.equal(ours.train[17][0], torch.from_numpy(np.asarray(image) / np.float32(255)).unsqueeze(0))
    assert int(ours.train[17][1]) == label
    assert set(theirs.targets.tolist()) == set(range(10))


def test_real_images_are_taken_where_they_are(
    few_images: MnistFiles, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    generated = "generated images in MNIST's format"
    for name, marks in (("MNIST", ("GENERATED",)), (generated, ())):
        root = tmp_path / name / "data"
        shutil.copytree(few_images.root, root, ignore=shutil.ignore_patterns(*marks))
        monkeypatch.setenv("RUNMANAGER_DATA", str(root))
        assert find_or_generate(tmp_path) == MnistFiles(root.resolve(), name)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["MNIST", generated]
    monkeypatch.setenv("RUNMANAGER_DATA", str(tmp_path / "nothing"))
    monkeypatch.setattr(mnist_files, "_NUM_TRAINING", 20)
    monkeypatch.setattr(mnist_files, "_NUM_TEST", 10)
    found = find_or_generate(tmp_path / "new")
    assert (found.root, found.name) == (tmp_path / "new", generated)
    assert len(torchvision.datasets.MNIST(found.root, train=False)) == 10

"""User-defined datasets: how their target is called, splits, sample shape and number of classes."""

from pathlib import Path

import pytest
import torch

from runmanager.errors import ConfigurationError, DatasetError, UsageError
from runmanager.training.datasets.array_dataset import ArrayDataset
from runmanager.training.datasets.registry import load_dataset, prepare_dataset

SOURCE = """
import torch
from torch.utils.data import Dataset, IterableDataset, TensorDataset
from runmanager.training.datasets.array_dataset import ArrayDataset

class Plain(Dataset):
    def __init__(self, count=50, **kwargs):
        self.count = count

    def __len__(self):
        return self.count

    def __getitem__(self, index):
        if index >= self.count:
            raise IndexError
        return torch.full((2, 3), float(index)), index % 4

class Split(Plain):
    classes = ["a", "b", "c", "d", "e"]

    def __init__(self, root, train, size=None):
        super().__init__((size or 40) if train else 8)
        self.root = root

class Strings(Plain):
    def __getitem__(self, index):
        return "text", index

class Stream(IterableDataset):
    def __iter__(self):
        yield torch.zeros(1), 0

def arrays(num_classes):
    return ArrayDataset(torch.zeros(30, 1, 4, 4, dtype=torch.uint8), torch.arange(30) % num_classes)

def tensors():
    dataset = TensorDataset(torch.arange(60.0).view(30, 2), torch.arange(30) % 4)
    dataset.classes = list("abcdef")
    return dataset

def nothing():
    return Plain(0)
"""


@pytest.fixture
def load(own_module):
    own_module("mydata", SOURCE)

    def loaded(name, seed=0, **settings):
        options = {"name": "custom", "_target_": f"mydata.{name}", **settings}
        prepare_dataset(options, data_root=Path("somewhere"))
        return load_dataset(options, data_root=Path("somewhere"), seed=seed)

    return loaded


def lengths(data):
    return len(data.train), len(data.validation)


def test_a_dataset_without_a_train_argument_is_split(load):
    data = load("Plain")
    assert lengths(data) == (40, 10)
    assert data.in_shape == (2, 3) and data.num_classes == 4
    seen = [int(each[0][0, 0]) for part in (data.train, data.validation) for each in part]
    assert sorted(seen) == list(range(50))


def test_holdout_size_and_num_classes_are_applied(load):
    data = load("Plain", count=60, holdout=20, size=25, num_classes=9)
    assert lengths(data) == (25, 20) and data.num_classes == 9
    with pytest.raises(DatasetError, match=r"`dataset.size` must be at most 40, .* mydata.Plain has, got 41"):
        load("Plain", size=41)


def test_the_seed_decides_the_split(load):
    first, again, other = ([each[1] for each in load("Plain", seed=seed).validation] for seed in (0, 0, 5))
    assert first == again != other


def test_a_dataset_with_a_train_argument_is_created_twice(load):
    data = load("Split", size=33)
    assert lengths(data) == (33, 8)
    assert data.num_classes == 5 and data.train.root == Path("somewhere")
    assert lengths(load("Split", holdout=0.25)) == (30, 10)
    assert lengths(load("Split", train=True)) == (
        32,
        8,
    )  # the user's `train` has precedence, so there is one dataset to split


def test_an_array_dataset_is_kept(load):
    data = load("arrays", num_classes=3, holdout=0.5)
    assert lengths(data) == (15, 15) and data.num_classes == 3
    assert data.train.tensors()[0].dtype == torch.uint8


def test_in_memory_datasets_are_converted_with_their_classes(load):
    data = load("tensors", size=10)
    assert isinstance(data.train, ArrayDataset) and isinstance(data.validation, ArrayDataset)
    assert lengths(data) == (10, 6) and data.in_shape == (2,) and data.num_classes == 6


@pytest.mark.parametrize(
    ("name", "settings", "error", "message"),
    [
        ("Strings", {}, DatasetError, r"samples of mydata.Strings must be pairs of a tensor .*, got \(str, int\)"),
        ("Stream", {}, DatasetError, "must make a dataset with a length .* got a Stream"),
        ("nothing", {}, DatasetError, "must make a dataset with samples, got an empty one"),
        ("Plane", {}, ConfigurationError, "mydata has no 'Plane'; did you mean 'Plain'"),
        ("Split", {"sise": 3}, ConfigurationError, "`dataset.sise` must be an argument of mydata.Split.*'size'"),
        ("arrays", {}, ConfigurationError, "must be given 'num_classes'"),
        ("Plain", {"size": "many", "holdout": 0}, ConfigurationError, "`dataset.holdout` (?s:.*)`dataset.size`"),
    ],
)
def test_unusable_targets_and_samples_are_explained(load, name, settings, error, message):
    with pytest.raises(error, match=message):
        load(name, **settings)


def test_options_of_another_type_are_refused():
    with pytest.raises(UsageError, match="dataset dataclass"):
        load_dataset(object(), data_root=Path(), seed=0)

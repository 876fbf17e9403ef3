"""Looking up again what a loader gave, and what its classes are called."""

from typing import Any

import pytest
import torch
from torch.utils.data import DataLoader, Dataset, IterableDataset, Subset

from runmanager import DeviceDataLoader
from runmanager.tracking.introspect.loader_samples import class_names, read_samples

from ..conftest import images

PLACES = [37, 0, 21]


class Named(Dataset[Any]):
    """A set whose classes have names, and whose samples draw a random number."""

    classes = ("cat", "dog")

    def __len__(self) -> int:
        return 40

    def __getitem__(self, index: int) -> tuple[torch.Tensor, int]:
        torch.rand(1)
        return torch.full((1, 2, 2), float(index)), index % 2


@pytest.mark.parametrize(
    "loader",
    [
        DataLoader(images(), batch_size=20),
        DeviceDataLoader(DataLoader(images(), batch_size=7, num_workers=1), "cpu"),
        list(DataLoader(images(), batch_size=20)),
    ],
    ids=["a loader", "one that moves its batches", "a list of batches"],
)
def test_the_samples_are_those_that_came_there(loader: Any) -> None:
    whole, labels = images().tensors
    found = read_samples(loader, PLACES)
    assert found is not None
    assert torch.equal(found[0], whole[PLACES]) and torch.equal(found[1], labels[PLACES])


def test_no_random_state_moves() -> None:
    loader = DataLoader(Named(), batch_size=4)
    before = torch.get_rng_state()
    found = read_samples(loader, PLACES)
    assert found is not None and found[1].tolist() == [1, 0, 1]
    assert torch.equal(torch.get_rng_state(), before)


class Stream(IterableDataset[Any]):
    def __iter__(self) -> Any:
        return iter(())


@pytest.mark.parametrize(
    "loader",
    [
        DataLoader(images(), batch_size=20, shuffle=True),
        DataLoader(Stream(), batch_size=2),
        DataLoader(images(), batch_size=None),
        (batch for batch in ()),
        [torch.zeros(3, 2)],
        None,
    ],
    ids=["shuffled", "a stream", "unbatched", "a generator", "without labels", "nothing"],
)
def test_what_cannot_be_looked_up_is_left_alone(loader: Any) -> None:
    assert read_samples(loader, [0]) is None


def test_names_are_the_datasets_or_numbers() -> None:
    loader = DataLoader(Subset(Subset(Named(), range(30)), range(10)), batch_size=4)
    assert class_names(DeviceDataLoader(loader, "cpu"), 2) == ["cat", "dog"]
    assert class_names(loader, 3) == ["0", "1", "2"]  # they are not the names of these
    assert class_names(DataLoader(images()), 2) == class_names(None, 2) == ["0", "1"]

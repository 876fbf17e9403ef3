"""What can be read of a loader, and that reading it changes nothing."""

import random
from collections.abc import Iterator
from typing import Any, ClassVar

import numpy as np
import pytest
import torch
from torch.utils.data import DataLoader, Dataset, IterableDataset, Sampler, Subset, TensorDataset

from runmanager import DeviceDataLoader
from runmanager.tracking.introspect.loader_inspection import (
    batch_images,
    class_names,
    count_samples,
    peek_batch,
    read_samples,
)

from ..conftest import images

INDICES = [37, 0, 21]


class Augmented(Dataset[Any]):
    """Draws from every global generator for each sample, as augmentations do."""

    def __len__(self) -> int:
        return 100

    def __getitem__(self, index: int) -> tuple[torch.Tensor, int]:
        noise = torch.rand(1, 8, 8) + float(np.random.rand()) + random.random()
        return noise, index % 3


def global_states() -> tuple[Any, ...]:
    return torch.get_rng_state().tolist(), random.getstate(), [str(part) for part in np.random.get_state()]


@pytest.mark.parametrize("num_workers", [0, 1])
def test_peeking_moves_no_random_state_and_starts_no_worker(num_workers: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(DataLoader, "__iter__", lambda self: pytest.fail("the loader must not be iterated"))
    generator = torch.Generator().manual_seed(1)
    loader = DataLoader(Augmented(), batch_size=16, shuffle=True, num_workers=num_workers, generator=generator)
    before, own = global_states(), generator.get_state()
    inputs, labels = peek_batch(loader)
    assert inputs.shape == (16, 1, 8, 8) and labels.tolist() == [index % 3 for index in range(16)]
    assert global_states() == before
    assert torch.equal(generator.get_state(), own)


def test_peeking_does_not_change_the_next_shuffle() -> None:
    def order(peeks: bool) -> list[int]:
        torch.manual_seed(5)
        loader = DataLoader(TensorDataset(torch.arange(30)), batch_size=7, shuffle=True)
        if peeks:
            peek_batch(loader)
        return [int(value) for (batch,) in loader for value in batch]

    assert order(peeks=True) == order(peeks=False)


def test_at_most_64_samples_are_read() -> None:
    inputs, _ = peek_batch(DataLoader(images(300), batch_size=200))
    assert len(inputs) == 64
    assert len(peek_batch(DataLoader(images(5), batch_size=200))[0]) == 5


def test_a_device_loader_is_unwrapped() -> None:
    wrapped = DeviceDataLoader(DataLoader(images(), batch_size=10, shuffle=True), "meta")
    inputs, _ = peek_batch(wrapped)
    assert inputs.shape[0] == 10 and inputs.device.type == "cpu"


def test_a_list_gives_its_first_batch_and_a_built_in_loader_its_first_samples() -> None:
    batch = (torch.zeros(2, 3), torch.zeros(2))
    assert peek_batch([batch, batch]) is batch
    assert peek_batch([]) is None

    class BuiltIn:
        def first_samples(self, count: int) -> int:
            return count

    assert peek_batch(BuiltIn()) == 64


def test_iterators_are_not_consumed() -> None:
    batches = iter([1, 2, 3])
    assert peek_batch(batches) is None
    assert list(batches) == [1, 2, 3]
    generated = (number for number in range(3))
    assert peek_batch(DeviceDataLoader(generated, "cpu")) is None
    assert list(generated) == [0, 1, 2]
    assert peek_batch(None) is None


class Stream(IterableDataset[Any]):
    def __iter__(self) -> Iterator[Any]:
        pytest.fail("a stream must not be iterated")


class Keyed(Dataset[Any]):
    """A dataset with keys that only its sampler knows."""

    def __len__(self) -> int:
        return 2

    def __getitem__(self, key: str) -> torch.Tensor:
        return {"a": torch.zeros(1), "b": torch.ones(1)}[key]


class Keys(Sampler[str]):
    def __iter__(self) -> Iterator[str]:
        return iter("ab")


def test_datasets_without_first_samples_give_none() -> None:
    assert peek_batch(DataLoader(Stream(), batch_size=2)) is None
    assert peek_batch(DataLoader(TensorDataset(torch.zeros(0, 2)), batch_size=2)) is None
    assert peek_batch(DataLoader(Keyed(), batch_size=2, sampler=Keys())) is None


def test_a_dataset_of_whole_batches_gives_its_first_one() -> None:
    class Batches(Dataset[Any]):
        def __len__(self) -> int:
            return 3

        def __getitem__(self, index: int) -> tuple[torch.Tensor, torch.Tensor]:
            return torch.full((6, 1, 8, 8), float(index)), torch.zeros(6)

    inputs, _ = peek_batch(DataLoader(Batches(), batch_size=None))
    assert inputs.shape == (6, 1, 8, 8)


def test_a_batch_sampler_is_not_iterated() -> None:
    class Refusing(Sampler[list[int]]):
        def __iter__(self) -> Iterator[list[int]]:
            pytest.fail("the sampler must not be iterated")

    inputs, _ = peek_batch(DataLoader(images(), batch_sampler=Refusing()))
    assert len(inputs) == 50


def test_images_are_taken_from_a_batch() -> None:
    grey, labels = torch.rand(70, 1, 8, 8), torch.zeros(70)
    assert torch.equal(batch_images((grey, labels), 64), grey[:64])
    assert torch.equal(batch_images([grey.expand(-1, 3, -1, -1), labels], 64), grey.expand(-1, 3, -1, -1)[:64])
    whole = torch.randint(0, 256, (2, 1, 8, 8), dtype=torch.uint8)
    assert torch.equal(batch_images(whole, 64), whole)
    normalised = batch_images((torch.randn(4, 3, 8, 8) * 3, labels), 64)
    assert float(normalised.min()) == 0.0 and float(normalised.max()) == 1.0


def test_large_images_are_reduced() -> None:
    dark_and_light = torch.zeros(70, 3, 512, 384, dtype=torch.uint8)
    dark_and_light[:, :, 256:] = 201
    shown = batch_images(dark_and_light, 64)
    assert shown.shape == (64, 3, 64, 48) and shown.dtype == torch.uint8
    assert set(shown[:, :, :32].unique().tolist()) == {0} and set(shown[:, :, 32:].unique().tolist()) == {201}
    assert batch_images(torch.rand(1, 1, 3, 1000), 64).shape == (1, 1, 1, 64)


@pytest.mark.parametrize(
    "batch", [(), {"images": 1}, torch.tensor(1.0), (torch.rand(4, 8), 1), (torch.rand(4, 5, 8, 8), 1), "word"]
)
def test_a_batch_without_images_gives_none(batch: Any) -> None:
    assert batch_images(batch, 64) is None


class Whole(Dataset[Any]):
    """A dataset of whole batches."""

    def __len__(self) -> int:
        return 3

    def __getitem__(self, index: int) -> tuple[torch.Tensor, torch.Tensor]:
        return torch.zeros(7, 2), torch.zeros(7)


class Named(Dataset[Any]):
    """A dataset with class names whose samples draw a random number."""

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
    ids=["DataLoader", "DeviceDataLoader", "list of batches"],
)
def test_samples_are_read_again_by_their_index(loader: Any) -> None:
    whole, labels = images().tensors
    found = read_samples(loader, INDICES)
    assert found is not None
    assert torch.equal(found[0], whole[INDICES]) and torch.equal(found[1], labels[INDICES])


def test_reading_samples_changes_no_random_state() -> None:
    loader = DataLoader(Named(), batch_size=4)
    before = torch.get_rng_state()
    found = read_samples(loader, INDICES)
    assert found is not None and found[1].tolist() == [1, 0, 1]
    assert torch.equal(torch.get_rng_state(), before)


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
    ids=["shuffled", "stream", "unbatched", "generator", "without labels", "None"],
)
def test_samples_that_cannot_be_read_again_give_none(loader: Any) -> None:
    assert read_samples(loader, [0]) is None


def test_class_names_are_the_datasets_or_else_numbers() -> None:
    loader = DataLoader(Subset(Subset(Named(), range(30)), range(10)), batch_size=4)
    assert class_names(DeviceDataLoader(loader, "cpu"), 2) == ["cat", "dog"]
    assert class_names(loader, 3) == ["0", "1", "2"]  # two names cannot be those of three classes
    assert class_names(DataLoader(images()), 2) == class_names(None, 2) == ["0", "1"]


@pytest.mark.parametrize(
    ("batch", "count"),
    [
        ((torch.zeros(8, 3), torch.zeros(8)), 8),
        (torch.zeros(5, 2).to_sparse(), 5),
        ({"ids": torch.zeros(4, 9), "mask": torch.zeros(4, 9), "scale": torch.tensor(2.0)}, 4),
        (({"ids": torch.zeros(4, 9)}, torch.zeros(4)), 4),
        (([torch.zeros(8, 3), torch.zeros(8, 5)], torch.zeros(8)), 8),
        (([torch.zeros(3, 4, 4)] * 5, [{"boxes": torch.zeros(2, 4)}] * 5), 5),
        ((["a", "b"], torch.zeros(2)), 2),
        ((np.zeros((6, 2)), np.zeros(6)), 6),
        (torch.nn.utils.rnn.pack_sequence([torch.zeros(3, 4), torch.zeros(2, 4)]), 2),
        ({"weights": torch.zeros(3), "x": torch.zeros(7, 2)}, None),
        ([(torch.zeros(3, 4, 4), torch.tensor(1))] * 5, None),
        ([{"image": torch.zeros(3, 4, 4)}] * 5, None),
        ([[1, 2, 3], [4, 5, 6]], None),
        ((torch.tensor(1.0), torch.tensor(2)), None),
        ("word", None),
        (None, None),
    ],
)
def test_samples_are_counted_only_where_it_is_certain(batch: Any, count: int | None) -> None:
    assert count_samples(batch) == count


def test_few_large_samples_are_read() -> None:
    class Large(Dataset[torch.Tensor]):
        """Samples of 100 MiB, which take no memory here."""

        read: ClassVar[list[int]] = []

        def __len__(self) -> int:
            return 1000

        def __getitem__(self, index: int) -> torch.Tensor:
            self.read.append(index)
            return torch.zeros(1).expand(25 << 20)

    assert len(peek_batch(DataLoader(Large(), batch_size=500, collate_fn=list))) == 2 and Large.read == [0, 1]


def test_images_without_pixels_or_of_another_layout_are_not_shown() -> None:
    for batch in (torch.rand(0, 1, 8, 8), torch.rand(2, 3, 0, 8), torch.rand(2, 1, 8, 8).to_sparse()):
        assert batch_images(batch, 64) is None


def test_only_what_is_shown_of_huge_images_is_copied() -> None:
    huge = torch.full((1, 3, 1, 1), 201, dtype=torch.uint8).expand(1000, 3, 50_000, 50_000)
    shown = batch_images(huge, 4)
    assert shown is not None and shown.shape == (4, 3, 64, 64) and shown.unique().tolist() == [201]

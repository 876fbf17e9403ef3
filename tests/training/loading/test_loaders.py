"""The loaders: equal batches from both and from any number of workers, without global random numbers."""

import random
from pathlib import Path

import numpy as np
import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils.data import DataLoader, Dataset, RandomSampler, Subset

from runmanager.errors import ConfigurationError, DatasetError, UsageError
from runmanager.tracking.device.transfer import Packed, to_device
from runmanager.tracking.introspect.loader_inspection import class_names
from runmanager.training.datasets.array_dataset import ArrayDataset, subset
from runmanager.training.datasets.registry import Data, load_dataset
from runmanager.training.loading import batch_sampler
from runmanager.training.loading.batch_sampler import epoch_order, epoch_seed
from runmanager.training.loading.loaders import ResidentLoader, build_loaders
from runmanager.training.options.dataset import FakeOptions
from runmanager.training.options.groups import CnnOptions, DataLoaderOptions, ResidentOptions

# With one core PyTorch warns about two workers; the batches are the same.
pytestmark = pytest.mark.filterwarnings("ignore:This DataLoader will create")
CPU = torch.device("cpu")


class Samples(Dataset):
    """A user-defined dataset with noise from the global generators."""

    def __init__(self, noise=0.0, transform=None):
        self.noise = noise
        self.transform = transform

    def __len__(self):
        return 23

    def __getitem__(self, index):
        assert type(index) is int
        drawn = self.noise * (torch.rand(1).item() + random.random() + np.random.random())
        sample = torch.tensor([float(index) + drawn])
        return (sample if self.transform is None else self.transform(sample)), index % 3


@pytest.fixture(scope="module")
def data():
    options = FakeOptions(size=103, val_size=31, in_shape=[1, 4, 4], num_classes=3)
    return load_dataset(options, data_root=Path("unused"), seed=0)


def build(options, data, *, batch_size=20, num_workers=0, seed=0, device=CPU, messages=None):
    return build_loaders(
        options,
        data,
        batch_size=batch_size,
        eval_batch_size=16,
        num_workers=num_workers,
        device=device,
        seed=seed,
        notify=[].append if messages is None else messages.append,
    )


def epoch(loader, number=1):
    loader.set_epoch(number)
    return [(images.clone(), labels.clone()) for images, labels in loader]


def same(one, other):
    return len(one) == len(other) and all(
        torch.equal(a, c) and torch.equal(b, d) for (a, b), (c, d) in zip(one, other, strict=True)
    )


@pytest.mark.parametrize("options", [DataLoaderOptions(), ResidentOptions()])
def test_an_epoch_has_every_sample_once_and_a_smaller_last_batch(data, options):
    loaders = build(options, data)
    batches = epoch(loaders.train)
    assert [len(labels) for _, labels in batches] == [20] * 5 + [3]
    assert len(loaders.train) == 6 and loaders.train.num_samples == 103
    assert all(images.dtype == torch.float32 and labels.dtype == torch.int64 for images, labels in batches)
    seen = torch.cat([images for images, _ in batches]).mul(255).round().to(torch.uint8)
    assert sorted(map(bytes, seen.numpy())) == sorted(map(bytes, data.train.tensors()[0].numpy()))
    assert len(loaders.validation) == 2 and loaders.validation.num_samples == 31
    validation = torch.cat([labels for _, labels in epoch(loaders.validation, 4)])
    assert torch.equal(validation, data.validation.tensors()[1])


def test_both_loaders_and_any_number_of_workers_yield_equal_batches(data):
    reference = build(DataLoaderOptions(), data)
    others = [build(ResidentOptions(), data), build(DataLoaderOptions(), data, num_workers=1)]
    others.append(build(DataLoaderOptions(persistent_workers=False, prefetch_factor=3), data, num_workers=2))
    for number in (1, 2):
        expected = epoch(reference.train, number)
        for other in others:
            assert same(epoch(other.train, number), expected)
    assert same(epoch(others[0].validation), epoch(reference.validation))


def test_gathering_several_batches_together_changes_none(data, monkeypatch):
    expected = epoch(build(ResidentOptions(), data).train)
    monkeypatch.setattr(ResidentLoader, "_batches_per_chunk", lambda _: 4)  # as on an accelerator
    assert same(epoch(build(ResidentOptions(), data).train), expected)


def test_the_next_epochs_order_is_drawn_at_the_end_of_an_epoch(data, monkeypatch):
    """At that time an accelerator still has queued steps; at the beginning of an epoch it would wait."""
    expected = [epoch(build(ResidentOptions(), data).train, number) for number in (1, 2, 4, 4, 3)]
    drawn = []

    def draw(num_samples, *, seed, epoch):
        drawn.append(epoch)
        return epoch_order(num_samples, seed=seed, epoch=epoch)

    monkeypatch.setattr(batch_sampler, "epoch_order", draw)
    loader = build(ResidentOptions(), data).train
    loader.set_epoch(1)
    batches = iter(loader)
    next(batches)
    assert drawn == [1]
    list(batches)
    assert drawn == [1, 2]
    assert same(epoch(loader, 2), expected[1]) and drawn == [1, 2, 3]
    # Any other epoch can still be selected.
    for number, batches in zip((4, 4, 3), expected[2:], strict=True):
        assert same(epoch(loader, number), batches)


class Gathering(TorchDispatchMode):
    """Records the bytes of each gather operation."""

    def __init__(self):
        super().__init__()
        self.most = 0

    def __torch_dispatch__(self, function, types, args=(), kwargs=None):
        made = function(*args, **(kwargs or {}))
        if function is torch.ops.aten.index_select.default:
            self.most = max(self.most, made.nbytes)
        return made


def test_an_accelerator_gathers_a_small_part_of_the_dataset_at_a_time():
    images = torch.zeros(6400, 8, 8, dtype=torch.uint8)
    stored = ArrayDataset(images, torch.zeros(6400))
    loader = build(ResidentOptions(), Data(stored, stored, (8, 8), 1), batch_size=100, device=META).train
    with Gathering() as gathering:
        assert sum(len(labels) for _, labels in loader) == 6400
    assert images.nbytes / 17 <= gathering.most <= images.nbytes / 16


def test_the_order_equals_that_of_pytorchs_random_sampler():
    generator = torch.Generator().manual_seed(epoch_seed(7, 3))
    drawn = list(RandomSampler(range(103), generator=generator))
    assert epoch_order(103, seed=7, epoch=3).tolist() == drawn


@pytest.mark.parametrize("options", [DataLoaderOptions(), ResidentOptions()])
def test_the_batches_equal_those_of_pytorchs_loader_with_the_same_seed(data, options):
    sampler = RandomSampler(data.train, generator=torch.Generator().manual_seed(epoch_seed(0, 3)))
    theirs = DataLoader([data.train[index] for index in range(103)], batch_size=20, sampler=sampler)
    assert same(epoch(build(options, data).train, 3), list(theirs))


@pytest.mark.parametrize("options", [DataLoaderOptions(), ResidentOptions()])
def test_an_epoch_depends_only_on_the_seed_and_its_number(data, options):
    whole = [epoch(build(options, data).train, number) for number in (1, 2, 3)]
    resumed = build(options, data).train
    assert same(epoch(resumed, 3), whole[2]) and same(epoch(resumed, 2), whole[1])
    assert not same(whole[0], whole[1])
    assert not same(epoch(build(options, data, seed=1).train), whole[0])


@pytest.mark.parametrize("options", [DataLoaderOptions(shuffle=False), ResidentOptions(shuffle=False)])
def test_without_shuffling_the_dataset_order_is_kept(data, options):
    labels = torch.cat([labels for _, labels in epoch(build(options, data).train, 2)])
    assert torch.equal(labels, data.train.tensors()[1])


def states():
    return torch.get_rng_state(), random.getstate(), np.random.get_state()


def unchanged(before):
    now = states()
    return torch.equal(now[0], before[0]) and now[1] == before[1] and (now[2][1] == before[2][1]).all()


@pytest.mark.parametrize(
    ("options", "workers"), [(DataLoaderOptions(), 0), (DataLoaderOptions(), 1), (ResidentOptions(), 0)]
)
def test_global_random_states_are_unchanged(data, options, workers):
    loaders = build(options, data, num_workers=workers)
    before = states()
    epoch(loaders.train)
    epoch(loaders.validation)
    loaders.train.first_samples(5)
    assert unchanged(before)


def test_first_samples_change_no_random_state(data):
    custom = Data(Samples(noise=1.0), Samples(), (1,), 3)
    loader = build(DataLoaderOptions(), custom, num_workers=1).train
    before = states()
    images, labels = loader.first_samples(4)
    assert unchanged(before) and images.shape == (4, 1) and labels.tolist() == [0, 1, 2, 0]
    for options in (DataLoaderOptions(), ResidentOptions()):
        images, labels = build(options, data).train.first_samples(200)
        assert len(images) == 103 and torch.equal(labels, data.train.tensors()[1])


@pytest.mark.parametrize("options", [DataLoaderOptions(), ResidentOptions()], ids=lambda options: options.name)
def test_samples_and_class_names_can_be_looked_up(options):
    arrays = ArrayDataset(torch.arange(9.0)[:, None], torch.arange(9) % 3, classes=["a", "b", "c"])
    own = Subset(Samples(), range(9))
    own.dataset.classes = ["a", "b", "c"]
    for dataset in (arrays, arrays.take(range(9)), own):
        loader = build(options, Data(dataset, dataset, (1,), 3)).validation
        images, labels = loader.samples([7, 0, 5])
        assert images.flatten().tolist() == [7.0, 0.0, 5.0] and labels.tolist() == [1, 0, 2]
        assert class_names(loader, 3) == ["a", "b", "c"]


def test_a_custom_dataset_works_with_both_loaders():
    custom = Data(Samples(), Samples(), (1,), 3)
    one, other = build(DataLoaderOptions(), custom).train, build(ResidentOptions(), custom).train
    batches = epoch(one)
    assert isinstance(next(iter(one)), tuple)
    assert batches[0][0].shape == (20, 1) and batches[0][1].dtype == torch.int64
    assert same(batches, epoch(other))


class Tokens(Dataset):
    """Integers, as for an embedding; samples from index `odd_from` on have three values."""

    def __init__(self, dtype, odd_from=200):
        self.dtype, self.odd_from = dtype, odd_from

    def __len__(self):
        return 128

    def __getitem__(self, index):
        return torch.full((3 if index >= self.odd_from else 1,), index, dtype=self.dtype), torch.tensor(index % 3).int()


@pytest.mark.parametrize("dtype", [torch.uint8, torch.int64, torch.float64])
def test_values_of_a_custom_dataset_are_unchanged(dtype):
    custom = Data(Tokens(dtype), Tokens(dtype), (1,), 3)
    one, other = (epoch(build(options, custom).train) for options in (DataLoaderOptions(), ResidentOptions()))
    assert one[0][0].dtype == other[0][0].dtype == dtype and one[0][1].dtype == other[0][1].dtype == torch.int64
    assert same(one, other)


def test_resident_samples_must_have_one_shape_and_type():
    custom = Data(Tokens(torch.int64, odd_from=64), Tokens(torch.int64), (1,), 3)
    with pytest.raises(DatasetError, match=r"must have one shape and type .* got \(1,\) of torch.int64 and \(3,\)"):
        build(ResidentOptions(), custom)


def halved(sample):
    return sample / 2


class Whole(Samples):
    num_calls = 0

    def __getitems__(self, indices):
        self.num_calls += 1
        return [self[index] for index in indices]


def test_a_resident_dataset_is_read_in_batches_if_it_supports_them():
    whole = Whole()
    batches = epoch(build(ResidentOptions(), Data(whole, subset(whole, [4, 2]), (1,), 3)).train)
    assert same(batches, epoch(build(ResidentOptions(), Data(Samples(), Samples(), (1,), 3)).train))
    assert whole.num_calls == 2  # once for all samples, once for the subset


def test_a_transform_is_applied_and_reported():
    custom = Data(Samples(transform=halved), subset(Samples(transform=halved), [3, 5]), (1,), 3)
    messages = []
    batches = epoch(build(DataLoaderOptions(), custom, messages=messages).train)
    assert set(messages) == {"loader: samples are read one by one, through the dataset's transform (halved)"}
    assert sorted(torch.cat([images for images, _ in batches]).flatten().tolist()) == [each / 2 for each in range(23)]
    messages.clear()
    assert same(epoch(build(ResidentOptions(), custom, messages=messages).train), batches)
    once = "loader: samples are read once, before training: the dataset's transform (halved) runs only once"
    assert set(messages) == {once}


def test_without_a_transform_nothing_is_reported(data):
    messages = []
    for options in (DataLoaderOptions(), ResidentOptions()):
        build(options, data, messages=messages)
        build(options, Data(Samples(), Samples(), (1,), 3), messages=messages)
    build(DataLoaderOptions(), Data(Whole(transform=halved), Whole(transform=halved), (1,), 3), messages=messages)
    assert messages == []


META = torch.device("meta")  # in place of an accelerator


def test_bytes_are_copied_to_an_accelerator_and_converted_there(data):
    expected = epoch(build(DataLoaderOptions(), data).train)
    for workers in (0, 1):
        sent = list(build(DataLoaderOptions(pin_memory=False), data, num_workers=workers, device=META).train)
        assert all(isinstance(images, Packed) and images.stored.dtype == torch.uint8 for images, _ in sent)
        assert same([to_device(batch, CPU) for batch in sent], expected)
        images, labels = to_device(sent[0], META)
        assert images.device.type == labels.device.type == "meta" and images.dtype == torch.float32


def test_a_resident_dataset_on_the_cpu_shares_its_memory(data):
    loader = build(ResidentOptions(shuffle=False), data).train
    images = data.train.tensors()[0]
    before = images[0].clone()
    try:
        images[0] = 255 - before
        assert torch.equal(next(iter(loader))[0][0], data.train[0][0])
    finally:
        images[0] = before


def test_workers_are_seeded():
    custom = Data(Samples(noise=1.0), Samples(), (1,), 3)
    runs = [epoch(build(DataLoaderOptions(), custom, num_workers=2, seed=seed).train) for seed in (0, 0, 1)]
    assert same(runs[0], runs[1])
    noise = [torch.cat([images.flatten() for images, _ in run]).remainder(1).sort().values for run in runs]
    assert not torch.equal(noise[0], noise[2])
    assert len(noise[0].unique()) == 23  # each worker draws other numbers


@pytest.mark.parametrize("persistent", [True, False])
def test_random_numbers_in_workers_depend_only_on_the_epoch(persistent):
    custom = Data(Samples(noise=1.0), Samples(noise=1.0), (1,), 3)
    options = DataLoaderOptions(persistent_workers=persistent)
    whole, resumed = (build(options, custom, num_workers=2) for _ in range(2))
    first = epoch(whole.train, 1)
    second = epoch(whole.train, 2)
    assert same(second, epoch(resumed.train, 2)), "workers that lived through the first epoch draw as new ones do"
    assert not same(first, second)
    validations = [list(whole.validation) for _ in range(2)]  # without `set_epoch`
    assert same(validations[0], validations[1]) and same(validations[1], list(resumed.validation))


def test_changing_a_batch_in_place_does_not_change_the_resident_dataset():
    still = ArrayDataset(torch.ones(6, 2), torch.zeros(6))
    loaders = build(ResidentOptions(shuffle=False), Data(still, still, (2,), 1), batch_size=4)
    for loader in (loaders.train, loaders.validation):
        for images, labels in loader:
            images.zero_()
            labels.add_(1)
        assert all(images.sum() == images.numel() and labels.sum() == 0 for images, labels in loader)


def test_unsupported_options_are_refused(data):
    with pytest.raises(ConfigurationError, match=r"`num_workers` must be 0 with `loader=resident`.*got 2; use"):
        build(ResidentOptions(), data, num_workers=2)
    with pytest.raises(UsageError, match="loader dataclass"):
        build(CnnOptions(), data)

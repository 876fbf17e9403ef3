"""The prefetching loader yields the wrapped loader's batches, each copied one step ahead."""

from pathlib import Path

import pytest
import torch

from runmanager.tracking.device.transfer import PendingBatch
from runmanager.tracking.options import STREAMING_DEVICES
from runmanager.training import job as prefetching
from runmanager.training.datasets.registry import load_dataset
from runmanager.training.job import with_prefetch
from runmanager.training.loading.loaders import build_loaders
from runmanager.training.options.dataset import FakeOptions
from runmanager.training.options.groups import DataLoaderOptions, ResidentOptions

CPU = torch.device("cpu")


class Lane:
    """Copies nothing; records the batches in flight."""

    def __init__(self, device=CPU):
        self.device = device
        self.sent = self.arrived = 0

    def send(self, batch):
        self.sent += 1
        return PendingBatch(batch, None, self)

    def arrive(self, sent):
        self.arrived += 1


def loaders(options=None):
    data = load_dataset(FakeOptions(size=23, val_size=7, in_shape=[1, 4, 4]), data_root=Path("unused"), seed=0)
    options = options or DataLoaderOptions(prefetch_to_device=True)
    given = {"batch_size": 5, "eval_batch_size": 4, "num_workers": 0, "device": CPU, "seed": 0, "notify": print}
    return options, build_loaders(options, data, **given)


@pytest.fixture
def ahead(monkeypatch):
    monkeypatch.setattr(prefetching, "SideStream", Lane)
    options, plain = loaders()
    return plain, with_prefetch(options, plain, device=torch.device("cuda"))


def test_the_batches_are_the_same_and_one_is_always_in_flight(ahead):
    for plain, sending in zip(*([each.train, each.validation] for each in ahead), strict=True):
        assert (len(sending), sending.num_samples, sending.batch_size) == (
            len(plain),
            plain.num_samples,
            plain.batch_size,
        )
        for number in (1, 2):
            plain.set_epoch(number)
            expected = list(plain)
            sending.set_epoch(number)
            for step, (sent, batch) in enumerate(zip(sending, expected, strict=True), start=1):
                lane = sent.copier
                assert len(sent[1]) == len(batch[1])
                assert all(torch.equal(*pair) for pair in zip(sent.arrived(), batch, strict=True))
                assert lane.sent - lane.arrived == (0 if step == len(plain) else 1)
        assert torch.equal(sending.first_samples(3)[0], plain.first_samples(3)[0])
        assert torch.equal(sending.samples([2, 1])[0], plain.samples([2, 1])[0]) and sending.dataset is plain.dataset


@pytest.mark.parametrize(
    ("options", "device"),
    [
        (DataLoaderOptions(prefetch_to_device=True), "cpu"),
        (DataLoaderOptions(prefetch_to_device=True), "mps"),
        (DataLoaderOptions(), "cuda"),
        (ResidentOptions(), "cuda"),
    ],
)
def test_without_the_setting_or_device_nothing_is_prefetched(options, device):
    given, plain = loaders(options)
    assert with_prefetch(given, plain, device=torch.device(device)) is plain


def test_prefetching_needs_pinned_memory():
    (line,) = DataLoaderOptions(prefetch_to_device=True, pin_memory=False).faults()
    assert line.startswith("`loader.pin_memory` must be true or null with `loader.prefetch_to_device=true`, got false;")
    assert not DataLoaderOptions(prefetch_to_device=True).faults()
    assert "cuda" in STREAMING_DEVICES

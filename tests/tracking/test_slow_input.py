"""What a real run's record says of its bottleneck, where the dataset is slow."""

import time

import pytest
import torch
from torch.utils.data import DataLoader, Dataset

from runmanager import RunManager
from runmanager.results.bottleneck import find_bottleneck


class Slow(Dataset):
    """Takes 5 ms for each of 40 samples: far longer than a step of a small network on all of them."""

    def __len__(self):
        return 40

    def __getitem__(self, index):
        time.sleep(0.005)
        return torch.rand(1, 8, 8, generator=torch.Generator().manual_seed(index)), index % 3


def test_a_slow_dataset_bounds_its_run(tmp_path, network, train, only_run):
    loader = DataLoader(Slow(), batch_size=20)
    with RunManager(tmp_path / "sweep").run({"device": "cpu"}, network, loader) as run:
        train(run, network, loader, epochs=3)
    found = find_bottleneck(only_run())
    assert found.kind == "input"
    assert found.at_most == pytest.approx(1 / (1 - found.share))
    assert found.cure == ""  # a loop of one's own: no setting of ours loads it otherwise

"""The bottleneck found from a real run's record, with a slow dataset."""

import pytest
import torch
from torch.utils.data import DataLoader, Dataset

from runmanager import RunManager
from runmanager.results.findings.bottleneck import find_bottleneck


class Slow(Dataset):
    """40 samples that take a minute each, far longer than a step of a small network."""

    def __init__(self, wait):
        self.wait = wait

    def __len__(self):
        return 40

    def __getitem__(self, index):
        self.wait(60)
        return torch.rand(1, 8, 8, generator=torch.Generator().manual_seed(index)), index % 3


def test_a_slow_dataset_bounds_its_run(tmp_path, network, train, only_run, let_pass):
    loader = DataLoader(Slow(let_pass), batch_size=20)
    with RunManager(tmp_path / "sweep").run({"device": "cpu"}, network, loader) as run:
        train(run, network, loader, epochs=3)
    found = find_bottleneck(only_run())
    assert found.kind == "input"
    assert found.at_most == pytest.approx(1 / (1 - found.share))
    assert found.cure == ""  # a custom loop: none of the package's settings changes how it loads

"""The sides of the tracking benchmark do the same work, and beside the untracked one no run is alive."""

import threading
from pathlib import Path

import torch

from benchmarks.tracking_overhead import Learner, tracked_seconds, untracked_seconds
from runmanager import RunManager
from runmanager.records.paths import SweepPaths
from runmanager.records.store import read_sweep

CPU = torch.device("cpu")
BATCHES = [(torch.rand(4, 1, 28, 28), torch.tensor([0, 1, 2, 3])) for _ in range(3)]


def test_both_sides_learn_the_same_and_the_run_is_over_when_the_turn_is(tmp_path: Path) -> None:
    tracked, untracked = Learner(CPU), Learner(CPU)
    manager = RunManager(tmp_path / "sweep", console=False, owns_sweep=False)
    beginnings: list[float] = []
    for _ in range(2):
        assert tracked_seconds(tracked, BATCHES, manager, epochs=2, beginnings=beginnings) > 0
        assert not [thread for thread in threading.enumerate() if thread.name.startswith("runmanager")]
        assert untracked_seconds(untracked, BATCHES, epochs=2) > 0
    for one, other in zip(tracked.network.parameters(), untracked.network.parameters(), strict=True):
        assert torch.equal(one, other)
    runs = read_sweep(SweepPaths(tmp_path / "sweep")).runs
    assert len(runs) == len(beginnings) == 2 and all(len(run.epochs) == 2 for run in runs)

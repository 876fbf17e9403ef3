"""A tracker's side, in a process that takes turns: epochs that do nothing but track, or parts of such that train too.

python -m benchmarks.tracker_sides steps "W&B offline"
"""

import argparse
import tempfile
import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F
from torch.utils.data import DataLoader, TensorDataset

from benchmarks.sides import Turns
from benchmarks.trackers import OURS, PEERS, UNTRACKED, Tracker, begin_tracker
from benchmarks.tutorial import LEARNING_RATE, TutorialNetwork
from runmanager.tracking.timing.timer import clock_for
from runmanager.training.step.allocator import keep_freed_memory

__all__ = ["BATCH_SIZE", "NUM_STEPS", "PARTS"]

NUM_STEPS, BATCH_SIZE = 100, 100
"""Of an epoch, which takes about a second where it trains."""

PARTS = {"steps": 1, "epochs": 10}
"""The turns of an epoch: other load on a machine comes and goes within a second."""

_EPOCHS_A_TURN = 5  # where nothing is trained: one takes 3 ms, of which much is what the turn before has left


def _steps(tracker: Tracker, network: torch.nn.Module, device: torch.device) -> Callable[[], float]:
    """Epochs that only track; told are seconds a step."""
    loss, preds = torch.tensor(0.5, device=device), torch.rand(BATCH_SIZE, 10, device=device)
    labels = torch.zeros(BATCH_SIZE, dtype=torch.int64, device=device)

    def epochs() -> float:
        begin = time.perf_counter()
        for _ in range(_EPOCHS_A_TURN):
            with tracker.epoch() as tracked:
                for _ in range(NUM_STEPS):
                    tracked.track(loss, preds, labels)
        clock_for(device).synchronize()
        return (time.perf_counter() - begin) / (_EPOCHS_A_TURN * NUM_STEPS)

    return epochs


def _epochs(tracker: Tracker, network: torch.nn.Module, device: torch.device) -> Callable[[], float]:
    """Epochs of training, with images that lie in memory; told are seconds a part."""
    optimizer = torch.optim.Adam(network.parameters(), lr=LEARNING_RATE)
    count = NUM_STEPS * BATCH_SIZE
    dataset = TensorDataset(torch.rand(count, 1, 28, 28), torch.randint(10, (count,)))
    loader: DataLoader[Any] = DataLoader(dataset, batch_size=BATCH_SIZE)

    def parts() -> Iterator[float]:
        while True:
            begin = time.perf_counter()
            with tracker.epoch() as tracked:
                for step, (images, labels) in enumerate(tracked.batches(loader), 1):
                    optimizer.zero_grad()
                    preds = network(images)
                    loss = F.cross_entropy(preds, labels)
                    loss.backward()
                    optimizer.step()
                    tracked.track(loss, preds, labels)
                    if step % (NUM_STEPS // PARTS["epochs"]) == 0 and step < NUM_STEPS:  # the last ends with its epoch
                        clock_for(device).synchronize()
                        yield time.perf_counter() - begin
                        begin = time.perf_counter()
            clock_for(device).synchronize()
            yield time.perf_counter() - begin

    return partial(next, parts())


_WORK = {"steps": _steps, "epochs": _epochs}


def main() -> None:
    """Take turns as the command line says."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("work", choices=_WORK)
    parser.add_argument("tracker", choices=[OURS, UNTRACKED, *PEERS])
    parser.add_argument("--device", type=torch.device, default="cpu")
    parser.add_argument("--default-memory", action="store_true", help="freed memory is not kept")
    options = parser.parse_args()
    turns = Turns()
    if not options.default_memory:  # where chance decides, process by process, who maps thousands of pages a step
        keep_freed_memory()
    torch.manual_seed(0)
    network = TutorialNetwork().to(options.device)
    with tempfile.TemporaryDirectory() as folder:
        tracker = begin_tracker(options.tracker, Path(folder), network, options.device)
        turns.serve(_WORK[options.work](tracker, network, options.device))
        tracker.end()


if __name__ == "__main__":
    main()

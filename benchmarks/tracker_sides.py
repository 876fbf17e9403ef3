"""A tracker's side of the comparison: epochs that only track, or epochs that also train, divided into parts.

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

from benchmarks.side_processes import Turns
from benchmarks.trackers import OURS, PEERS, UNTRACKED, Tracker, start_tracker
from benchmarks.tutorial import LEARNING_RATE, TutorialNetwork
from runmanager.tracking.timing.timer import clock_for
from runmanager.training.step.micro_batches import keep_freed_memory

__all__ = ["BATCH_SIZE", "NUM_STEPS", "PARTS"]

NUM_STEPS, BATCH_SIZE = 100, 100
"""Steps per epoch, and batch size; an epoch with training takes about a second."""

PARTS = {"steps": 1, "epochs": 10}
"""Turns per epoch; other load on a machine changes within a second."""

_EPOCHS_PER_TURN = 5  # without training: an epoch takes 3 ms, much of it left over from the previous turn


def _steps(tracker: Tracker, network: torch.nn.Module, device: torch.device) -> Callable[[], float]:
    """Return a function that runs epochs of tracking alone and returns seconds per step."""
    loss, preds = torch.tensor(0.5, device=device), torch.rand(BATCH_SIZE, 10, device=device)
    labels = torch.zeros(BATCH_SIZE, dtype=torch.int64, device=device)

    def epochs() -> float:
        start = time.perf_counter()
        for _ in range(_EPOCHS_PER_TURN):
            with tracker.epoch() as tracked:
                for _ in range(NUM_STEPS):
                    tracked.track(loss, preds, labels)
        clock_for(device).synchronize()
        return (time.perf_counter() - start) / (_EPOCHS_PER_TURN * NUM_STEPS)

    return epochs


def _epochs(tracker: Tracker, network: torch.nn.Module, device: torch.device) -> Callable[[], float]:
    """Return a function that runs the next part of a training epoch, on images in memory, and returns its seconds."""
    optimizer = torch.optim.Adam(network.parameters(), lr=LEARNING_RATE)
    count = NUM_STEPS * BATCH_SIZE
    dataset = TensorDataset(torch.rand(count, 1, 28, 28), torch.randint(10, (count,)))
    loader: DataLoader[Any] = DataLoader(dataset, batch_size=BATCH_SIZE)

    def parts() -> Iterator[float]:
        while True:
            start = time.perf_counter()
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
                        yield time.perf_counter() - start
                        start = time.perf_counter()
            clock_for(device).synchronize()
            yield time.perf_counter() - start

    return partial(next, parts())


_WORK = {"steps": _steps, "epochs": _epochs}


def main() -> None:
    """Serve the side given by the command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("work", choices=_WORK)
    parser.add_argument("tracker", choices=[OURS, UNTRACKED, *PEERS])
    parser.add_argument("--device", type=torch.device, default="cpu")
    parser.add_argument("--default-memory", action="store_true", help="do not keep freed memory")
    options = parser.parse_args()
    turns = Turns()
    if not options.default_memory:  # by default, chance decides which processes map thousands of pages per step
        keep_freed_memory()
    torch.manual_seed(0)
    network = TutorialNetwork().to(options.device)
    with tempfile.TemporaryDirectory() as folder:
        tracker = start_tracker(options.tracker, Path(folder), network, options.device)
        turns.serve(_WORK[options.work](tracker, network, options.device))
        tracker.end()


if __name__ == "__main__":
    main()

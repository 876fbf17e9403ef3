"""What tracking adds to an epoch: the same loop over the same data, tracked and with nothing tracked, epoch by epoch.

Tracked is with per-phase times, loss and accuracy, scalars every step, images and graph, and a record that is on disk
before the next epoch; and once more with histograms of all weights and gradients. On the CPU, in one process.
"""

import contextlib
import tempfile
import time
from collections.abc import Iterable
from functools import partial
from pathlib import Path
from typing import Any

import torch
from torch.nn import functional as F
from torch.utils.data import DataLoader, TensorDataset

from benchmarks.command import Settings, carry_out
from benchmarks.interleaving import Patience, in_turns
from benchmarks.rows import Budget, Row, compared, measured
from runmanager import RunManager
from runmanager.tracking.idle import IdleRun
from runmanager.tracking.options import RunOptions, TensorBoardOptions
from runmanager.tracking.run import ActiveRun
from runmanager.training.models import build_model
from runmanager.training.options import CnnOptions

__all__ = ["measure"]

_IN_SHAPE, _NUM_CLASSES, _BATCH_SIZE, _NUM_BATCHES = (1, 28, 28), 10, 1000, 12  # an epoch of about a second
_TRACKED = {"tracked": TensorBoardOptions(), "with histograms": TensorBoardOptions(histograms=True)}
_BUDGET = Budget(1.01)
_PATIENCE = Patience(min_rounds=20, max_rounds=100, max_seconds=240, half_width=0.003)


def measure(settings: Settings) -> list[Row]:
    """The rows of a tracked epoch, of one with histograms, and of a run's beginning, which is no part of an epoch."""
    loader = _loader()
    beginnings = []
    with contextlib.ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        network, optimizer = _learner()
        contenders = {"untracked": partial(_untracked_seconds, network, optimizer, loader)}
        for name, options in _TRACKED.items():
            network, optimizer = _learner()
            begin = time.perf_counter()
            run = stack.enter_context(_run(folder / name, options, network, optimizer, loader))
            beginnings.append(time.perf_counter() - begin)
            contenders[name] = partial(_tracked_seconds, run, network, optimizer, loader)
        seconds = in_turns(contenders, patience=settings.patience, seed=settings.seed)
    rows = [_row(name, seconds, budget) for name, budget in zip(_TRACKED, (_BUDGET, None), strict=True)]
    return [*rows, measured("beginning of a run, once: its folder, environment, images and graph", beginnings)]


def _row(name: str, seconds: dict[str, list[float]], budget: Budget | None) -> Row:
    words = {"tracked": "scalars every step, images, graph", "with histograms": "the same with histograms"}[name]
    what = f"wall time of a tracked epoch ({words}) / the same loop untracked"
    return compared(what, ours=seconds[name], other=seconds["untracked"], budget=budget)[0]


def _loader() -> DataLoader[Any]:
    generator = torch.Generator().manual_seed(0)
    num_samples = _BATCH_SIZE * _NUM_BATCHES
    images = torch.rand((num_samples, *_IN_SHAPE), generator=generator)
    labels = torch.randint(_NUM_CLASSES, (num_samples,), generator=generator)
    return DataLoader(TensorDataset(images, labels), batch_size=_BATCH_SIZE, shuffle=True)


def _learner() -> tuple[torch.nn.Module, torch.optim.Optimizer]:
    torch.manual_seed(0)
    network = build_model(CnnOptions(), in_shape=_IN_SHAPE, num_classes=_NUM_CLASSES)
    return network, torch.optim.Adam(network.parameters(), lr=0.01)


def _run(
    folder: Path,
    options: TensorBoardOptions,
    network: torch.nn.Module,
    optimizer: torch.optim.Optimizer,
    loader: Iterable[Any],
) -> ActiveRun:
    manager = RunManager(folder, console=False, tensorboard=options)
    run = manager.run({"lr": 0.01}, network, loader, optimizer=optimizer, options=RunOptions(log_every=1))
    assert not isinstance(run, IdleRun)  # the folder is new
    return run


def _untracked_seconds(network: torch.nn.Module, optimizer: torch.optim.Optimizer, loader: Iterable[Any]) -> float:
    begin = time.perf_counter()
    network.train()
    for images, labels in loader:
        optimizer.zero_grad()
        loss = F.cross_entropy(network(images), labels)
        loss.backward()
        optimizer.step()
    return time.perf_counter() - begin


def _tracked_seconds(
    run: ActiveRun, network: torch.nn.Module, optimizer: torch.optim.Optimizer, loader: Iterable[Any]
) -> float:
    begin = time.perf_counter()
    epoch = run.begin_epoch()
    network.train()
    for images, labels in epoch.batches(loader):
        optimizer.zero_grad()
        preds = network(images)
        loss = F.cross_entropy(preds, labels)
        loss.backward()
        optimizer.step()
        epoch.track(loss, preds, labels)
    run.end_epoch(epoch)
    return time.perf_counter() - begin


if __name__ == "__main__":
    carry_out("tracking_overhead", measure, summary=__doc__, patience=_PATIENCE)

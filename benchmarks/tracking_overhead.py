"""What tracking adds to an epoch: the same steps on the same batches, tracked and with nothing tracked, in turns.

Tracked is with per-phase times, loss and accuracy, scalars every step, images and graph, heartbeats, and a record that
is on disk before the next epoch; and once more with histograms of all weights and gradients. A tracked turn begins a
run of its own and ends it, untimed, so that beside the untracked one nothing of the package is at work. All is in one
process: two would differ by where their memory lies. The batches lie ready, and nothing is waited for that could hide
what tracking costs.
"""

import contextlib
import tempfile
import time
from collections.abc import Sequence
from functools import partial
from pathlib import Path

import torch
from torch.nn import functional as F

from benchmarks.command import Settings, carry_out
from benchmarks.interleaving import Patience, in_turns
from benchmarks.rows import Budget, Row, compared, measured
from runmanager import RunManager
from runmanager.tracking.devices import resolve_device, synchronize
from runmanager.tracking.options import RunOptions, TensorBoardOptions
from runmanager.training.models import build_model
from runmanager.training.options import CnnOptions

__all__ = ["Learner", "measure", "tracked_seconds", "untracked_seconds"]

_IN_SHAPE, _NUM_CLASSES, _BATCH_SIZE = (1, 28, 28), 10, 500
_NUM_BATCHES_ON_CPU, _NUM_BATCHES_ELSEWHERE = 40, 400  # about a second: the end of an epoch shows
_EPOCHS_A_TURN = 2
_TRACKED = {"tracked": TensorBoardOptions(), "with histograms": TensorBoardOptions(histograms=True)}
_WORDS = {"tracked": "scalars every step, images, graph", "with histograms": "the same with histograms"}
_ON_CPU, _ELSEWHERE = Budget(1.01), Budget(1.02)
_PATIENCE = Patience(min_rounds=20, max_rounds=200, max_seconds=180, half_width=0.002)

Batches = Sequence[tuple[torch.Tensor, torch.Tensor]]


def measure(settings: Settings) -> list[Row]:
    """The rows of a tracked epoch, of one with histograms, and of a run's beginning, which is no part of an epoch."""
    device = resolve_device(settings.device)
    batches = _batches(_NUM_BATCHES_ON_CPU if device.type == "cpu" else _NUM_BATCHES_ELSEWHERE, device)
    beginnings: list[float] = []
    with contextlib.ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        contenders = {"untracked": partial(untracked_seconds, Learner(device), batches, epochs=_EPOCHS_A_TURN)}
        for name, options in _TRACKED.items():
            manager = RunManager(folder / name, console=False, tensorboard=options, owns_sweep=False)
            turn = partial(tracked_seconds, Learner(device), batches, manager, beginnings=beginnings)
            contenders[name] = partial(turn, epochs=_EPOCHS_A_TURN)
        seconds = in_turns(contenders, patience=settings.patience, seed=settings.seed)
    budget = _ON_CPU if device.type == "cpu" else _ELSEWHERE
    rows = [
        compared(
            f"wall time of a tracked epoch ({_WORDS[name]}) / the same loop untracked",
            ours=[each / _EPOCHS_A_TURN for each in seconds[name]],
            other=[each / _EPOCHS_A_TURN for each in seconds["untracked"]],
            budget=budget if name == "tracked" else None,
        )[0]
        for name in _TRACKED
    ]
    return [*rows, measured("beginning of a run, once: its folder, environment, images and graph", beginnings)]


class Learner:
    """A network that learns by steps; two of them that are given the same batches do the same."""

    def __init__(self, device: torch.device) -> None:
        torch.manual_seed(0)
        self.device = device
        self.network = build_model(CnnOptions(), in_shape=_IN_SHAPE, num_classes=_NUM_CLASSES).to(device)
        self.optimizer = torch.optim.Adam(self.network.parameters(), lr=0.01)

    def step(self, images: torch.Tensor, labels: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        self.optimizer.zero_grad()
        preds = self.network(images)
        loss = F.cross_entropy(preds, labels)
        loss.backward()
        self.optimizer.step()
        return loss, preds


def _batches(count: int, device: torch.device) -> Batches:
    generator = torch.Generator().manual_seed(0)
    images = torch.rand((count * _BATCH_SIZE, *_IN_SHAPE), generator=generator).to(device)
    labels = torch.randint(_NUM_CLASSES, (count * _BATCH_SIZE,), generator=generator).to(device)
    return list(zip(images.split(_BATCH_SIZE), labels.split(_BATCH_SIZE), strict=True))


def untracked_seconds(learner: Learner, batches: Batches, *, epochs: int) -> float:
    """The time of so many epochs of which nothing is kept."""
    synchronize(learner.device)
    begin = time.perf_counter()
    for _ in range(epochs):
        learner.network.train()
        for images, labels in batches:
            learner.step(images, labels)
    synchronize(learner.device)
    return time.perf_counter() - begin


def tracked_seconds(
    learner: Learner, batches: Batches, manager: RunManager, *, epochs: int, beginnings: list[float]
) -> float:
    """The time of so many tracked epochs of a new run, whose beginning is put down in `beginnings`, and is no part."""
    settings = {"device": str(learner.device), "turn": len(beginnings)}
    begin = time.perf_counter()
    with manager.run(
        settings, learner.network, batches, optimizer=learner.optimizer, options=RunOptions(log_every=1)
    ) as run:
        synchronize(learner.device)
        begun = time.perf_counter()
        beginnings.append(begun - begin)
        for epoch in run.epochs(epochs):
            learner.network.train()
            for images, labels in epoch.batches(batches):
                loss, preds = learner.step(images, labels)
                epoch.track(loss, preds, labels)
        seconds = time.perf_counter() - begun
    assert len(run.history) == epochs
    return seconds


if __name__ == "__main__":
    carry_out("tracking_overhead", measure, summary=__doc__, patience=_PATIENCE, has_device=True)

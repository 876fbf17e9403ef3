"""What tracking adds to an epoch: the same steps on the same batches, tracked and with nothing tracked, in turns.

Tracked is with per-phase times, loss and accuracy, scalars every step, images and graph, heartbeats, and a record that
is on disk before the next epoch; and once more with histograms of all weights and gradients. A tracked turn begins a
run of its own and ends it, untimed, so that beside the untracked one nothing of the package is at work. All is in one
process: two would differ by where their memory lies. The batches lie ready, and nothing is waited for that could hide
what tracking costs. Batches are of the default size; a row of its own says what small ones pay, of which a second
holds many.
"""

import tempfile
import time
from collections.abc import Mapping, Sequence
from dataclasses import replace
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

_IN_SHAPE, _NUM_CLASSES = (1, 28, 28), 10
_BATCH_SIZE, _SMALL_BATCH_SIZE = 1000, 100
_SAMPLES_ON_CPU, _SAMPLES_ELSEWHERE = 25_000, 200_000  # about a second: the end of an epoch shows
_EPOCHS_A_TURN = 2
_TRACKED = {"tracked": TensorBoardOptions(), "with histograms": TensorBoardOptions(histograms=True)}
_WORDS = {"tracked": "scalars every step, images, graph", "with histograms": "the same with histograms"}
_ON_CPU, _ELSEWHERE = Budget(1.01), Budget(1.02)
_PATIENCE = Patience(min_rounds=20, max_rounds=200, max_seconds=240, half_width=0.002)
_SMALL_SHARE = 0.25  # of the time, for the small batches

Batches = Sequence[tuple[torch.Tensor, torch.Tensor]]


def measure(settings: Settings) -> list[Row]:
    """The rows of a tracked epoch, of one with histograms, and of a run's beginning, which is no part of an epoch."""
    device = resolve_device(settings.device)
    seconds, beginnings = _seconds(settings, device, _BATCH_SIZE, _TRACKED, share=1 - _SMALL_SHARE)
    plain = {"tracked": _TRACKED["tracked"]}
    small, _ = _seconds(settings, device, _SMALL_BATCH_SIZE, plain, share=_SMALL_SHARE)
    budget = _ON_CPU if device.type == "cpu" else _ELSEWHERE
    return [
        *(
            _row(_WORDS[name], seconds[name], seconds["untracked"], budget if name == "tracked" else None)
            for name in _TRACKED
        ),
        _row(f"{_WORDS['tracked']}, batches of {_SMALL_BATCH_SIZE}", small["tracked"], small["untracked"], None),
        measured("beginning of a run, once: its folder, environment, images and graph", beginnings),
    ]


def _row(words: str, tracked: Sequence[float], untracked: Sequence[float], budget: Budget | None) -> Row:
    return compared(
        f"wall time of a tracked epoch ({words}) / the same loop untracked",
        ours=[each / _EPOCHS_A_TURN for each in tracked],
        other=[each / _EPOCHS_A_TURN for each in untracked],
        budget=budget,
    )[0]


def _seconds(
    settings: Settings,
    device: torch.device,
    batch_size: int,
    tracked: Mapping[str, TensorBoardOptions],
    *,
    share: float,
) -> tuple[dict[str, list[float]], list[float]]:
    """The seconds of each side's turns, and of the beginnings of runs, within a share of the time."""
    batches = _batches(_SAMPLES_ON_CPU if device.type == "cpu" else _SAMPLES_ELSEWHERE, batch_size, device)
    patience = replace(settings.patience, max_seconds=share * settings.patience.max_seconds)
    beginnings: list[float] = []
    with tempfile.TemporaryDirectory() as folder:
        contenders = {"untracked": partial(untracked_seconds, Learner(device), batches, epochs=_EPOCHS_A_TURN)}
        for name, options in tracked.items():
            manager = RunManager(Path(folder) / name, console=False, tensorboard=options, owns_sweep=False)
            turn = partial(tracked_seconds, Learner(device), batches, manager, beginnings=beginnings)
            contenders[name] = partial(turn, epochs=_EPOCHS_A_TURN)
        return in_turns(contenders, patience=patience, seed=settings.seed), beginnings


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


def _batches(num_samples: int, batch_size: int, device: torch.device) -> Batches:
    generator = torch.Generator().manual_seed(0)
    images = torch.rand((num_samples, *_IN_SHAPE), generator=generator).to(device)
    labels = torch.randint(_NUM_CLASSES, (num_samples,), generator=generator).to(device)
    return list(zip(images.split(batch_size), labels.split(batch_size), strict=True))


def untracked_seconds(learner: Learner, batches: Batches, *, epochs: int) -> float:
    """The time of so many epochs of which nothing is kept."""
    synchronize(learner.device)
    begin = time.perf_counter()
    for _ in range(epochs):
        learner.network.train()
        for images, labels in batches:
            _loss, _preds = learner.step(images, labels)  # held for as long as the tracked loop holds them
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

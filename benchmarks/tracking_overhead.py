"""What tracking adds to an epoch: the same steps on the same batches, tracked and with nothing tracked, in turns.

Tracked is with per-phase times, loss and accuracy, scalars every step, images and graph, heartbeats, and a record that
is on disk before the next epoch. Other rows have histograms of all weights and gradients besides, small batches, of
which a second holds many, and an evaluation, whose scores are kept. On a CPU the sides take turns step by step: what
else runs on the machine comes and goes within seconds, and hits steps that follow each other alike. The run that is
tracked is under way meanwhile, so what goes on beside its steps, a heartbeat a second, is in both sides' time; a row
says what it takes. A run's beginning and end do not count. All is in one process: two would differ by where their
memory lies. Freed memory is kept, as in a run: to have it mapped anew would make every step longer, and what tracking
adds a smaller share. The batches lie ready, and nothing is waited for that could hide what tracking costs.
"""

import math
import tempfile
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import cycle, islice
from pathlib import Path

import torch
from torch.nn import functional as F

from benchmarks.command import Settings, carry_out
from benchmarks.interleaving import Patience, in_small_turns
from benchmarks.rows import Budget, Row, compared, measured
from runmanager import RunManager
from runmanager.results.result_files import write_tables
from runmanager.tracking.device.devices import resolve_device, synchronize
from runmanager.tracking.options import RunOptions, TensorBoardOptions
from runmanager.training.models.builtin_models import build_model
from runmanager.training.options.groups import CnnOptions
from runmanager.training.step.allocator import keep_freed_memory

__all__ = ["Learner", "Once", "Work", "beside_seconds", "measure", "tracked_parts", "untracked_parts"]

_IN_SHAPE, _NUM_CLASSES = (1, 28, 28), 10
# About a second, as the end of an epoch is to show: a CPU takes its time for the samples, a GPU for launching a step.
_SAMPLES_ON_CPU, _STEPS_ELSEWHERE = 25_000, 1000
_MOST_READY = 250  # batches; a longer epoch has them again
_EVALUATED_SHARE = 0.4  # so many beside those of training: more than is usual, so that it shows
_BESIDE_SECONDS = 5.0
_ON_CPU, _ELSEWHERE = Budget(1.01), Budget(1.02)
_PATIENCE = Patience(min_rounds=16, max_rounds=200, max_seconds=150, half_width=0.002)
_FEW_ROUNDS = 6  # of a row without a budget

Batches = Sequence[tuple[torch.Tensor, torch.Tensor]]


@dataclass(frozen=True)
class Work:
    """What an epoch goes over: batches to learn from, and then those to be evaluated on."""

    training: Batches
    validation: Batches = ()


@dataclass(frozen=True)
class Once:
    """The seconds of what a run does once, of each run: before its first epoch, and after its last."""

    beginnings: list[float] = field(default_factory=list)
    ends: list[float] = field(default_factory=list)


@dataclass(frozen=True)
class _Comparison:
    """A row: what is tracked, and of what batches."""

    words: str
    batch_size: int = 1000
    has_histograms: bool = False
    is_evaluated: bool = False
    has_budget: bool = False


_PLAIN = _Comparison("scalars every step, images, graph", has_budget=True)
_HISTOGRAMS = _Comparison("the same with histograms", has_histograms=True)
_SMALL = _Comparison(f"{_PLAIN.words}, batches of 100", batch_size=100)
_EVALUATED = _Comparison(f"{_PLAIN.words}, and an evaluation", is_evaluated=True)


def measure(settings: Settings) -> list[Row]:
    """A row for each comparison of epochs, and those of a run's beginning and end, which are no part of an epoch."""
    device = resolve_device(settings.device)
    keep_freed_memory()
    once = {comparison: Once() for comparison in (_PLAIN, _HISTOGRAMS, _SMALL, _EVALUATED)}
    return [
        *(_row(settings, device, comparison, beside) for comparison, beside in once.items()),
        # Of each but the first run, which loads what is loaded once.
        measured("beginning of a run, once: its folder, environment, images and graph", once[_PLAIN].beginnings[1:]),
        measured("end of a run, once: its record, pictures of its last evaluation, tables", once[_EVALUATED].ends[1:]),
        measured("processor time of what goes on beside the steps, a second", _beside(device)),
    ]


def _beside(device: torch.device) -> list[float]:
    learner, work = Learner(device), Work(_batches(1000, 1000, device))
    with tempfile.TemporaryDirectory() as folder:
        return [beside_seconds(learner, work, Path(folder) / str(each), seconds=_BESIDE_SECONDS) for each in range(3)]


def _row(settings: Settings, device: torch.device, comparison: _Comparison, once: Once) -> Row:
    untracked, tracked = _seconds_an_epoch(settings, device, comparison, once)
    budget = _ON_CPU if device.type == "cpu" else _ELSEWHERE
    return compared(
        f"wall time of a tracked epoch ({comparison.words}) / the same loop untracked",
        ours=tracked,
        other=untracked,
        budget=budget if comparison.has_budget else None,
    )[0]


def _seconds_an_epoch(
    settings: Settings, device: torch.device, comparison: _Comparison, once: Once
) -> tuple[list[float], list[float]]:
    """The seconds of the untracked epochs, and of the tracked ones."""
    patience, few = settings.patience, min(_FEW_ROUNDS, settings.patience.max_rounds)
    if not comparison.has_budget:
        patience = replace(patience, min_rounds=few, max_rounds=few)
    on_cpu = device.type == "cpu"
    epochs = 2 if on_cpu else 1
    num_samples = _SAMPLES_ON_CPU if on_cpu else _STEPS_ELSEWHERE * comparison.batch_size
    num_evaluated = round(_EVALUATED_SHARE * num_samples) if comparison.is_evaluated else 0
    size = comparison.batch_size
    work = Work(_batches(num_samples, size, device), _batches(num_evaluated, size, device))
    tensorboard = TensorBoardOptions(histograms=comparison.has_histograms)
    with tempfile.TemporaryDirectory() as folder:
        tracked = partial(tracked_parts, Learner(device), work, Path(folder), once=once)
        contenders = {
            "untracked": partial(untracked_parts, Learner(device), work, epochs=epochs),
            "tracked": partial(tracked, epochs=epochs, tensorboard=tensorboard),
        }
        seconds = in_small_turns(contenders, patience=patience, seed=settings.seed)
    return [each / epochs for each in seconds["untracked"]], [each / epochs for each in seconds["tracked"]]


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

    @torch.no_grad()
    def judge(self, images: torch.Tensor, labels: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        preds = self.network(images)
        return F.cross_entropy(preds, labels), preds


def _batches(num_samples: int, batch_size: int, device: torch.device) -> Batches:
    generator, num_ready = torch.Generator().manual_seed(0), min(num_samples, _MOST_READY * batch_size)
    images = torch.rand((num_ready, *_IN_SHAPE), generator=generator).to(device)
    labels = torch.randint(_NUM_CLASSES, (num_ready,), generator=generator).to(device)
    ready = list(zip(images.split(batch_size), labels.split(batch_size), strict=True)) if num_ready else []
    return list(islice(cycle(ready), math.ceil(num_samples / batch_size)))


def untracked_parts(learner: Learner, work: Work, *, epochs: int) -> Iterator[bool]:
    """So many epochs of which nothing is kept, part by part."""
    synchronize(learner.device)
    yield False
    for _ in range(epochs):
        learner.network.train()
        for images, labels in work.training:
            _loss, _preds = learner.step(images, labels)  # held for as long as the tracked loop holds them
            yield from _pause(learner)
        learner.network.eval()
        for images, labels in work.validation:
            _loss, _preds = learner.judge(images, labels)
            yield from _pause(learner)
    synchronize(learner.device)
    yield True


def tracked_parts(
    learner: Learner, work: Work, folder: Path, *, epochs: int, tensorboard: TensorBoardOptions, once: Once
) -> Iterator[bool]:
    """So many tracked epochs of a new run, in a new sweep in `folder`, part by part.

    The run's beginning and end are put down in `once`, and do not count.
    """
    manager = RunManager(folder / str(len(once.ends)), console=False, tensorboard=tensorboard, owns_sweep=False)
    settings, options = {"device": str(learner.device)}, RunOptions(log_every=1)
    began = time.perf_counter()
    with manager.run(settings, learner.network, work.training, optimizer=learner.optimizer, options=options) as run:
        synchronize(learner.device)
        once.beginnings.append(time.perf_counter() - began)
        yield False
        for epoch in run.epochs(epochs):
            learner.network.train()
            for images, labels in epoch.batches(work.training):
                loss, preds = learner.step(images, labels)
                epoch.track(loss, preds, labels)
                yield from _pause(learner)
            learner.network.eval()
            if work.validation:
                for images, labels in epoch.eval_batches(work.validation):
                    epoch.track_eval(*learner.judge(images, labels), labels)
                    yield from _pause(learner)
        yield True
        ended = time.perf_counter()
    write_tables(manager.paths, report=False)  # as a manager does that owns its sweep
    once.ends.append(time.perf_counter() - ended)
    assert len(run.history) == epochs


def _pause(learner: Learner) -> Iterator[bool]:
    """After a step, on a CPU: to wait for an accelerator so often would cost more than what is measured."""
    if learner.device.type == "cpu":
        yield True


def beside_seconds(learner: Learner, work: Work, folder: Path, *, seconds: float) -> float:
    """The processor time that a run takes for each second in which no step is made, as its heartbeat does."""
    manager = RunManager(folder, console=False, owns_sweep=False)
    with manager.run({"device": str(learner.device)}, learner.network, work.training) as run:
        next(run.epochs(1))
        before = time.process_time()
        time.sleep(seconds)
        return (time.process_time() - before) / seconds


if __name__ == "__main__":
    carry_out("tracking_overhead", measure, summary=__doc__, patience=_PATIENCE, has_device=True)

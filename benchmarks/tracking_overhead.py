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

from benchmarks.command_line import Settings, run_benchmark
from benchmarks.interleaving import StoppingRule, run_parts_interleaved
from benchmarks.rows import Budget, Row, measurement_row, ratio_row
from runmanager import RunManager
from runmanager.results.writer import write_tables
from runmanager.tracking.device.devices import resolve_device, synchronize
from runmanager.tracking.options import RunOptions, TensorBoardOptions
from runmanager.training.models.models import build_model
from runmanager.training.options.groups import CnnOptions
from runmanager.training.step.malloc import keep_freed_memory

__all__ = ["RunOverheads", "Trainer", "Work", "background_cpu_seconds", "measure", "tracked_parts", "untracked_parts"]

_IN_SHAPE, _NUM_CLASSES = (1, 28, 28), 10
# About a second, as the end of an epoch is to show: a CPU takes its time for the samples, a GPU for launching a step.
_NUM_SAMPLES_ON_CPU, _NUM_STEPS_ON_GPU = 25_000, 1000
_MAX_PREPARED = 250  # batches; a longer epoch has them again
_EVALUATED_SHARE = 0.4  # so many beside those of training: more than is usual, so that it shows
_BACKGROUND_SECONDS = 5.0
_ON_CPU, _ON_GPU = Budget(1.01), Budget(1.02)
_STOPPING_RULE = StoppingRule(min_rounds=16, max_rounds=200, max_seconds=150, half_width=0.002)
_FEW_ROUNDS = 6  # of a row without a budget

Batches = Sequence[tuple[torch.Tensor, torch.Tensor]]


@dataclass(frozen=True)
class Work:
    """What an epoch goes over: batches to learn from, and then those to be evaluated on."""

    training: Batches
    validation: Batches = ()


@dataclass(frozen=True)
class RunOverheads:
    """The seconds of what a run does once, of each run: before its first epoch, and after its last."""

    starts: list[float] = field(default_factory=list)
    ends: list[float] = field(default_factory=list)


@dataclass(frozen=True)
class _Comparison:
    """A row: what is tracked, and of what batches."""

    description: str
    batch_size: int = 1000
    has_histograms: bool = False
    is_evaluated: bool = False
    has_budget: bool = False


_PLAIN = _Comparison("scalars every step, images, graph", has_budget=True)
_HISTOGRAMS = _Comparison("the same with histograms", has_histograms=True)
_SMALL = _Comparison(f"{_PLAIN.description}, batches of 100", batch_size=100)
_EVALUATED = _Comparison(f"{_PLAIN.description}, and an evaluation", is_evaluated=True)


def measure(settings: Settings) -> list[Row]:
    """A row for each comparison of epochs, and those of a run's beginning and end, which are no part of an epoch."""
    device = resolve_device(settings.device)
    keep_freed_memory()
    overheads = {comparison: RunOverheads() for comparison in (_PLAIN, _HISTOGRAMS, _SMALL, _EVALUATED)}
    return [
        *(_row(settings, device, comparison, beside) for comparison, beside in overheads.items()),
        # Of each but the first run, which loads what is loaded once.
        measurement_row(
            "beginning of a run, once: its folder, environment, images and graph", overheads[_PLAIN].starts[1:]
        ),
        measurement_row(
            "end of a run, once: its record, pictures of its last evaluation, tables", overheads[_EVALUATED].ends[1:]
        ),
        measurement_row("processor time of what goes on beside the steps, a second", _background(device)),
    ]


def _background(device: torch.device) -> list[float]:
    trainer, work = Trainer(device), Work(_batches(1000, 1000, device))
    with tempfile.TemporaryDirectory() as folder:
        return [
            background_cpu_seconds(trainer, work, Path(folder) / str(each), seconds=_BACKGROUND_SECONDS)
            for each in range(3)
        ]


def _row(settings: Settings, device: torch.device, comparison: _Comparison, overheads: RunOverheads) -> Row:
    untracked, tracked = _seconds_per_epoch(settings, device, comparison, overheads)
    budget = _ON_CPU if device.type == "cpu" else _ON_GPU
    return ratio_row(
        f"wall time of a tracked epoch ({comparison.description}) / the same loop untracked",
        ours=tracked,
        other=untracked,
        budget=budget if comparison.has_budget else None,
    )[0]


def _seconds_per_epoch(
    settings: Settings, device: torch.device, comparison: _Comparison, overheads: RunOverheads
) -> tuple[list[float], list[float]]:
    """The seconds of the untracked epochs, and of the tracked ones."""
    stopping_rule, few = settings.stopping_rule, min(_FEW_ROUNDS, settings.stopping_rule.max_rounds)
    if not comparison.has_budget:
        stopping_rule = replace(stopping_rule, min_rounds=few, max_rounds=few)
    on_cpu = device.type == "cpu"
    epochs = 2 if on_cpu else 1
    num_samples = _NUM_SAMPLES_ON_CPU if on_cpu else _NUM_STEPS_ON_GPU * comparison.batch_size
    num_evaluated = round(_EVALUATED_SHARE * num_samples) if comparison.is_evaluated else 0
    size = comparison.batch_size
    work = Work(_batches(num_samples, size, device), _batches(num_evaluated, size, device))
    tensorboard = TensorBoardOptions(histograms=comparison.has_histograms)
    with tempfile.TemporaryDirectory() as folder:
        tracked = partial(tracked_parts, Trainer(device), work, Path(folder), overheads=overheads)
        contenders = {
            "untracked": partial(untracked_parts, Trainer(device), work, epochs=epochs),
            "tracked": partial(tracked, epochs=epochs, tensorboard=tensorboard),
        }
        seconds = run_parts_interleaved(contenders, stopping_rule=stopping_rule, seed=settings.seed)
    return [each / epochs for each in seconds["untracked"]], [each / epochs for each in seconds["tracked"]]


class Trainer:
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
    def evaluate(self, images: torch.Tensor, labels: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        preds = self.network(images)
        return F.cross_entropy(preds, labels), preds


def _batches(num_samples: int, batch_size: int, device: torch.device) -> Batches:
    generator, num_ready = torch.Generator().manual_seed(0), min(num_samples, _MAX_PREPARED * batch_size)
    images = torch.rand((num_ready, *_IN_SHAPE), generator=generator).to(device)
    labels = torch.randint(_NUM_CLASSES, (num_ready,), generator=generator).to(device)
    ready = list(zip(images.split(batch_size), labels.split(batch_size), strict=True)) if num_ready else []
    return list(islice(cycle(ready), math.ceil(num_samples / batch_size)))


def untracked_parts(trainer: Trainer, work: Work, *, epochs: int) -> Iterator[bool]:
    """So many epochs of which nothing is kept, part by part."""
    synchronize(trainer.device)
    yield False
    for _ in range(epochs):
        trainer.network.train()
        for images, labels in work.training:
            _loss, _preds = trainer.step(images, labels)  # held for as long as the tracked loop holds them
            yield from _pause(trainer)
        trainer.network.eval()
        for images, labels in work.validation:
            _loss, _preds = trainer.evaluate(images, labels)
            yield from _pause(trainer)
    synchronize(trainer.device)
    yield True


def tracked_parts(
    trainer: Trainer, work: Work, folder: Path, *, epochs: int, tensorboard: TensorBoardOptions, overheads: RunOverheads
) -> Iterator[bool]:
    """So many tracked epochs of a new run, in a new sweep in `folder`, part by part.

    The run's beginning and end are put down in `once`, and do not count.
    """
    manager = RunManager(folder / str(len(overheads.ends)), console=False, tensorboard=tensorboard, owns_sweep=False)
    settings, options = {"device": str(trainer.device)}, RunOptions(log_every=1)
    began = time.perf_counter()
    with manager.run(settings, trainer.network, work.training, optimizer=trainer.optimizer, options=options) as run:
        synchronize(trainer.device)
        overheads.starts.append(time.perf_counter() - began)
        yield False
        for epoch in run.epochs(epochs):
            trainer.network.train()
            for images, labels in epoch.batches(work.training):
                loss, preds = trainer.step(images, labels)
                epoch.track(loss, preds, labels)
                yield from _pause(trainer)
            trainer.network.eval()
            if work.validation:
                for images, labels in epoch.eval_batches(work.validation):
                    epoch.track_eval(*trainer.evaluate(images, labels), labels)
                    yield from _pause(trainer)
        yield True
        ended = time.perf_counter()
    write_tables(manager.paths, report=False)  # as a manager does that owns its sweep
    overheads.ends.append(time.perf_counter() - ended)
    assert len(run.history) == epochs


def _pause(trainer: Trainer) -> Iterator[bool]:
    """After a step, on a CPU: to wait for an accelerator so often would cost more than what is measurement_row."""
    if trainer.device.type == "cpu":
        yield True


def background_cpu_seconds(trainer: Trainer, work: Work, folder: Path, *, seconds: float) -> float:
    """The processor time that a run takes for each second in which no step is made, as its heartbeat does."""
    manager = RunManager(folder, console=False, owns_sweep=False)
    with manager.run({"device": str(trainer.device)}, trainer.network, work.training) as run:
        next(run.epochs(1))
        before = time.process_time()
        time.sleep(seconds)
        return (time.process_time() - before) / seconds


if __name__ == "__main__":
    run_benchmark("tracking_overhead", measure, summary=__doc__, stopping_rule=_STOPPING_RULE, has_device=True)

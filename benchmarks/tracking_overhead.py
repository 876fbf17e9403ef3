"""Overhead of tracking an epoch: the same steps on the same batches, with and without tracking, interleaved.

Tracking covers phase times, loss and accuracy, scalars every step, images and graph, heartbeats, and a record on disk
before the next epoch. Further rows add histograms of all weights and gradients, small batches (many per second), an
evaluation with stored scores, and 10 metrics a step and 10 an epoch. On a CPU the sides alternate step by step: other
load on the machine changes within seconds and affects adjacent steps alike. The tracked run stays active meanwhile, so
its background work, one heartbeat per second, counts for both sides; a separate row measures it. The start and end of a
run are rows of their own, and so is what is done once after its first steps: their work is counted. Everything runs in
one process, since two would differ in their memory layout. Freed memory is kept, as in a run: mapping it again would
lengthen every step and so reduce the relative overhead. The batches are in memory, so that no waiting hides the cost of
tracking.
"""

import math
import tempfile
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import cycle, islice
from pathlib import Path
from statistics import median

import torch
from torch.nn import functional as F

from benchmarks.command_line import Settings, run_benchmark
from benchmarks.interleaving import StoppingRule, run_parts_interleaved
from benchmarks.rows import Budget, Row, measurement_row, ratio_row
from runmanager import RunManager
from runmanager.results.result_files import write_tables
from runmanager.tracking.device.devices import resolve_device, synchronize
from runmanager.tracking.options import RunOptions, TensorBoardOptions
from runmanager.training.models.builtin_models import build_model
from runmanager.training.options.groups import CnnOptions
from runmanager.training.step.micro_batches import keep_freed_memory

__all__ = ["RunOverheads", "Trainer", "Work", "background_cpu_seconds", "measure", "tracked_parts", "untracked_parts"]

_IN_SHAPE, _NUM_CLASSES = (1, 28, 28), 10
# About a second, so that the end of an epoch shows: the samples limit a CPU, the launches a GPU.
_NUM_SAMPLES_ON_CPU, _NUM_STEPS_ON_GPU = 25_000, 1000
_NUM_FIRST_STEPS = 12  # whose work is counted, once in a run
_MAX_PREPARED = 250  # batches; longer epochs repeat them
_EVALUATED_SHARE = 0.4  # relative to training; larger than usual, so that it shows
_BACKGROUND_SECONDS = 5.0
_ON_CPU, _ON_GPU = Budget(1.01), Budget(1.02)
_STOPPING_RULE = StoppingRule(min_rounds=16, max_rounds=200, max_seconds=150, half_width=0.002)
_FEW_ROUNDS = 6  # for rows without a budget

Batches = Sequence[tuple[torch.Tensor, torch.Tensor]]


@dataclass(frozen=True)
class Work:
    """Batches of an epoch: for training, then for evaluation."""

    training: Batches
    validation: Batches = ()


@dataclass(frozen=True)
class RunOverheads:
    """Seconds before the first epoch, between the first epoch and the second, and after the last, for each run."""

    starts: list[float] = field(default_factory=list)
    counts: list[float] = field(default_factory=list)
    ends: list[float] = field(default_factory=list)


@dataclass(frozen=True)
class _Comparison:
    """A row: what is tracked, and on which batches."""

    description: str
    batch_size: int = 1000
    has_histograms: bool = False
    is_evaluated: bool = False
    has_metrics: bool = False
    has_budget: bool = False


_PLAIN = _Comparison("scalars every step, images, graph", has_budget=True)
_HISTOGRAMS = _Comparison("the same with histograms", has_histograms=True)
_SMALL = _Comparison("the same, batches of 100", batch_size=100)
_EVALUATED = _Comparison("the same, and an evaluation", is_evaluated=True)
_METRICS = "the same, 10 metrics a step and 10 an epoch"
_LOGGED = _Comparison(_METRICS, has_metrics=True, has_budget=True)
_LOGGED_SMALL = _Comparison(f"{_METRICS}, batches of 100", batch_size=100, has_metrics=True)
_NUM_METRICS = 10  # of a step, and of an epoch
_MIN_STEP_SECONDS = 0.02  # of a row with metrics: shorter steps have no budget


def measure(settings: Settings) -> list[Row]:
    """Return a row per comparison of epochs, and rows of the start and end of a run and of background work."""
    device = resolve_device(settings.device)
    keep_freed_memory()
    comparisons = (_PLAIN, _HISTOGRAMS, _SMALL, _EVALUATED, _LOGGED, _LOGGED_SMALL)
    overheads = {comparison: RunOverheads() for comparison in comparisons}
    return [
        *(_row(settings, device, comparison, overhead) for comparison, overhead in overheads.items()),
        # Without the first run, which also imports modules.
        measurement_row("start of a run: folder, environment, images and graph", overheads[_PLAIN].starts[1:]),
        measurement_row("once after the first steps of a run: their work is counted", overheads[_PLAIN].counts[1:]),
        measurement_row("end of a run: record, figures of the last evaluation, tables", overheads[_EVALUATED].ends[1:]),
        measurement_row("processor time of background work, per second", _background(device)),
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
    step_seconds = median(untracked) / math.ceil(_num_samples(device, comparison) / comparison.batch_size)
    is_short = comparison.has_metrics and step_seconds < _MIN_STEP_SECONDS
    return ratio_row(
        f"tracked ({comparison.description}) / untracked",
        ours=tracked,
        other=untracked,
        budget=budget if comparison.has_budget and not is_short else None,
    )[0]


def _num_samples(device: torch.device, comparison: _Comparison) -> int:
    return _NUM_SAMPLES_ON_CPU if device.type == "cpu" else _NUM_STEPS_ON_GPU * comparison.batch_size


def _seconds_per_epoch(
    settings: Settings, device: torch.device, comparison: _Comparison, overheads: RunOverheads
) -> tuple[list[float], list[float]]:
    """Return the seconds per epoch, untracked and tracked."""
    stopping_rule, few = settings.stopping_rule, min(_FEW_ROUNDS, settings.stopping_rule.max_rounds)
    if not comparison.has_budget:
        stopping_rule = replace(stopping_rule, min_rounds=few, max_rounds=few)
    on_cpu = device.type == "cpu"
    epochs = 2 if on_cpu else 1
    num_samples = _num_samples(device, comparison)
    num_evaluated = round(_EVALUATED_SHARE * num_samples) if comparison.is_evaluated else 0
    size = comparison.batch_size
    work = Work(_batches(num_samples, size, device), _batches(num_evaluated, size, device))
    tensorboard = TensorBoardOptions(histograms=comparison.has_histograms)
    with tempfile.TemporaryDirectory() as folder:
        num_metrics = _NUM_METRICS if comparison.has_metrics else 0
        tracked = partial(
            tracked_parts, Trainer(device), work, Path(folder), overheads=overheads, num_metrics=num_metrics
        )
        contenders = {
            "untracked": partial(untracked_parts, Trainer(device), work, epochs=epochs),
            "tracked": partial(tracked, epochs=epochs, tensorboard=tensorboard),
        }
        seconds = run_parts_interleaved(contenders, stopping_rule=stopping_rule, seed=settings.seed)
    return [each / epochs for each in seconds["untracked"]], [each / epochs for each in seconds["tracked"]]


class Trainer:
    """A network and its optimiser; two trainers with the same batches compute the same."""

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
    """Run `epochs` epochs without tracking, part by part, after a short one that does not count."""
    for images, labels in work.training[:_NUM_FIRST_STEPS]:
        trainer.step(images, labels)
    synchronize(trainer.device)
    yield False
    for _ in range(epochs):
        trainer.network.train()
        for images, labels in work.training:
            _loss, _preds = trainer.step(images, labels)  # kept alive as long as in the tracked loop
            yield from _pause(trainer)
        trainer.network.eval()
        for images, labels in work.validation:
            _loss, _preds = trainer.evaluate(images, labels)
            yield from _pause(trainer)
    synchronize(trainer.device)
    yield True


def tracked_parts(
    trainer: Trainer,
    work: Work,
    folder: Path,
    *,
    epochs: int,
    tensorboard: TensorBoardOptions,
    overheads: RunOverheads,
    num_metrics: int = 0,
) -> Iterator[bool]:
    """Run `epochs` tracked epochs of a new run, in a new sweep in `folder`, part by part.

    The times of the run's start and end, and after a first epoch of a few steps, are added to `overheads` and not
    counted. Each step and each epoch has `num_metrics` metrics, numbers on the device.
    """
    of_step, of_epoch = (
        {f"{part}_{number}": torch.tensor(float(number), device=trainer.device) for number in range(num_metrics)}
        for part in ("step_metric", "epoch_metric")
    )
    manager = RunManager(folder / str(len(overheads.ends)), console=False, tensorboard=tensorboard)
    settings, options = {"device": str(trainer.device)}, RunOptions(log_every=1)
    start = time.perf_counter()
    with manager.run(settings, trainer.network, work.training, optimizer=trainer.optimizer, options=options) as run:
        synchronize(trainer.device)
        overheads.starts.append(time.perf_counter() - start)
        for epoch in run.epochs(1 + epochs):
            trainer.network.train()
            if epoch.number == 1:
                for images, labels in epoch.batches(work.training[:_NUM_FIRST_STEPS]):
                    epoch.track(*trainer.step(images, labels), labels, metrics=of_step or None)
                synchronize(trainer.device)
                first_ended = time.perf_counter()
                continue
            if epoch.number == 2:
                overheads.counts.append(time.perf_counter() - first_ended)
                yield False
            for images, labels in epoch.batches(work.training):
                loss, preds = trainer.step(images, labels)
                epoch.track(loss, preds, labels, metrics=of_step or None)
                yield from _pause(trainer)
            trainer.network.eval()
            epoch.log(of_epoch)
            if work.validation:
                for images, labels in epoch.eval_batches(work.validation):
                    epoch.track_eval(*trainer.evaluate(images, labels), labels)
                    yield from _pause(trainer)
        yield True
        ended = time.perf_counter()
    write_tables(manager.paths, report=False)  # as a manager that owns its sweep does
    overheads.ends.append(time.perf_counter() - ended)
    assert len(run.history) == 1 + epochs


def _pause(trainer: Trainer) -> Iterator[bool]:
    """Yield after a step on a CPU; on an accelerator, synchronising so often would cost more than tracking."""
    if trainer.device.type == "cpu":
        yield True


def background_cpu_seconds(trainer: Trainer, work: Work, folder: Path, *, seconds: float) -> float:
    """Return the processor seconds per second of an idle run, such as its heartbeat."""
    manager = RunManager(folder, console=False)
    with manager.run({"device": str(trainer.device)}, trainer.network, work.training) as run:
        next(run.epochs(1))
        before = time.process_time()
        time.sleep(seconds)
        return (time.process_time() - before) / seconds


if __name__ == "__main__":
    run_benchmark("tracking_overhead", measure, summary=__doc__, stopping_rule=_STOPPING_RULE, has_device=True)

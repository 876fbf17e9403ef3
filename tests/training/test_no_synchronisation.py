"""No step of the loop waits for the device: it runs on the meta device, from which no value can be read.

Tensors of PyTorch's `meta` device have no data, so an operation that would wait for a value raises.
"""

from collections.abc import Iterator
from typing import Any

import pytest
import torch
from torch import nn

from runmanager.tracking.epoch import Epoch, EpochContext
from runmanager.tracking.timing.timer import PhaseTimer
from runmanager.training.loop import evaluate_epoch, train_epoch
from runmanager.training.step.stepper import Forward, Stepper

META = torch.device("meta")
NUM_BATCHES = 20


class CountingClock:
    """A device clock that counts synchronisations."""

    def __init__(self) -> None:
        self.waits = 0
        self.marks = 0

    def synchronize(self) -> None:
        self.waits += 1

    def mark(self) -> int:
        self.marks += 1
        return self.marks

    def has_passed(self, mark: int) -> bool:
        return mark < self.marks - 100  # the device lags behind

    def seconds(self, earlier: int, later: int) -> float:
        return float(later - earlier)

    def host_seconds(self, mark: int) -> float:
        return float(mark)

    def release(self, mark: int) -> None:
        pass


@pytest.fixture
def clock() -> CountingClock:
    return CountingClock()


@pytest.fixture
def epoch(clock: CountingClock) -> Epoch:
    timer = PhaseTimer(clock)
    timer.start()
    return Epoch(1, EpochContext(timer, META, log_every=2))


@pytest.fixture
def network() -> nn.Module:
    return nn.Sequential(nn.Linear(4, 3)).to(META)


def stepper(network: nn.Module, optimizer: type[torch.optim.Optimizer] = torch.optim.SGD) -> Stepper:
    return Stepper(Forward(network), optimizer(network.parameters(), lr=0.1))


def batches(count: int = NUM_BATCHES) -> Iterator[tuple[torch.Tensor, torch.Tensor]]:
    for _ in range(count):
        yield torch.zeros(2, 4), torch.zeros(2, dtype=torch.int64)


@pytest.mark.parametrize("optimizer", [torch.optim.SGD, torch.optim.Adam])
def test_training_waits_for_nothing(
    epoch: Epoch, clock: CountingClock, network: nn.Module, optimizer: type[torch.optim.Optimizer]
) -> None:
    waits_before = clock.waits
    train_epoch(stepper(network, optimizer), epoch.batches(batches()), track=epoch.track)
    assert epoch.num_steps == NUM_BATCHES
    assert clock.waits == waits_before


def test_evaluation_waits_for_nothing(epoch: Epoch, clock: CountingClock, network: nn.Module) -> None:
    waits_before = clock.waits
    evaluate_epoch(stepper(network), epoch.eval_batches(batches()), track=epoch.track_eval)
    assert clock.waits == waits_before


def test_marking_phases_waits_for_nothing(epoch: Epoch, clock: CountingClock) -> None:
    waits_before, marks_before = clock.waits, clock.marks
    for images, labels in batches():
        with epoch.phase("transfer"):
            images, labels = images.to(META), labels.to(META)
        epoch.track(images.sum(), images, labels)
    with epoch.evaluating():
        epoch.track_eval(images.sum(), images, labels)
    assert clock.waits == waits_before
    assert clock.marks == marks_before + 3 * NUM_BATCHES + 2, "each on the device's own timeline"


@pytest.mark.parametrize("shape", [(4, 7), (400, 70)])
@pytest.mark.parametrize(
    ("task", "class_dim", "ignore_index"),
    [("multiclass", 1, -100), ("multiclass", -1, 0), ("binary", None, -100), ("multilabel", None, 5)],
)
def test_tracking_predictions_of_any_task_waits_for_nothing(
    shape: tuple[int, int], task: Any, class_dim: int | None, ignore_index: int
) -> None:
    epoch = Epoch(1, EpochContext(timer=PhaseTimer(CountingClock()), device=META, keep_scores=True))
    classes = {1: (shape[0], 3, shape[1]), -1: (*shape, 3), None: shape}[class_dim]
    loss, preds = torch.zeros((), device=META), torch.zeros(classes, device=META)
    labels = torch.zeros(shape, dtype=torch.int64, device=META)
    for _ in range(300):
        for track in (epoch.track, epoch.track_eval):
            track(loss, preds, labels, task=task, class_dim=class_dim, ignore_index=ignore_index)
    assert epoch.num_steps == 300


def test_metrics_units_and_logged_values_wait_for_nothing() -> None:
    """Not even where the program reuses one tensor, or logs with a graph attached, more often than a buffer holds."""
    epoch = Epoch(1, EpochContext(timer=PhaseTimer(CountingClock()), device=META))
    total = torch.zeros((), device=META)
    for images, labels in batches(300):
        images, labels = images.to(META).requires_grad_(), labels.to(META)
        total += 1
        epoch.track(images.sum(), images, labels, tokens=8, metrics={"ppl": images.exp().mean(), "f1": total, "n": 1})
        epoch.track_eval(images.sum(), images, labels, metrics={"val_f1": total.reshape(1, 1)})
        epoch.log(total=total, ratio=images.mean().bfloat16())
    assert epoch.num_steps == 300


@pytest.mark.parametrize("read", [torch.Tensor.item, torch.Tensor.cpu, torch.Tensor.tolist, bool, print, torch.nonzero])
def test_a_step_that_waits_would_be_detected(epoch: Epoch, network: nn.Module, read: object) -> None:
    def track(loss: torch.Tensor, preds: torch.Tensor, labels: torch.Tensor) -> None:
        epoch.track(loss, preds, labels)
        if read is not print:
            read(loss)  # type: ignore[operator]  # all of them take a tensor
        else:
            float(loss)

    with pytest.raises((RuntimeError, NotImplementedError)):
        train_epoch(stepper(network), epoch.batches(batches(2)), track=track)


def test_only_the_epochs_end_waits(clock: CountingClock) -> None:
    timer = PhaseTimer(clock)
    timer.start()
    epoch = Epoch(1, EpochContext(timer=timer, device=torch.device("cpu")))
    network = nn.Sequential(nn.Linear(4, 3))
    train_epoch(stepper(network), epoch.batches(batches(5)), track=epoch.track)
    assert clock.waits == 1
    record, _ = epoch.close()
    assert clock.waits == 3 and record.samples == 10, "for all of its work, then for the mark that comes after it"

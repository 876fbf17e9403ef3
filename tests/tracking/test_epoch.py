"""`Epoch`: attribution of its time to phases, transfer of its batches, and counting of its steps."""

import contextlib
import math
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest
import torch

from runmanager.errors import UsageError
from runmanager.tracking.device.transfer import Packed
from runmanager.tracking.epoch import Epoch, EpochContext
from runmanager.tracking.timing.phases import TimingNotes
from runmanager.tracking.timing.timer import PhaseTimer

from .conftest import Timeline

CPU = torch.device("cpu")


@pytest.fixture
def clock() -> Timeline:
    return Timeline()


def begin(
    clock: Timeline, number: int = 1, *, steps_before: int = 0, is_all_training: bool = False, **shared: Any
) -> Epoch:
    timer = PhaseTimer(clock)
    timer.start()
    context = EpochContext(timer, CPU, **shared)
    return Epoch(number, context, steps_before=steps_before, is_all_training=is_all_training)


def slow(clock: Timeline, seconds: float, count: int = 2) -> Iterator[tuple[torch.Tensor, torch.Tensor]]:
    for _ in range(count):
        clock.now += seconds
        yield torch.zeros(4, 3), torch.zeros(4, dtype=torch.int64)


LOSS = torch.tensor(1.0)


def test_unpacking_a_batch_counts_as_transfer(clock: Timeline) -> None:
    def unpack(stored: torch.Tensor) -> torch.Tensor:
        clock.now += 0.125
        return stored.to(torch.float32)

    packed = Packed(torch.zeros(4, 3, dtype=torch.uint8), unpack)
    epoch = begin(clock)
    for inputs, labels in epoch.batches([(packed, torch.zeros(4, dtype=torch.int64))] * 2):
        assert inputs.dtype == torch.float32
        clock.now += 2.0
        epoch.track(LOSS, inputs, labels)
    record, _ = epoch.close()
    assert (record.data_seconds, record.transfer_seconds, record.compute_seconds) == (0.0, 0.25, 4.0)


def test_phases_of_an_epoch(clock: Timeline) -> None:
    epoch = begin(clock)
    for _, labels in epoch.batches(slow(clock, 0.5)):
        clock.now += 2.0
        epoch.track(LOSS, torch.zeros(4, 3), labels)
    for _, labels in epoch.eval_batches(slow(clock, 1.0)):
        clock.now += 0.5
        epoch.track_eval(LOSS, torch.ones(4, 3), labels)
    record, _ = epoch.close()
    assert (record.data_seconds, record.transfer_seconds, record.compute_seconds) == (1.0, 0.0, 4.0)
    assert record.epoch_seconds == 5.0 and record.eval_seconds == 3.0 and record.tracking_seconds == 0.0
    assert record.samples == 8 and epoch.num_steps == 2
    assert (record.loss, record.accuracy, record.val_loss, record.val_accuracy) == (1.0, 1.0, 1.0, 1.0)


def test_an_evaluation_that_raises_is_timed(clock: Timeline) -> None:
    epoch = begin(clock)
    for _, labels in epoch.batches(slow(clock, 0.5)):
        epoch.track(LOSS, torch.zeros(4, 3), labels)
    for _, labels in epoch.eval_batches(slow(clock, 1.0)):
        epoch.track_eval(LOSS, torch.zeros(4, 3), labels)
        clock.now += 3.0
        break
    record, _ = epoch.close()
    assert record.epoch_seconds == 1.0 and record.eval_seconds == 4.0


def train_by_hand(epoch: Epoch, clock: Timeline, steps: int = 2, seconds: float = 2.5) -> None:
    for _ in range(steps):
        clock.now += seconds
        epoch.track(LOSS, samples=4)


def evaluate_by_hand(epoch: Epoch, clock: Timeline) -> None:
    for _ in range(2):
        clock.now += 1.5
        epoch.track_eval(LOSS, samples=4)


def train_with_batches(epoch: Epoch, clock: Timeline) -> None:
    for _ in epoch.batches(slow(clock, 0.5)):
        clock.now += 2.0
        epoch.track(LOSS, samples=4)


def evaluate_with_batches(epoch: Epoch, clock: Timeline) -> None:
    for _ in epoch.eval_batches(slow(clock, 1.0)):
        clock.now += 0.5
        epoch.track_eval(LOSS, samples=4)


def evaluate_marked(epoch: Epoch, clock: Timeline) -> None:
    with epoch.evaluating():
        clock.now += 3.0


def evaluate_marked_and_tracked(epoch: Epoch, clock: Timeline) -> None:
    with epoch.evaluating():
        evaluate_by_hand(epoch, clock)


def evaluate_with_batches_for_training(epoch: Epoch, clock: Timeline) -> None:
    with epoch.evaluating():
        for _ in epoch.batches(slow(clock, 1.0)):
            clock.now += 0.5


def evaluate_and_fail(epoch: Epoch, clock: Timeline) -> None:
    with pytest.raises(ValueError), epoch.evaluating():
        clock.now += 3.0
        raise ValueError


Part = Callable[[Epoch, Timeline], None]
TRAININGS = (train_by_hand, train_with_batches)
EVALUATIONS = (
    evaluate_by_hand,
    evaluate_with_batches,
    evaluate_marked,
    evaluate_marked_and_tracked,
    evaluate_with_batches_for_training,
    evaluate_and_fail,
)


@pytest.mark.parametrize("train", TRAININGS)
@pytest.mark.parametrize("evaluate", EVALUATIONS)
def test_training_and_evaluation_are_distinguished(clock: Timeline, train: Part, evaluate: Part) -> None:
    epoch = begin(clock)
    train(epoch, clock)
    evaluate(epoch, clock)
    clock.now += 8.0  # a scheduler, a confusion_matrix matrix: neither tracked nor marked
    record, _ = epoch.close()
    assert (record.epoch_seconds, record.eval_seconds, record.tracking_seconds) == (5.0, 3.0, 0.0)
    assert record.samples_per_second == 8 / 5.0
    assert epoch.phase_times.unclaimed == 8.0


@pytest.mark.parametrize("train", TRAININGS)
@pytest.mark.parametrize("evaluate", EVALUATIONS)
def test_an_evaluation_before_and_during_training_is_not_training(clock: Timeline, train: Part, evaluate: Part) -> None:
    epoch = begin(clock)
    evaluate(epoch, clock)
    train(epoch, clock)
    evaluate(epoch, clock)
    train(epoch, clock)
    train_by_hand(epoch, clock, seconds=0.5)
    record, _ = epoch.close()
    assert (record.epoch_seconds, record.eval_seconds, record.samples) == (11.0, 6.0, 24)
    assert epoch.phase_times.unclaimed == 0.0
    if train is train_with_batches:  # the rest of the training time is computing
        assert (record.data_seconds, record.transfer_seconds, record.compute_seconds) == (2.0, 0.0, 9.0)
    else:
        assert (record.data_seconds, record.transfer_seconds, record.compute_seconds) == (None, None, None)


@pytest.mark.parametrize("evaluate", EVALUATIONS)
def test_an_evaluation_within_a_step_is_not_training(clock: Timeline, evaluate: Part) -> None:
    timer = PhaseTimer(clock)
    for number in (1, 2):
        timer.start()
        epoch = Epoch(number, EpochContext(timer=timer, device=CPU))
        for step, _ in enumerate(epoch.batches(slow(clock, 0.5, count=4))):
            clock.now += 2.0
            epoch.track(LOSS, samples=4)
            if step == 1:
                evaluate(epoch, clock)
        record, _ = epoch.close()
        # An evaluation by hand between steps is detected from its first batch on.
        late = 2.0 if number == 1 and evaluate is evaluate_by_hand else 0.0
        assert (record.data_seconds, record.compute_seconds, record.eval_seconds) == (2.0, 8.0 - late, 3.0 + late)
        assert len(timer.step_seconds) == 4 and list(timer.step_seconds)[2:] == [2.5, 2.5]
        assert timer.step_seconds[1] == 2.5 - late


def test_marked_time_is_in_its_phase(clock: Timeline) -> None:
    timer = PhaseTimer(clock)
    timer.start()
    epoch = Epoch(1, EpochContext(timer=timer, device=CPU))
    for _ in range(2):
        for phase, seconds in (("data", 0.5), ("transfer", 0.25), ("compute", 2.0), ("tracking", 0.125)):
            with epoch.phase(phase):
                clock.now += seconds
        epoch.track(LOSS, samples=4)
    with epoch.phase("eval"):
        clock.now += 1.0
        with epoch.phase("data"):  # of the evaluation
            clock.now += 2.0
        with epoch.phase("tracking"):
            clock.now += 4.0
    record, _ = epoch.close()
    assert (record.data_seconds, record.transfer_seconds, record.compute_seconds) == (1.0, 0.5, 4.0)
    assert (record.epoch_seconds, record.eval_seconds, record.tracking_seconds) == (5.5, 3.0, 4.25)
    assert list(timer.step_seconds) == [2.75, 2.75]


def test_training_ends_with_the_last_step_if_steps_are_tracked_within_their_marks(clock: Timeline) -> None:
    epoch = begin(clock)
    for _ in range(2):
        clock.now += 0.5
        with epoch.phase("compute"):
            clock.now += 1.0
            epoch.track(LOSS, samples=4)
            clock.now += 1.0
    clock.now += 8.0
    record, _ = epoch.close()
    assert (record.data_seconds, record.compute_seconds, record.epoch_seconds) == (None, 4.0, 5.0)
    assert epoch.phase_times.unclaimed == 8.0


def test_if_data_is_marked_the_rest_of_a_step_is_computing(clock: Timeline) -> None:
    epoch = begin(clock)
    for _ in range(2):
        with epoch.phase("data"):
            clock.now += 0.5
        clock.now += 2.0
        epoch.track(LOSS, samples=4)
    record, _ = epoch.close()
    assert (record.data_seconds, record.transfer_seconds, record.compute_seconds) == (1.0, None, 4.0)
    assert record.epoch_seconds == 5.0


@pytest.mark.parametrize("name", ["evaluation", "", "epoch", "training"])
def test_an_unknown_phase_is_refused(clock: Timeline, name: str) -> None:
    with pytest.raises(UsageError, match=rf"must be data, transfer, compute, eval or tracking, got '{name}'"):
        begin(clock).phase(name)


def test_a_left_loop_that_is_still_referenced_ends_with_its_last_tracked_step(clock: Timeline) -> None:
    timer = PhaseTimer(clock)
    held = []
    for number in (1, 2):
        timer.start()
        epoch = Epoch(number, EpochContext(timer=timer, device=CPU))
        held.append(epoch.batches(slow(clock, 0.5, count=4)))  # as a progress bar does
        for step, _ in enumerate(held[-1]):
            clock.now += 2.0
            epoch.track(LOSS, samples=4)
            if step == 1:
                break
        clock.now += 16.0
        record, _ = epoch.close()
        # That the loop was left is detected at the first epoch's end, when the end of its last step is unknown.
        assert record.epoch_seconds == (5.0 if number == 2 else 3.0)
    timer.start()
    clock.now += 1.0
    with pytest.raises(UsageError, match=r"batches\(\) must come before its epoch's end, got epoch 2"):
        next(held[1])
    with pytest.raises(UsageError, match=r"phase\(\) must come before"):
        epoch.evaluating()
    held.clear()  # its end does not belong to the epoch that runs by now
    assert timer.resolve() == {}


def test_an_evaluation_interleaved_with_training_is_distinguished(clock: Timeline) -> None:
    epoch = begin(clock)
    evaluated = iter(epoch.eval_batches(slow(clock, 1.0, count=3)))
    for _ in epoch.batches(slow(clock, 0.5)):
        clock.now += 2.0
        epoch.track(LOSS, samples=4)
        next(evaluated)
        clock.now += 0.5
        epoch.track_eval(LOSS, samples=4)
    record, _ = epoch.close()
    assert (record.data_seconds, record.compute_seconds, record.eval_seconds) == (1.0, 4.0, 3.0)


@pytest.mark.parametrize(
    ("number", "enter", "message"),
    [
        (1, Epoch.evaluating, "outside of an evaluation"),
        (1, lambda epoch: contextlib.closing(started(epoch.eval_batches([LOSS]))), "call track_eval"),
        (0, lambda epoch: contextlib.nullcontext(), "epoch 0, which is the evaluation before training"),
    ],
)
def test_tracking_a_training_step_within_an_evaluation_is_refused(
    clock: Timeline, number: int, enter: Callable[[Epoch], Any], message: str
) -> None:
    """Its samples would count, but not its time."""
    epoch = begin(clock, number)
    predictions, labels = torch.zeros(4, 3), torch.zeros(4, dtype=torch.int64)
    with enter(epoch):
        for call in (
            lambda: epoch.track(LOSS, samples=4),
            lambda: epoch.track_loss(LOSS, 4),
            lambda: epoch.track_predictions(predictions, labels),
        ):
            with pytest.raises(UsageError, match=message):
                call()
        epoch.track_eval(LOSS, samples=4)
    if number:
        epoch.track(LOSS, samples=4)
    record, _ = epoch.close()
    assert (record.samples, epoch.num_steps) == (4 * number, number)


def started(batches: Iterator[Any]) -> Iterator[Any]:
    next(batches)
    return batches


def test_tracking_more_than_once_per_batch_is_noted(clock: Timeline) -> None:
    for times, is_noted in ((1, False), (2, True)):
        epoch = begin(clock)
        for _, labels in epoch.batches(slow(clock, 0.5)):
            for _ in range(times):
                epoch.track(LOSS, samples=len(labels))
        epoch.close()
        notes = TimingNotes().add(epoch.phase_times)
        assert [("more often than batches were taken" in note) for note in notes] == [True] * is_noted


def test_batches_of_two_concurrent_loaders_are_training_until_the_last_one(clock: Timeline) -> None:
    epoch = begin(clock)
    for _ in zip(epoch.batches(slow(clock, 0.5)), epoch.batches(slow(clock, 0.25)), strict=True):
        clock.now += 2.0
        epoch.track(LOSS, samples=4)
    clock.now += 8.0
    record, _ = epoch.close()
    assert (record.data_seconds, record.compute_seconds, record.epoch_seconds) == (1.5, 4.0, 5.5)


def test_an_epoch_without_tracked_steps_is_all_training_and_noted(clock: Timeline) -> None:
    epoch = begin(clock)
    clock.now += 4.0
    evaluate_marked(epoch, clock)
    clock.now += 1.0
    record, _ = epoch.close()
    assert (record.epoch_seconds, record.eval_seconds) == (5.0, 3.0)
    (note,) = TimingNotes().add(epoch.phase_times)
    assert "no step of an epoch was tracked" in note


def test_short_times_are_not_noted(clock: Timeline) -> None:
    unmarked = TimingNotes()
    for training, seconds, noted in ((2.0, 0.03125, 0), (2.0, 0.03125, 1), (5.0, 0.0, 0), (5.0, 0.25, 1)):
        epoch = begin(clock)
        train_by_hand(epoch, clock, steps=1, seconds=training)
        clock.now += seconds
        record, _ = epoch.close()
        assert (record.epoch_seconds, record.eval_seconds) == (training, None)
        notes = unmarked.add(epoch.phase_times)
        assert len(notes) == noted and all("in `wall_seconds` alone" in note for note in notes)


def test_the_tutorials_epoch_is_all_training(clock: Timeline) -> None:
    epoch = begin(clock, is_all_training=True)
    for _ in range(2):
        clock.now += 2.0
        epoch.track_loss(LOSS, 4)
    clock.now += 8.0
    record, _ = epoch.close()
    assert (record.epoch_seconds, record.eval_seconds, record.samples) == (12.0, None, 8)
    assert TimingNotes().add(epoch.phase_times) == []


def test_leaving_the_batches_early_ends_the_step(clock: Timeline) -> None:
    epoch = begin(clock)
    for _, labels in epoch.batches(slow(clock, 0.5)):
        clock.now += 2.0
        epoch.track(LOSS, labels=labels)
        break
    record, _ = epoch.close()
    assert (record.data_seconds, record.compute_seconds, record.samples) == (0.5, 2.0, 4)


def test_a_loop_without_epoch_batches_has_an_epoch_time_without_phases(clock: Timeline) -> None:
    epoch = begin(clock)
    for _, labels in slow(clock, 0.5):
        clock.now += 2.0
        epoch.track(LOSS, torch.zeros(4, 3), labels)
    record, _ = epoch.close()
    assert record.epoch_seconds == 5.0
    assert (record.data_seconds, record.transfer_seconds, record.compute_seconds) == (None, None, None)
    assert record.eval_seconds is None


def test_epoch_0_has_an_evaluation_only(clock: Timeline) -> None:
    epoch = begin(clock, 0)
    for _, labels in epoch.eval_batches(slow(clock, 1.0)):
        epoch.track_eval(LOSS, torch.zeros(4, 3), labels)
    record, _ = epoch.close()
    assert (record.epoch, record.samples, record.epoch_seconds, record.eval_seconds) == (0, 0, None, 2.0)
    assert record.loss is None and record.val_accuracy == 1.0


@pytest.mark.parametrize("hands_out", [True, False])
def test_a_first_batch_is_shown_once_and_its_time_is_tracking(clock: Timeline, hands_out: bool) -> None:
    shown = []

    def show(batch: object) -> None:
        clock.now += 16.0
        shown.append(batch)

    epoch = begin(clock, on_first_batch=show, is_all_training=not hands_out)
    batches = slow(clock, 0.5)
    for batch in epoch.batches(batches) if hands_out else batches:
        epoch.show_first_batch(batch)
        clock.now += 2.0
        epoch.track(LOSS, labels=batch[1])
    record, _ = epoch.close()
    assert len(shown) == 1
    assert record.tracking_seconds == 16.0 and record.epoch_seconds == 5.0


def test_batches_are_moved_to_the_runs_device(clock: Timeline) -> None:
    timer = PhaseTimer(clock)
    timer.start()
    epoch = Epoch(1, EpochContext(timer=timer, device=torch.device("meta")))
    assert all(images.is_meta and labels.is_meta for images, labels in epoch.batches(slow(clock, 1.0)))
    assert all(images.is_meta for images, _ in epoch.eval_batches(slow(clock, 1.0)))


def test_logged_steps_are_numbered_within_the_run(clock: Timeline) -> None:
    epoch = begin(clock, log_every=3, steps_before=4)
    for number in range(6):
        epoch.track(torch.tensor(float(number)), samples=1)
    _, logged = epoch.close()
    assert (list(logged.steps), list(logged.values)) == ([6, 9], [1.0, 4.0])
    assert not begin(clock).close()[1].steps


def test_samples_override_the_number_of_labels(clock: Timeline) -> None:
    """They may be fewer than the labels, as for sentences of several tokens, or more."""
    for samples in (2, 3, np.int64(2), 50):
        epoch = begin(clock)
        for track in (epoch.track, epoch.track_eval):
            for loss in (1.0, 4.0):
                track(
                    loss, torch.zeros(20, 3), torch.zeros(20, dtype=torch.int64), samples=samples if loss == 1.0 else 1
                )
        record, _ = epoch.close()
        assert record.samples == samples + 1
        assert record.loss == record.val_loss == pytest.approx((samples * 1.0 + 4.0) / (samples + 1))
        assert record.accuracy == record.val_accuracy == 1.0


@pytest.mark.parametrize("samples", [-3, 2.5, math.nan, True, "4", 2**63, torch.tensor(4)])
def test_an_invalid_number_of_samples_is_refused(clock: Timeline, samples: Any) -> None:
    epoch = begin(clock)
    predictions, labels = torch.zeros(4, 3), torch.zeros(4, dtype=torch.int64)
    for call in (
        lambda: epoch.track(LOSS, predictions, labels, samples=samples),
        lambda: epoch.track_loss(LOSS, samples),
        lambda: epoch.track_eval(LOSS, samples=samples),
    ):
        with pytest.raises(UsageError, match=r"`samples` must be a whole number from 0 to 2\*\*63 - 1, got"):
            call()
    record, _ = epoch.close()
    assert record.samples == 0 and record.accuracy is None


@pytest.mark.parametrize("name", ["samples", "tokens"])
def test_a_sum_that_no_record_can_hold_is_refused(clock: Timeline, name: str) -> None:
    epoch = begin(clock)
    for _ in range(2):
        epoch.track(LOSS, **{"samples": 1, name: 2**62})
    with pytest.raises(UsageError, match=rf"`{name}` of an epoch must be at most 2\*\*63 - 1, got 9223372036854775808"):
        epoch.close()


@pytest.mark.parametrize(
    ("predictions", "labels"),
    [
        (np.zeros((4, 3)), np.zeros(4, dtype=np.int64)),
        (torch.zeros(4, 3), [0] * 4),
        (torch.zeros(4, 3), np.zeros(4, dtype=np.int64)),
        (np.zeros((4, 3)), torch.zeros(4, dtype=torch.int64)),
    ],
)
def test_predictions_that_are_not_tensors_are_refused(clock: Timeline, predictions: Any, labels: Any) -> None:
    epoch = begin(clock)
    for call in (
        lambda: epoch.track(LOSS, predictions, labels),
        lambda: epoch.track(LOSS, predictions, labels, samples=4),
        lambda: epoch.track_predictions(predictions, labels),
    ):
        with pytest.raises(UsageError, match=r"must be tensors, got .*torch.as_tensor"):
            call()


def test_a_step_without_samples_or_labels_is_refused(clock: Timeline) -> None:
    epoch = begin(clock)
    with pytest.raises(UsageError, match="come with its number of samples"):
        epoch.track(LOSS)
    with pytest.raises(UsageError, match="must come with their labels"):
        epoch.track(LOSS, torch.zeros(4, 3), samples=4)
    with pytest.raises(UsageError, match="labels of no dimension"):
        epoch.track(LOSS, labels=torch.tensor(1))
    with pytest.raises(UsageError, match="must come with their labels"):
        epoch.track_eval(LOSS, torch.zeros(4, 3), samples=4)

"""An epoch: every stretch of its time in a phase, every batch moved, every step counted."""

from collections.abc import Iterator

import pytest
import torch

from runmanager.errors import UsageError
from runmanager.tracking.epoch import Epoch
from runmanager.tracking.timer import PhaseTimer
from runmanager.tracking.transfer import Packed

CPU = torch.device("cpu")


class Clock:
    """A timeline that the test moves on."""

    def __init__(self) -> None:
        self.now = 0.0

    def synchronize(self) -> None:
        pass

    def mark(self) -> float:
        return self.now

    def has_passed(self, mark: float) -> bool:
        return True

    def seconds(self, earlier: float, later: float) -> float:
        return later - earlier

    def on_host(self, mark: float) -> float:
        return mark

    def let_go(self, mark: float) -> None:
        pass


@pytest.fixture
def clock() -> Clock:
    return Clock()


def begin(clock: Clock, number: int = 1, **options: object) -> Epoch:
    timer = PhaseTimer(clock)
    timer.start()
    return Epoch(number, timer=timer, device=CPU, **options)  # type: ignore[arg-type]


def slow(clock: Clock, seconds: float, count: int = 2) -> Iterator[tuple[torch.Tensor, torch.Tensor]]:
    for _ in range(count):
        clock.now += seconds
        yield torch.zeros(4, 3), torch.zeros(4, dtype=torch.int64)


LOSS = torch.tensor(1.0)


def test_unpacking_a_batch_is_a_part_of_its_transfer(clock: Clock) -> None:
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


def test_the_parts_of_an_epoch(clock: Clock) -> None:
    epoch = begin(clock)
    for _, labels in epoch.batches(slow(clock, 0.5)):
        clock.now += 2.0
        epoch.track(LOSS, torch.zeros(4, 3), labels)
    clock.now += 0.25  # between training and evaluation
    for _, labels in epoch.eval_batches(slow(clock, 1.0)):
        clock.now += 0.5
        epoch.track_eval(LOSS, torch.ones(4, 3), labels)
    clock.now += 4.0  # a scheduler, a confusion matrix: what follows the evaluation belongs to it
    record, _ = epoch.close()
    assert (record.data_seconds, record.transfer_seconds, record.compute_seconds) == (1.0, 0.0, 4.0)
    assert record.epoch_seconds == 5.0 and record.eval_seconds == 0.25 + 3.0 + 4.0
    assert record.samples == 8 and epoch.num_steps == 2
    assert (record.loss, record.accuracy, record.val_loss, record.val_accuracy) == (1.0, 1.0, 1.0, 1.0)


def test_an_evaluation_that_is_broken_off_is_timed_too(clock: Clock) -> None:
    epoch = begin(clock)
    for _, labels in epoch.batches(slow(clock, 0.5)):
        epoch.track(LOSS, torch.zeros(4, 3), labels)
    for _, labels in epoch.eval_batches(slow(clock, 1.0)):
        epoch.track_eval(LOSS, torch.zeros(4, 3), labels)
        clock.now += 3.0
        break
    record, _ = epoch.close()
    assert record.epoch_seconds == 1.0 and record.eval_seconds == 4.0


@pytest.mark.parametrize("evaluates", [True, False])
def test_what_follows_training_is_evaluation_only_where_there_was_one(clock: Clock, evaluates: bool) -> None:
    epoch = begin(clock)
    for _, labels in epoch.batches(slow(clock, 0.5)):
        epoch.track(LOSS, torch.zeros(4, 3), labels)
    clock.now += 0.25  # by hand
    if evaluates:
        epoch.track_eval(LOSS, samples=4)
    record, _ = epoch.close()
    assert (record.eval_seconds, record.tracking_seconds) == ((0.25, 0.0) if evaluates else (None, 0.25))
    assert record.epoch_seconds == 1.0


def test_batches_that_are_left_early_are_timed_to_the_end_of_their_step(clock: Clock) -> None:
    epoch = begin(clock)
    for _, labels in epoch.batches(slow(clock, 0.5)):
        clock.now += 2.0
        epoch.track(LOSS, labels=labels)
        break
    record, _ = epoch.close()
    assert (record.data_seconds, record.compute_seconds, record.samples) == (0.5, 2.0, 4)


def test_a_loop_that_takes_its_own_batches_has_one_time_and_no_phases(clock: Clock) -> None:
    epoch = begin(clock)
    for _, labels in slow(clock, 0.5):
        clock.now += 2.0
        epoch.track(LOSS, torch.zeros(4, 3), labels)
    record, _ = epoch.close()
    assert record.epoch_seconds == 5.0
    assert (record.data_seconds, record.transfer_seconds, record.compute_seconds) == (None, None, None)
    assert record.eval_seconds is None


@pytest.mark.parametrize("hands_out", [True, False])
def test_own_batches_and_an_evaluation(clock: Clock, hands_out: bool) -> None:
    epoch = begin(clock)
    for _, labels in slow(clock, 0.5):
        epoch.track(LOSS, torch.zeros(4, 3), labels)
    batches = slow(clock, 1.0)
    for _, labels in epoch.eval_batches(batches) if hands_out else batches:
        epoch.track_eval(LOSS, torch.zeros(4, 3), labels)
    record, _ = epoch.close()
    # Where nobody handed out any batches, training and evaluation cannot be told apart.
    assert (record.epoch_seconds, record.eval_seconds) == ((1.0, 2.0) if hands_out else (3.0, None))


def test_the_epoch_before_training_has_an_evaluation_only(clock: Clock) -> None:
    epoch = begin(clock, 0)
    for _, labels in epoch.eval_batches(slow(clock, 1.0)):
        epoch.track_eval(LOSS, torch.zeros(4, 3), labels)
    record, _ = epoch.close()
    assert (record.epoch, record.samples, record.epoch_seconds, record.eval_seconds) == (0, 0, None, 2.0)
    assert record.loss is None and record.val_accuracy == 1.0


@pytest.mark.parametrize("hands_out", [True, False])
def test_a_first_batch_is_shown_once_and_showing_it_is_tracking(clock: Clock, hands_out: bool) -> None:
    shown = []

    def show(batch: object) -> None:
        clock.now += 16.0
        shown.append(batch)

    epoch = begin(clock, when_first_batch=show)
    batches = slow(clock, 0.5)
    for batch in epoch.batches(batches) if hands_out else batches:
        epoch.show_first_batch(batch)
        clock.now += 2.0
        epoch.track(LOSS, labels=batch[1])
    record, _ = epoch.close()
    assert len(shown) == 1
    assert record.tracking_seconds == 16.0 and record.epoch_seconds == 5.0


def test_batches_arrive_on_the_runs_device(clock: Clock) -> None:
    timer = PhaseTimer(clock)
    timer.start()
    epoch = Epoch(1, timer=timer, device=torch.device("meta"))
    assert all(images.is_meta and labels.is_meta for images, labels in epoch.batches(slow(clock, 1.0)))
    assert all(images.is_meta for images, _ in epoch.eval_batches(slow(clock, 1.0)))


def test_steps_are_logged_at_their_number_in_the_run(clock: Clock) -> None:
    epoch = begin(clock, log_every=3, steps_before=4)
    for number in range(6):
        epoch.track(torch.tensor(float(number)), samples=1)
    _, logged = epoch.close()
    assert (list(logged.steps), list(logged.values)) == ([6, 9], [1.0, 4.0])
    assert not begin(clock).close()[1].steps


def test_what_cannot_be_counted_is_refused(clock: Clock) -> None:
    epoch = begin(clock)
    with pytest.raises(UsageError, match="how many samples"):
        epoch.track(LOSS)
    with pytest.raises(UsageError, match="must come with their labels"):
        epoch.track(LOSS, torch.zeros(4, 3), samples=4)
    with pytest.raises(UsageError, match="must come with their labels"):
        epoch.track_eval(LOSS, torch.zeros(4, 3), samples=4)

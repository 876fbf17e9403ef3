"""Tests of the estimates of the time left."""

import pytest

from runmanager.app.display.eta import seconds_per_epoch, sweep_seconds_left
from runmanager.records.run.run_record import EpochRecord


def epoch(number: int, seconds: float | None, *, warmup: bool = False) -> EpochRecord:
    return EpochRecord(epoch=number, wall_seconds=seconds, warmup=warmup)


def test_each_epoch_takes_the_median() -> None:
    epochs = [epoch(1, 9.0, warmup=True), epoch(2, 1.0), epoch(3, 2.0), epoch(4, 3.0)]
    assert seconds_per_epoch(epochs) == 2.0


def test_warm_up_counts_while_no_other_epoch_exists() -> None:
    assert seconds_per_epoch([epoch(0, 1.0, warmup=True), epoch(1, 9.0, warmup=True)]) == 9.0


@pytest.mark.parametrize("epochs", [[], [epoch(0, 1.0)], [epoch(1, None)]])
def test_without_a_timed_epoch_there_is_no_estimate(epochs: list[EpochRecord]) -> None:
    assert seconds_per_epoch(epochs) is None


def test_epochs_of_another_run_say_nothing_of_this_one() -> None:
    copied = [epoch(1, 9.0, warmup=True), epoch(2, 9.0, warmup=True)]
    assert seconds_per_epoch(copied, copied=2) is None
    assert seconds_per_epoch([*copied, epoch(3, 1.0)], copied=2) == 1.0


def test_waiting_runs_take_the_first_free_slot() -> None:
    # Slots free at 1 and 5; the runs begin at 1, 5 and 5 and end at 5, 9 and 7.
    assert sweep_seconds_left([1.0, 5.0], waiting=[4.0, 4.0, 2.0], at_once=2) == 9.0


@pytest.mark.parametrize(
    ("running", "waiting", "left"), [([1.0, None], [], 1.0), ([1.0], [2.0, None], 3.0), ([None], [None], None)]
)
def test_runs_of_unknown_length_leave_the_least_that_the_sweep_takes(
    running: list[float | None], waiting: list[float | None], left: float | None
) -> None:
    assert sweep_seconds_left(running, waiting=waiting, at_once=1) == left


def test_a_sweep_without_waiting_runs_ends_with_the_last_one() -> None:
    assert sweep_seconds_left([1.0, 3.0], waiting=[], at_once=2) == 3.0

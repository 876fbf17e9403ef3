"""Tests of the estimates of the time left."""

import pytest

from runmanager.app.display.eta import run_seconds_left, sweep_seconds_left
from runmanager.records.run.run_record import EpochRecord


def epoch(number: int, seconds: float | None, *, warmup: bool = False) -> EpochRecord:
    return EpochRecord(epoch=number, wall_seconds=seconds, warmup=warmup)


def test_each_remaining_epoch_takes_the_median() -> None:
    epochs = [epoch(1, 9.0, warmup=True), epoch(2, 1.0), epoch(3, 2.0), epoch(4, 3.0)]
    assert run_seconds_left(epochs, 10) == 6 * 2.0


def test_warm_up_counts_while_no_other_epoch_exists() -> None:
    assert run_seconds_left([epoch(0, 1.0, warmup=True), epoch(1, 9.0, warmup=True)], 3) == 18.0


@pytest.mark.parametrize("epochs", [[], [epoch(0, 1.0)], [epoch(1, None)]])
def test_without_a_timed_epoch_there_is_no_estimate(epochs: list[EpochRecord]) -> None:
    assert run_seconds_left(epochs, 3) is None


def test_a_run_with_all_its_epochs_has_no_time_left() -> None:
    assert run_seconds_left([epoch(3, 2.0)], 3) == 0.0


def test_waiting_runs_take_the_first_free_slot() -> None:
    # Slots free at 1 and 5; runs of 4 begin at 1 and 5 and end at 5 and 9; the third begins at 5 and ends at 9.
    assert sweep_seconds_left([1.0, 5.0], num_waiting=3, run_seconds=[4.0, 4.0, 9.0], at_once=2) == 9.0


def test_a_running_run_of_unknown_length_takes_the_median() -> None:
    assert sweep_seconds_left([None], num_waiting=1, run_seconds=[4.0], at_once=1) == 8.0


def test_without_a_measured_run_a_sweep_has_no_estimate() -> None:
    assert sweep_seconds_left([1.0], num_waiting=1, run_seconds=[], at_once=1) is None
    assert sweep_seconds_left([None], num_waiting=0, run_seconds=[], at_once=1) is None
    assert sweep_seconds_left([1.0], num_waiting=0, run_seconds=[], at_once=1) == 1.0

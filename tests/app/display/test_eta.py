"""How long runs and sweeps still take."""

import pytest

from runmanager.app.display.eta import run_seconds_left, sweep_seconds_left
from runmanager.records.run.record import EpochRecord


def epoch(number: int, seconds: float | None, *, warmup: bool = False) -> EpochRecord:
    return EpochRecord(epoch=number, wall_seconds=seconds, warmup=warmup)


def test_a_run_takes_its_median_epoch_for_each_that_is_left() -> None:
    epochs = [epoch(1, 9.0, warmup=True), epoch(2, 1.0), epoch(3, 2.0), epoch(4, 3.0)]
    assert run_seconds_left(epochs, 10) == 6 * 2.0


def test_the_warm_up_counts_while_there_is_nothing_else() -> None:
    assert run_seconds_left([epoch(0, 1.0, warmup=True), epoch(1, 9.0, warmup=True)], 3) == 18.0


@pytest.mark.parametrize("epochs", [[], [epoch(0, 1.0)], [epoch(1, None)]])
def test_nothing_is_said_before_an_epoch_was_timed(epochs: list[EpochRecord]) -> None:
    assert run_seconds_left(epochs, 3) is None


def test_a_run_that_has_all_its_epochs_takes_nothing_more() -> None:
    assert run_seconds_left([epoch(3, 2.0)], 3) == 0.0


def test_waiting_runs_take_the_place_that_is_free_first() -> None:
    # Places free at 1 and 5; runs of 4 begin at 1 and 5 and end at 5 and 9; the third begins at 5 and ends at 9.
    assert sweep_seconds_left([1.0, 5.0], num_waiting=3, run_seconds=[4.0, 4.0, 9.0], at_once=2) == 9.0


def test_a_running_run_of_unknown_length_is_taken_for_a_usual_one() -> None:
    assert sweep_seconds_left([None], num_waiting=1, run_seconds=[4.0], at_once=1) == 8.0


def test_nothing_is_said_of_a_sweep_before_a_run_was_measured() -> None:
    assert sweep_seconds_left([1.0], num_waiting=1, run_seconds=[], at_once=1) is None
    assert sweep_seconds_left([None], num_waiting=0, run_seconds=[], at_once=1) is None
    assert sweep_seconds_left([1.0], num_waiting=0, run_seconds=[], at_once=1) == 1.0

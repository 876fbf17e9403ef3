"""Tests of the estimates of the time left."""

import pytest

from runmanager.app.display.eta import EndedRun, expected_seconds, run_seconds_left, sweep_seconds_left
from runmanager.records.run.run_record import Attempt, Environment, EpochRecord, RunRecord
from runmanager.records.run.status import Status


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


def test_epochs_of_another_run_say_nothing_of_this_one() -> None:
    copied = [epoch(1, 9.0, warmup=True), epoch(2, 9.0, warmup=True)]
    assert run_seconds_left(copied, 4, copied=2) is None
    assert run_seconds_left([*copied, epoch(3, 1.0)], 5, copied=2) == 2.0


def test_a_run_that_continues_another_took_its_own_epochs_alone() -> None:
    other = Attempt(started_at="", ended_at="", last_epoch=2, environment=Environment(), run="shorter")
    record = RunRecord(
        name="", signature="", status=Status.FINISHED, config={}, run_seconds=25.0, earlier=(other,), attempt=1
    )
    epochs = [EpochRecord(epoch=number, run_seconds=10.0 * number) for number in (1, 2)]
    assert EndedRun.of(record, [*epochs, EpochRecord(epoch=3, run_seconds=25.0)]) == EndedRun(5.0, 1)


def test_a_run_of_more_epochs_is_expected_to_take_longer() -> None:
    ended = [EndedRun(4.0, 2), EndedRun(6.0, 3), EndedRun(30.0, 10)]
    assert expected_seconds(ended, 5) == 10.0
    assert expected_seconds([*ended, EndedRun(7.0)], 5) == 6.5  # one of unknown length: the median of all
    assert expected_seconds([], 5) is None


def test_waiting_runs_take_the_first_free_slot() -> None:
    # Slots free at 1 and 5; the runs begin at 1, 5 and 5 and end at 5, 9 and 7.
    assert sweep_seconds_left([1.0, 5.0], waiting=[4.0, 4.0, 2.0], at_once=2) == 9.0


@pytest.mark.parametrize(("running", "waiting"), [([1.0, None], []), ([1.0], [2.0, None])])
def test_a_run_of_unknown_length_leaves_the_sweep_unknown(
    running: list[float | None], waiting: list[float | None]
) -> None:
    assert sweep_seconds_left(running, waiting=waiting, at_once=1) is None


def test_a_sweep_without_waiting_runs_ends_with_the_last_one() -> None:
    assert sweep_seconds_left([1.0, 3.0], waiting=[], at_once=2) == 3.0

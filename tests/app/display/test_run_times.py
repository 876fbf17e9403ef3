"""Tests of the time that a run will take, as runs that have finished show it."""

from collections.abc import Mapping
from typing import Any

import pytest

from runmanager.app.display.run_times import (
    RunTime,
    RunTimes,
    RunToCome,
    seconds_per_epoch,
    sweep_seconds_left,
    without_epochs,
)
from runmanager.records.run.run_record import Attempt, Environment, EpochRecord, RunRecord
from runmanager.records.run.status import Status

SETTINGS = {"model": {"name": "mlp", "dropout": 0.0}, "lr": 0.1, "seed": 0, "batch_size": 100, "epochs": 4}


def note(
    times: RunTimes,
    settings: Mapping[str, Any],
    *seconds: float,
    planned: int = 0,
    startup: float = 2.0,
    copied: int = 0,
    status: Status = Status.FINISHED,
) -> None:
    """Let the times know a run whose epochs took these `seconds`, of which another run made the `copied`."""
    ends = [startup + sum(seconds[: number + 1]) for number in range(len(seconds))]
    epochs = [
        EpochRecord(epoch=number, wall_seconds=took, run_seconds=end, warmup=number <= max(1, copied))
        for number, (took, end) in enumerate(zip(seconds, ends, strict=True), 1)
    ]
    other = Attempt(started_at="", ended_at="", last_epoch=copied, environment=Environment(), run="shorter")
    record = RunRecord(
        name="",
        signature="",
        status=status,
        config=dict(settings),
        run_seconds=ends[-1] if ends else startup,
        epochs_planned=planned or len(seconds) or None,
        earlier=(other,) if copied else (),
        cell_command=() if seconds else ("python", "train.py"),
        attempt=1,
    )
    times.note(record, epochs)


def expected(times: RunTimes, to_do: int | None, /, **changes: Any) -> float | None:
    record = RunRecord(name="", signature="", status=Status.PENDING, config=SETTINGS | changes)
    return times.expected(RunToCome(times.work(record.settings), to_do))


@pytest.mark.parametrize(
    "other", [{"lr": 0.5}, {"seed": 1}, {"model": {"name": "mlp", "dropout": 0.5}}, {"epochs": 10}]
)
def test_a_run_of_the_same_work_takes_its_start_and_each_epoch_to_come(other: dict[str, Any]) -> None:
    times = RunTimes()
    note(times, SETTINGS, 3.0, 1.0, 1.0, 1.0)  # the first epoch is warm-up, and counts as a part of the start
    assert expected(times, 10, **other) == 4.0 + 10 * 1.0
    assert expected(times, 1, **other) == 4.0 + 1.0, "it has been resumed"


@pytest.mark.parametrize(
    "other", [{"batch_size": 200}, {"model": {"name": "cnn", "dropout": 0.0}}, {"alpha": 2}, {"temperature": 5}]
)
def test_nothing_is_said_of_a_run_of_other_work(other: dict[str, Any]) -> None:
    times = RunTimes()
    note(times, SETTINGS, 1.0, 1.0)
    assert expected(times, 2, **other) is None


def test_unlike_cells_have_their_own_times() -> None:
    times = RunTimes()
    note(times, SETTINGS, 1.0, 1.0, startup=0.0)
    note(times, SETTINGS | {"batch_size": 1}, 50.0, 50.0, startup=0.0)
    assert (expected(times, 2, seed=1), expected(times, 2, seed=1, batch_size=1)) == (2.0, 100.0)


def test_the_last_cell_of_a_grid_is_scaled_as_its_settings_change_the_time_of_others() -> None:
    times = RunTimes()
    large = {"model": {"name": "cnn", "dropout": 0.0}}
    for settings, seconds in ((SETTINGS, 1.0), (SETTINGS | {"batch_size": 1}, 10.0), (SETTINGS | large, 3.0)):
        note(times, settings, seconds, seconds, startup=0.0)
    assert expected(times, 2, batch_size=1, **large) == 60.0
    assert expected(times, 2, batch_size=7, **large) is None


def test_runs_that_stop_early_let_others_be_expected_to() -> None:
    times = RunTimes()
    note(times, SETTINGS, *[1.0] * 5, planned=20, startup=0.0)
    assert expected(times, 20) == 5.0
    assert times.share(times.work({})) == 1.0


def test_a_run_that_continues_another_took_its_own_epochs_alone() -> None:
    times = RunTimes()
    note(times, SETTINGS, 10.0, 10.0, 5.0, startup=0.0, copied=2)
    assert expected(times, 3) == 15.0


def test_without_counted_epochs_whole_runs_are_compared() -> None:
    times = RunTimes()
    note(times, SETTINGS, startup=7.0)
    assert (expected(times, None), expected(times, None, epochs=8), expected(times, 8)) == (7.0, None, None)


def test_a_run_under_way_counts_until_one_of_its_work_has_finished() -> None:
    times = RunTimes()
    record = RunRecord(name="", signature="", status=Status.PENDING, config=SETTINGS)
    run = RunToCome(times.work(record.settings), 4)
    running = {without_epochs(run.work): RunTime(1.0, 2.0)}
    assert times.expected(run, running=running) == 9.0
    note(times, SETTINGS, 1.0, 1.0, startup=0.0)
    assert times.expected(run, running=running) == 4.0


def test_a_run_that_was_killed_counts_until_one_of_its_work_has_finished() -> None:
    times = RunTimes()
    note(times, SETTINGS, 3.0, 1.0, planned=4, status=Status.KILLED)
    assert expected(times, 4, seed=1) == 4.0 + 4 * 1.0
    assert expected(times, 2) == 4.0 + 2 * 1.0, "it is resumed"
    assert expected(times, None, seed=1) is None
    note(times, SETTINGS, 5.0, 5.0, startup=0.0)
    assert expected(times, 4, seed=1) == 20.0


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

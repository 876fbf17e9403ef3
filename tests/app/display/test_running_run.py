"""A running run as the live table follows it: how far it is, and how long it will still take."""

import dataclasses
import os
import time
from pathlib import Path

import msgspec
import pytest

from runmanager.app.display.run_times import RunTimes
from runmanager.app.display.running_run import RunningRun
from runmanager.records.files.paths import RunPaths
from runmanager.records.run.heartbeat import Beat, write_beat
from runmanager.records.run.run_record import Attempt, Environment, EpochRecord, Measurements, RunRecord
from runmanager.records.run.status import Status
from runmanager.records.storage.versioned_file import encode_record

BEGAN = 1_000_000_000
MADE = "2001-01-01T00:00:00+00:00"


class Run:
    """A run of 4 epochs of 10 steps in its folder, which began at `BEGAN`."""

    def __init__(self, folder: Path) -> None:
        self.paths = RunPaths(folder / "lr=0.1-00000001")
        self.paths.root.mkdir()
        self.write()
        self.followed = RunningRun(self.paths.name, self.paths, 4, since=BEGAN, seen_at=BEGAN)

    def write(self, *earlier: Attempt, evaluate_first: bool = False) -> None:
        record = RunRecord(
            name=self.paths.name,
            signature="s",
            status=Status.RUNNING,
            config={"epochs": 4, "evaluate_first": evaluate_first},
            earlier=earlier,
            measurements=Measurements(steps_per_epoch=10),
        )
        self.paths.record.write_bytes(encode_record(record))

    def beat(self, progress: int, *, at: int = BEGAN + 50) -> None:
        write_beat(self.paths.heartbeat, Beat(1, progress, at))
        os.utime(self.paths.heartbeat, (at, at))

    def end_epochs(self, *ends: float, wall_seconds: float = 100.0, first: int = 1) -> None:
        """Write the epochs, from the `first`, that ended so many seconds after `BEGAN`."""
        epochs = [
            EpochRecord(epoch=number, wall_seconds=wall_seconds, run_seconds=end)
            for number, end in enumerate(ends, first)
        ]
        self.paths.epochs.write_bytes(b"".join(msgspec.json.encode(each) + b"\n" for each in epochs))
        os.utime(self.paths.epochs, (BEGAN + ends[-1], BEGAN + ends[-1]))

    def look(self) -> RunningRun:
        self.followed = self.followed.as_read().with_share()
        return self.followed


@pytest.fixture
def run(tmp_path: Path) -> Run:
    return Run(tmp_path)


def test_the_first_epoch_advances_with_the_steps_of_its_loader(run: Run) -> None:
    run.beat(5)  # each step is taken and tracked: 20 in an epoch
    assert run.look().share == 0.25
    run.beat(100)  # it evaluates
    assert run.look().share == 0.99


def test_the_time_left_is_known_once_steps_after_the_first_ones_were_timed(run: Run) -> None:
    for progress, at in ((0, 30), (1, 32), (5, 70)):  # the process starts, then it compiles
        run.beat(progress, at=BEGAN + at)
        assert run.look().seconds_left(BEGAN + at) is None
    run.beat(10, at=BEGAN + 80)  # two seconds for each
    assert run.look().seconds_left(BEGAN + 80) == pytest.approx(10 * 2 + 3 * 40)


def test_a_long_first_epoch_tells_its_time_after_some_seconds(run: Run) -> None:
    run.followed = dataclasses.replace(run.followed, per_epoch=20_000)
    paces = []
    for progress, at in ((100, 10), (200, 15), (300, 20)):
        run.beat(progress, at=BEGAN + at)
        paces.append(run.look().pace())
    assert paces[:2] == [None, None]
    assert paces[2] is not None and paces[2].per_epoch == pytest.approx(1000)


def test_the_time_left_never_rises_between_two_heartbeats(run: Run) -> None:
    for progress, at in ((5, 50), (10, 100)):
        run.beat(progress, at=BEGAN + at)
        run.look()
    left = [run.look().seconds_left(BEGAN + after) for after in (100, 110, 120)]
    assert left == pytest.approx([700, 690, 680])
    run.beat(15, at=BEGAN + 125)  # it has become faster
    assert run.look().seconds_left(BEGAN + 130) == pytest.approx(50 + 15 * 7.5 + 3 * 150 - 130)


def test_a_later_epoch_advances_as_the_one_before(run: Run) -> None:
    run.beat(30, at=BEGAN + 100)  # 20 of training, 10 of evaluation
    run.end_epochs(100.0)
    assert run.look().share == 0.0
    run.beat(45, at=BEGAN + 150)
    assert run.look().share == 0.5
    assert run.followed.seconds_left(BEGAN + 150) == pytest.approx(3 * 100 - 50)


def test_a_run_that_is_to_stop_takes_until_the_end_of_its_epoch(run: Run) -> None:
    assert run.look().seconds_to_epoch_end(BEGAN + 10) is None
    run.end_epochs(100.0)
    assert run.look().seconds_to_epoch_end(BEGAN + 130) == pytest.approx(70)
    run.end_epochs(100.0, 200.0, 300.0, 400.0)
    assert run.look().seconds_to_epoch_end(BEGAN + 430) == 0


def test_epochs_of_a_few_heartbeats_advance_from_the_moment_when_the_one_before_ended(run: Run) -> None:
    run.beat(80, at=BEGAN + 11)  # of 100, as the epoch has ended two seconds later
    run.end_epochs(13.0, wall_seconds=10.0)
    assert run.look().share == 0.0
    for seconds in (1, 3, 5, 7, 9):
        run.beat(100 + 10 * seconds, at=BEGAN + 13 + seconds)
        assert run.look().share == pytest.approx(seconds / 10)


def test_a_run_that_is_first_seen_in_a_later_epoch_advances(run: Run) -> None:
    run.beat(250, at=BEGAN + 25)
    run.end_epochs(10.0, 20.0, wall_seconds=10.0)
    run.look()
    assert run.look().share == 0.5


def test_an_evaluation_before_training_is_no_part_of_an_epoch(run: Run) -> None:
    run.write(evaluate_first=True)
    run.beat(10, at=BEGAN + 20)
    assert run.look().share == 0.0
    assert run.followed.seconds_left(BEGAN + 20) is None
    run.end_epochs(25.0, wall_seconds=25.0, first=0)
    run.look()
    run.beat(15, at=BEGAN + 75)
    assert run.look().share == 0.25
    assert run.followed.seconds(BEGAN + 75) == pytest.approx(75, abs=0.1)
    run.beat(20, at=BEGAN + 125)
    assert run.look().seconds_left(BEGAN + 125) == pytest.approx(4 * 200 - 100, abs=1)


def test_others_that_stopped_early_shorten_the_time_left_until_it_has_made_more(run: Run) -> None:
    record = RunRecord(name="", signature="", status=Status.FINISHED, config={}, run_seconds=10.0, epochs_planned=4)
    times = RunTimes()
    times.note(record, [EpochRecord(epoch=number, wall_seconds=5.0) for number in (1, 2)])
    run.followed = dataclasses.replace(run.followed, work=times.work(record.settings))
    run.end_epochs(100.0)
    assert run.look().seconds_left(BEGAN + 100, times) == pytest.approx(100)
    run.end_epochs(100.0, 200.0)
    assert run.look().seconds_left(BEGAN + 200, times) == pytest.approx(200)


def test_heartbeats_say_nothing_of_epochs_that_are_as_short(run: Run) -> None:
    run.beat(0)
    run.end_epochs(3.0, wall_seconds=3.0)
    run.look()
    run.beat(45)
    assert run.look().share == 0.0


def test_a_heartbeat_of_an_earlier_attempt_does_not_count(run: Run) -> None:
    run.beat(15, at=BEGAN - 60)
    assert run.look().share == 0.0


def test_epochs_that_another_run_has_made_are_neither_its_time_nor_its_speed(run: Run) -> None:
    other = Attempt(started_at=MADE, ended_at=MADE, last_epoch=2, environment=Environment(), run="shorter")
    run.write(other)
    run.end_epochs(100.0, 200.0)
    os.utime(run.paths.epochs, (BEGAN, BEGAN))  # they were copied when it began
    seen = run.look()
    assert seen.seconds(BEGAN + 30) == pytest.approx(30)
    assert seen.seconds_left(BEGAN + 30) is None
    record = RunRecord(name="", signature="", status=Status.FINISHED, config={}, run_seconds=80.0, epochs_planned=4)
    times = RunTimes()
    times.note(record)
    like_it = dataclasses.replace(seen, work=times.work(record.settings))
    assert like_it.seconds_left(BEGAN + 30, times) == pytest.approx(2 * 20 - 30)
    run.beat(10)
    assert run.look().share == 0.5


def test_a_run_that_takes_turns_waits_for_the_others(run: Run) -> None:
    run.followed = RunningRun(run.paths.name, run.paths, 4, measure_seconds=60.0, since=BEGAN, seen_at=BEGAN)
    run.beat(5)
    first = run.look()
    assert first.seconds_left(BEGAN + 50, group=2) is None
    run.end_epochs(100.0)
    trained = run.look()
    assert trained.seconds_left(BEGAN + 180, group=2) == 660.0  # three epochs of both, and the measurement
    assert not trained.row(BEGAN + 180).is_measuring
    run.end_epochs(100.0, 200.0, 300.0, 400.0)
    measuring = run.look()
    assert measuring.row(BEGAN + 430).is_measuring
    assert measuring.seconds_left(BEGAN + 430, group=2) == pytest.approx(30.0, abs=0.01)
    assert {each.seconds(BEGAN + 450) for each in (first, trained, measuring)} == {None}, "it also waited"


def test_a_run_that_was_not_followed_from_its_start_has_run_since_its_last_epoch(run: Run) -> None:
    last = time.time() - 40
    run.followed = RunningRun(run.paths.name, run.paths, 4, since=last - 100, seen_at=last - 100)
    run.end_epochs(50.0, 100.0, wall_seconds=50.0)
    os.utime(run.paths.epochs, (last, last))
    seen = run.look()
    assert seen.seconds(time.time()) == pytest.approx(140, abs=30)  # a busy machine
    assert seen.seconds(last + 40) == pytest.approx(140, abs=1)
    assert seen.seconds_left(last + 40) == pytest.approx(2 * 50 - 40, abs=1)

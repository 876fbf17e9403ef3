"""Time limits of jobs: total time and time without a step, by a fake clock."""

from pathlib import Path

import pytest

from runmanager.launching.local.jobs import Limits, LimitWatch
from runmanager.records.run.heartbeat import Beat, write_beat
from runmanager.records.run.status import Outcome, Reason, Status

STALLED = Outcome(Status.KILLED, Reason.STALLED, "no step for stall_timeout=5 s")


class Clock:
    now = 100.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def beat(tmp_path: Path) -> Path:
    return tmp_path / "heartbeat"


def watch(clock: Clock, beat: Path, **limits: float) -> LimitWatch:
    return LimitWatch(Limits(heartbeat=beat, **limits), clock=clock)


def test_without_limits_there_is_no_verdict(clock: Clock, beat: Path) -> None:
    watched = watch(clock, beat)
    clock.now += 1e9
    assert watched.verdict() is None


def test_a_job_with_steps_is_killed_when_its_time_is_over(clock: Clock, beat: Path) -> None:
    watched = watch(clock, beat, timeout=10, stall_timeout=5)
    for second in range(1, 10):
        write_beat(beat, Beat(second, second))
        clock.now = 100 + second
        assert watched.verdict() is None
    clock.now = 110
    assert watched.verdict() == Outcome(Status.KILLED, Reason.TIMEOUT, "longer than timeout=10 s")


def test_a_job_that_beats_without_a_step_is_stalled(clock: Clock, beat: Path) -> None:
    watched = watch(clock, beat, stall_timeout=5)
    verdicts = []
    for second in range(12):
        write_beat(beat, Beat(second + 1, min(second, 4)))
        clock.now = 100 + second
        verdicts.append(watched.verdict())
    assert verdicts == [None] * 9 + [STALLED] * 3  # its last step was seen at 4


def test_a_delayed_beat_does_not_count_as_a_stall(clock: Clock, beat: Path) -> None:
    watched = watch(clock, beat, stall_timeout=5)
    write_beat(beat, Beat(1, 1))
    assert watched.verdict() is None
    clock.now += 9  # a busy machine: the heartbeat thread did not run
    assert watched.verdict() is None
    write_beat(beat, Beat(2, 800))
    assert watched.verdict() is None
    clock.now += 5
    write_beat(beat, Beat(3, 800))
    assert watched.verdict() == STALLED


def test_a_job_that_stops_beating_is_stalled_a_little_later(clock: Clock, beat: Path) -> None:
    watched = watch(clock, beat, stall_timeout=5)
    write_beat(beat, Beat(1, 1))
    assert watched.verdict() is None
    clock.now += 14.9
    assert watched.verdict() is None
    clock.now += 0.1
    assert watched.verdict() == STALLED


def test_a_job_that_never_beats_is_stalled(clock: Clock, beat: Path) -> None:
    watched = watch(clock, beat, stall_timeout=5)
    clock.now += 4.9
    assert watched.verdict() is None
    clock.now += 0.1
    assert watched.verdict() == STALLED


def test_the_heartbeat_of_an_earlier_try_does_not_count(clock: Clock, beat: Path) -> None:
    write_beat(beat, Beat(7, 7))
    watched = watch(clock, beat, stall_timeout=5)
    clock.now += 4
    write_beat(beat, Beat(1, 0))
    assert watched.verdict() is None
    clock.now += 4
    write_beat(beat, Beat(2, 0))
    assert watched.verdict() is None
    clock.now += 1
    assert watched.verdict() == STALLED

"""Attempts of a run: when its processes lived."""

import datetime
from collections.abc import Callable
from typing import Any

import msgspec
import pytest

from runmanager.records.run.attempts import (
    attempts_up_to,
    epochs_of_other_runs,
    last_sign_of_life,
    measured_since,
    own_attempts,
    process_spans,
    session_of_epoch,
    session_seconds,
    sessions_of,
)
from runmanager.records.run.heartbeat import Beat
from runmanager.records.run.run_record import Attempt, Environment, EpochRecord, RunRecord
from runmanager.records.run.status import Status

NOON = datetime.datetime(2026, 11, 21, 12, 0, tzinfo=datetime.UTC)
HERE = Environment(host="anvil", torch_threads=1, device_name="Zen 4", libraries={"torch": "2.15.0"})
ELSEWHERE = msgspec.structs.replace(HERE, host="bellows", torch_threads=2)

MakeRecord = Callable[..., RunRecord]


def at(seconds: float) -> str:
    return (NOON + datetime.timedelta(seconds=seconds)).isoformat()


def unix(seconds: float) -> float:
    return NOON.timestamp() + seconds


def attempt(start: float, end: float, last_epoch: int, environment: Environment = HERE) -> Attempt:
    return Attempt(started_at=at(start), ended_at=at(end), last_epoch=last_epoch, environment=environment)


def epochs(*run_seconds: float) -> list[EpochRecord]:
    return [EpochRecord(epoch=number, run_seconds=seconds) for number, seconds in enumerate(run_seconds, start=1)]


def resumed(record: MakeRecord, *earlier: Attempt, **fields: Any) -> RunRecord:
    usual = {"started_at": at(0), "resumed_at": at(100), "environment": HERE, "earlier": earlier}
    return record(**{**usual, **fields})


def test_process_spans_are_those_of_the_attempts(record: MakeRecord) -> None:
    run = resumed(record, attempt(0, 10, 2, ELSEWHERE), attempt(40, 50, 3), ended_at=at(120), status=Status.FINISHED)
    assert process_spans(run) == [
        ("bellows", unix(0), unix(10)),
        ("anvil", unix(40), unix(50)),
        ("anvil", unix(100), unix(120)),
    ]
    assert process_spans(resumed(record))[-1] == ("anvil", unix(100), float("inf"))
    assert (
        process_spans(record(started_at=None)) == process_spans(record(started_at=at(0), status=Status.SKIPPED)) == []
    )


def test_a_time_without_a_zone_is_universal_time(record: MakeRecord) -> None:
    naive = record(started_at="2026-11-21T12:00:00", ended_at="2026-11-21T12:00:09", status=Status.FINISHED)
    zoned = record(started_at="2026-11-21T13:00:00+01:00", ended_at=at(9), status=Status.FINISHED)
    for run in (naive, zoned):
        ((_, start, end),) = process_spans(run)
        assert (start, end) == (unix(0), unix(9))


@pytest.mark.parametrize(
    ("beat", "lived_until"),
    [(None, 13.0), (Beat(1, 1, int(unix(20))), 20.0), (Beat(1, 1, int(unix(5))), 13.0)],
    ids=["no beat", "a beat after the epoch", "a beat before it"],
)
def test_run_without_a_recorded_end_lived_until_its_last_sign_of_life(
    record: MakeRecord, beat: Beat | None, lived_until: float
) -> None:
    run = record(status=Status.CRASHED, started_at=at(0), environment=HERE)
    assert last_sign_of_life(run, epochs(8, 13), beat) == at(lived_until)
    assert process_spans(run, epochs(8, 13), beat) == [("anvil", unix(0), unix(lived_until))]
    assert last_sign_of_life(record(), [], beat) is None


def test_epochs_of_earlier_attempts_do_not_count_for_the_last_one(record: MakeRecord) -> None:
    run = resumed(record, attempt(0, 10, 2), status=Status.CRASHED)
    assert last_sign_of_life(run, epochs(4, 8), None) == at(100)
    assert last_sign_of_life(run, epochs(4, 8, 15), None) == at(107)


def test_epochs_past_the_checkpoint_are_dropped_from_attempts() -> None:
    earlier = (attempt(0, 10, 5), attempt(20, 30, 7))
    assert [each.last_epoch for each in attempts_up_to(earlier, 6)] == [5, 6]
    assert [each.last_epoch for each in attempts_up_to(earlier, 4)] == [4, 4]
    assert [each.last_epoch for each in attempts_up_to(earlier, 8)] == [5, 8]  # restored from the checkpoint
    assert attempts_up_to((), 3) == ()


def test_a_run_was_measured_since_the_attempt_that_made_most_of_its_epochs(record: MakeRecord) -> None:
    def since(*last_epochs: int, **fields: Any) -> str | None:
        earlier = [attempt(10 * number, 10 * number + 5, last) for number, last in enumerate(last_epochs)]
        measured = [EpochRecord(epoch=number, epoch_seconds=1.0, warmup=number == 1) for number in range(1, 8)]
        return measured_since(resumed(record, *earlier, **fields), measured)

    assert since(5) == at(0)
    assert since(3) == at(100), "the resumed one, which made four"
    assert since(2, 6) == at(10)
    assert since(3, 5) == at(100), "the last one of those that made two"
    assert since(3, resumed_at=None) == at(0)
    assert since() == measured_since(record(started_at=at(0)), []) == at(0)
    assert measured_since(resumed(record, attempt(0, 5, 2)), epochs(1.0, 2.0)) == at(0), "nothing was timed"


def test_sessions_are_those_of_the_attempts(record: MakeRecord) -> None:
    taken = [msgspec.structs.replace(each, session=name) for each, name in ((attempt(0, 10, 2), "a"),)]
    silent = attempt(20, 30, 5)
    run = resumed(record, *taken, silent, session="b", ended_at=at(140), status=Status.FINISHED)
    assert sessions_of(run) == {"a", "b"} and sessions_of(resumed(record, silent)) == set()
    assert [session_of_epoch(run, epoch) for epoch in (1, 2, 3, 5, 6)] == ["a", "a", None, None, "b"]
    assert session_seconds(run) == [10.0, 40.0]
    assert session_seconds(resumed(record, *taken, session="b")) == [10.0]  # the last one lives


def test_epochs_of_a_run_that_is_continued_are_its_own(record: MakeRecord) -> None:
    other = msgspec.structs.replace(attempt(0, 10, 3), run="shorter")
    run = resumed(record, other, attempt(20, 30, 5))
    assert list(epochs_of_other_runs(run)) == [1, 2, 3]
    assert not epochs_of_other_runs(resumed(record, attempt(0, 10, 3)))
    assert own_attempts(run) == [run.earlier[1]]
    assert [start for _, start, _ in process_spans(run)] == [unix(20), unix(100)]
    assert attempts_up_to((), 3) == ()


def test_an_evaluation_before_training_counts_as_time_of_the_run(record: MakeRecord) -> None:
    evaluated = [EpochRecord(epoch=0, run_seconds=3.0), EpochRecord(epoch=1)]
    run = record(status=Status.CRASHED, started_at=at(0), environment=HERE)
    assert last_sign_of_life(run, evaluated, None) == at(3)
    assert last_sign_of_life(run, [EpochRecord(epoch=-1, run_seconds=2.0)], None) == at(0)

"""Detection of contended runs."""

import datetime
import itertools

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from runmanager.records.run.run_record import Attempt, DeviceReadings, Environment, EpochRecord
from runmanager.records.run.status import Reason, Status
from runmanager.results.load.contention import GPU_OTHERS_SHARE, OUTSIDE_CPU_SHARE, STEAL_SHARE, contention, exposure_of

NOON = datetime.datetime(2026, 11, 21, 12, 0, tzinfo=datetime.UTC)


def span(start, end):
    """Return when a run started and ended, in seconds after noon."""
    at = [None if time is None else (NOON + datetime.timedelta(seconds=time)).isoformat() for time in (start, end)]
    return {"started_at": at[0], "ended_at": at[1]}


def flags(contents, *runs):
    sweep = contents(*(({"lr": at}, [], fields) for at, fields in enumerate(runs)))
    return [None if causes is None else bool(causes) for causes in contention(list(map(exposure_of, sweep.runs)))]


def test_consecutive_runs_do_not_contend(contents):
    assert flags(contents, span(0, 10), span(10, 20), span(25, 30)) == [False, False, False]


def test_run_within_another_marks_both_but_not_a_third(contents):
    assert flags(contents, span(0, 10), span(2, 3), span(11, 12)) == [True, True, False]


def test_run_does_not_contend_between_its_attempts(contents, host):
    def attempt(start, end, environment=host):
        times = span(start, end)
        return Attempt(**times, last_epoch=1, environment=environment)

    resumed = span(0, 60) | {"resumed_at": span(50, None)["started_at"]}
    broken = resumed | {"earlier": (attempt(0, 10), attempt(20, 30))}
    assert flags(contents, broken, span(10, 20), span(30, 50)) == [False, False, False]
    assert flags(contents, broken, span(12, 18), span(29, 31)) == [True, False, True]
    assert flags(contents, broken, span(55, 56)) == [True, True]
    bellows = msgspec.structs.replace(host, host="bellows")
    was_elsewhere = resumed | {"earlier": (attempt(0, 10, bellows),)}
    assert flags(contents, was_elsewhere, span(0, 10), span(5, 6) | {"environment": bellows}) == [True, False, True]


def test_outside_load_in_an_earlier_attempt_counts(contents, host):
    loaded = msgspec.structs.replace(host, outside_cpu_share=0.9)
    earlier = Attempt(**span(0, 10), last_epoch=2, environment=loaded)
    assert flags(contents, span(0, 30) | {"earlier": (earlier,)}) == [True]


def test_runs_on_different_hosts_do_not_contend(contents, host):
    elsewhere = msgspec.structs.replace(host, host="bellows")
    assert flags(contents, span(0, 10), span(0, 10) | {"environment": elsewhere}) == [False, False]


def test_running_run_contends_with_later_ones(contents):
    still = span(0, None) | {"status": Status.RUNNING}
    assert flags(contents, still, span(50, 60)) == [True, True]


def test_vanished_run_was_alive_until_its_last_epoch(contents, timed):
    gone = span(0, None) | {"status": Status.CRASHED, "reason": Reason.VANISHED}
    sweep = contents(({"lr": 1}, timed([4.0, 4.0]), gone), ({"lr": 2}, [], span(7, 9)), ({"lr": 3}, [], span(9, 10)))
    assert [bool(causes) for causes in contention(list(map(exposure_of, sweep.runs)))] == [True, True, False]


def test_runs_that_never_started_are_unknown_and_do_not_contend(contents):
    skipped = span(0, 10) | {"status": Status.SKIPPED, "reason": Reason.DEVICE_UNAVAILABLE}
    pending = span(None, None) | {"status": Status.PENDING}
    assert flags(contents, skipped, pending, span(5, 8)) == [None, None, False]


@pytest.mark.parametrize(("share", "limit"), [("outside_cpu_share", OUTSIDE_CPU_SHARE), ("steal_share", STEAL_SHARE)])
def test_outside_load_counts_above_its_limit(contents, share, limit):
    at_limit = {"environment": Environment(host="anvil", **{share: limit})}
    above = {"environment": Environment(host="anvil", **{share: limit + 0.01})}
    assert flags(contents, span(0, 1) | at_limit, span(2, 3) | above) == [False, True]


@pytest.mark.parametrize(
    ("share", "limit"), [("outside_cpu_share_p90", OUTSIDE_CPU_SHARE), ("steal_share_p90", STEAL_SHARE)]
)
def test_load_during_a_part_of_the_run_counts(contents, share, limit):
    at_limit = {"environment": Environment(host="anvil", outside_cpu_share=0.05, **{share: limit})}
    above = {"environment": Environment(host="anvil", outside_cpu_share=0.05, **{share: limit + 0.01})}
    assert flags(contents, span(0, 1) | at_limit, span(2, 3) | above) == [False, True]


def test_other_processes_on_the_gpu_are_a_separate_cause(contents):
    shared, hardly = (
        [EpochRecord(1, readings=DeviceReadings(others_share=share)), EpochRecord(2)]
        for share in (GPU_OTHERS_SHARE + 0.01, GPU_OTHERS_SHARE)
    )
    sweep = contents(({"lr": 1}, shared, span(0, 1)), ({"lr": 2}, hardly, span(2, 3)))
    assert contention(list(map(exposure_of, sweep.runs))) == [("other processes on its GPU",), ()]


@given(spans=st.lists(st.tuples(st.integers(0, 30), st.integers(0, 8)), max_size=12))
def test_sweep_line_finds_the_same_overlaps_as_trying_every_pair(contents, spans):
    spans = [(start, start + length) for start, length in spans]
    everywhere = [
        any(
            at != other and start < others_end and others_start < end
            for other, (others_start, others_end) in enumerate(spans)
        )
        for at, (start, end) in enumerate(spans)
    ]
    # A run of length 0 overlaps only runs that it lies strictly within.
    assert flags(contents, *(span(*ends) for ends in spans)) == everywhere


def test_runs_in_turns_contend_with_other_runs_only(contents):
    together = {"session": "a"}
    assert flags(contents, span(0, 10) | together, span(1, 9) | together, span(20, 30)) == [False] * 3
    assert flags(contents, span(0, 10) | together, span(1, 9) | together, span(4, 30)) == [True] * 3
    other = span(2, 5) | {"session": "b"}
    assert flags(contents, span(0, 10) | together, other, span(20, 30) | together) == [True, True, True]


def test_run_in_two_sessions_joins_their_parties(contents, host):
    """A finished run took turns again with the new attempt of a partner that had died."""
    first = Attempt(**span(0, 10), last_epoch=1, environment=host, session="a")
    both = span(0, 30) | {"earlier": (first,), "resumed_at": span(20, None)["started_at"], "session": "b"}
    dead, alive = span(1, 9) | {"session": "a"}, span(21, 29) | {"session": "b"}
    for order in itertools.permutations((dead, alive, both)):
        assert flags(contents, *order) == [False] * 3

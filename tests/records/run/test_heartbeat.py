"""Heartbeats, and their judgement on the run's own host and on others."""

import datetime
import os
from pathlib import Path

import msgspec
import pytest

from runmanager.records.files.paths import RunPaths
from runmanager.records.host.process import ProcessIdentity
from runmanager.records.run.heartbeat import (
    Beat,
    HeartbeatObserver,
    observed_by_heartbeat,
    read_beat,
    timeout_faults,
    write_beat,
)
from runmanager.records.run.run_record import RunRecord
from runmanager.records.run.status import Reason, Status

LAST_SECOND = 253402300799  # of the year 9999, which is the last one of the calendar


def here() -> ProcessIdentity:
    return ProcessIdentity.current()


def elsewhere() -> ProcessIdentity:
    return msgspec.structs.replace(here(), host="another-host")


def gone_process() -> ProcessIdentity:
    return msgspec.structs.replace(here(), start_ticks=here().start_ticks + 1)


def record(owner: ProcessIdentity | None, status: Status = Status.RUNNING, attempt: int = 1) -> RunRecord:
    return RunRecord(name="run", signature="s", status=status, config={}, owner=owner, attempt=attempt)


def test_beat_is_read_as_written_and_the_file_keeps_its_size(tmp_path: Path) -> None:
    path = tmp_path / "heartbeat"
    sizes = set()
    for beat in (Beat(1, 0), Beat(12, 345678, 1795262410), Beat(10**19, 10**19, 10**10)):
        write_beat(path, beat)
        sizes.add(path.stat().st_size)
        assert read_beat(path) == beat
    assert len(sizes) == 1


def test_a_beat_of_a_time_that_no_calendar_has_is_none(tmp_path: Path) -> None:
    path = tmp_path / "heartbeat"
    write_beat(path, Beat(1, 1, LAST_SECOND))
    last = read_beat(path)
    assert last is not None and last.at == datetime.datetime(9999, 12, 31, 23, 59, 59, tzinfo=datetime.UTC)
    write_beat(path, Beat(1, 1, LAST_SECOND + 1))
    assert read_beat(path) is None


def test_a_beat_leaves_no_file_open(tmp_path: Path) -> None:
    def next_handle() -> int:
        handle = os.open(tmp_path, os.O_RDONLY)
        os.close(handle)
        return handle

    before = next_handle()
    write_beat(tmp_path / "heartbeat", Beat(1, 1))
    assert read_beat(tmp_path / "heartbeat") == Beat(1, 1)
    assert next_handle() == before


@pytest.mark.parametrize("content", [b"", b"12 13", b"\x00" * 63, b"word " * 8, b"0" * 20])
def test_invalid_beat_is_none(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "heartbeat").write_bytes(content)
    assert read_beat(tmp_path / "heartbeat") is None
    assert read_beat(tmp_path / "missing") is None


def test_on_its_own_host_the_process_decides_immediately() -> None:
    for silent in (0.0, 1e9):
        assert observed_by_heartbeat(record(here()), silent_seconds=silent, limit_seconds=60).status is Status.RUNNING
        gone = observed_by_heartbeat(record(gone_process()), silent_seconds=silent, limit_seconds=60)
        assert (gone.status, gone.reason) == (Status.CRASHED, Reason.VANISHED)


def test_an_observer_judges_runs_of_its_own_host_by_their_process(tmp_path: Path) -> None:
    observer = HeartbeatObserver(limit_seconds=10, clock=lambda: 0.0)
    assert observer.observed(RunPaths(tmp_path), record(here())) == record(here())
    assert observer.observed(RunPaths(tmp_path), record(gone_process())).status is Status.CRASHED


def test_on_another_host_silence_decides() -> None:
    far = record(elsewhere())
    assert observed_by_heartbeat(far, silent_seconds=59.9, limit_seconds=60) is far
    gone = observed_by_heartbeat(far, silent_seconds=3600, limit_seconds=60)
    assert (gone.status, gone.reason) == (Status.CRASHED, Reason.VANISHED)
    assert gone.message == f"no sign of life from process {os.getpid()} on another-host for 60 s"
    ended = record(elsewhere(), Status.FINISHED)
    assert observed_by_heartbeat(ended, silent_seconds=1e9, limit_seconds=60) is ended
    unowned = record(None)
    assert observed_by_heartbeat(unowned, silent_seconds=1e9, limit_seconds=60) is unowned


@pytest.mark.parametrize("seconds", [0.0, -60.0, 9.9, float("nan"), float("inf")])
def test_too_short_timeout_is_rejected(seconds: float) -> None:
    (fault,) = timeout_faults("heartbeat_timeout", seconds)
    assert fault.startswith("`heartbeat_timeout` must be a number of seconds of at least 10, got ")
    assert timeout_faults("heartbeat_timeout", 10.0) == timeout_faults("heartbeat_timeout", 3600.0) == []


class Reader:
    """An observer whose clock the test controls."""

    def __init__(self, folder: Path, limit_seconds: float = 60) -> None:
        self.now = 5.0
        self.paths = RunPaths(folder)
        self.observer = HeartbeatObserver(limit_seconds=limit_seconds, clock=lambda: self.now)

    def status(self, seconds: float, attempt: int = 1) -> Status:
        self.now += seconds
        return self.observer.observed(self.paths, record(elsewhere(), attempt=attempt)).status


def test_observer_uses_its_own_clock(tmp_path: Path) -> None:
    reader = Reader(tmp_path)
    write_beat(reader.paths.heartbeat, Beat(1, 1))
    assert reader.status(0) is Status.RUNNING
    assert reader.status(59) is Status.RUNNING
    write_beat(reader.paths.heartbeat, Beat(2, 1))  # a beat without progress
    assert reader.status(10) is Status.RUNNING
    assert reader.status(59) is Status.RUNNING
    assert reader.status(1) is Status.CRASHED
    write_beat(reader.paths.heartbeat, Beat(3, 1))  # only the network was down
    assert reader.status(0) is Status.RUNNING


def test_run_without_a_heartbeat_gets_the_same_time(tmp_path: Path) -> None:
    reader = Reader(tmp_path, limit_seconds=10)
    assert [reader.status(seconds) for seconds in (0, 9, 1)] == [Status.RUNNING, Status.RUNNING, Status.CRASHED]


def test_new_attempt_restarts_the_timeout(tmp_path: Path) -> None:
    reader = Reader(tmp_path, limit_seconds=10)
    assert [reader.status(seconds) for seconds in (0, 10)] == [Status.RUNNING, Status.CRASHED]
    assert [reader.status(seconds, attempt=2) for seconds in (0, 9, 1)] == [
        Status.RUNNING,
        Status.RUNNING,
        Status.CRASHED,
    ]


def test_runs_are_watched_separately(tmp_path: Path) -> None:
    reader = Reader(tmp_path / "one", limit_seconds=10)
    reader.status(0)
    reader.now += 10
    other = reader.observer.observed(RunPaths(tmp_path / "other"), record(elsewhere()))
    assert other.status is Status.RUNNING
    assert reader.status(0) is Status.CRASHED

"""The end of a run: written once, by a process that may write it."""

from collections.abc import Callable
from pathlib import Path

import pytest

from runmanager.errors import RunBusyError, UsageError
from runmanager.records.files.paths import RunPaths
from runmanager.records.host.process import ProcessIdentity
from runmanager.records.run.heartbeat import Beat, write_beat
from runmanager.records.run.run_record import RunRecord
from runmanager.records.run.status import Outcome, Reason, Status
from runmanager.records.storage import run_end
from runmanager.records.storage.ownership import claim_run, silent_runs
from runmanager.records.storage.reader import read_record
from runmanager.records.storage.run_end import (
    end_gone_run,
    end_own_run,
    end_silent_run,
    find_end,
    skipped_record,
    write_end,
)

from ..run_folders import Reader, left_by

MakeRecord = Callable[..., RunRecord]
NOON = "2026-11-21T12:00:00+00:00"
SIGKILL = Outcome(Status.KILLED, Reason.SIGNAL, "SIGKILL")


def test_silent_run_ended_at_its_last_beat(tmp_path: Path, record: MakeRecord, far: ProcessIdentity) -> None:
    paths = RunPaths(tmp_path / "runs" / "a")
    left_by(paths, record(owner=far, started_at="2026-11-21T12:00:00+00:00"))
    write_beat(paths.heartbeat, Beat(9, 9, 1795262410))  # ten seconds after noon
    reader = Reader()
    assert end_silent_run(paths, reader.observer) is None, "one reading is not enough"
    assert silent_runs([paths], reader.observer) == [paths]
    ended = end_silent_run(paths, reader.observer)
    assert ended == read_record(paths)
    assert (ended.status, ended.reason, ended.ended_at) == (
        Status.CRASHED,
        Reason.VANISHED,
        "2026-11-21T12:00:10+00:00",
    )
    assert ended.message == f"no sign of life from process {far.pid} on elsewhere for 60 s"
    assert not paths.heartbeat.exists() and not list(paths.root.glob(".*"))
    assert claim_run(paths, record()).record.attempt == 2, "it can be resumed immediately"


def test_silent_run_claimed_by_another_process_is_not_ended(
    tmp_path: Path, record: MakeRecord, far: ProcessIdentity
) -> None:
    paths = RunPaths(tmp_path / "runs" / "a")
    left_by(paths, record(owner=far))
    reader = Reader()
    assert silent_runs([paths], reader.observer) == [paths]
    folder = claim_run(paths, record(), observer=reader.observer)
    assert end_silent_run(paths, reader.observer) is None
    folder.write()
    assert end_silent_run(paths, reader.observer) is None
    assert read_record(paths).status is Status.RUNNING


def test_silent_run_finished_by_another_process_meanwhile_is_not_ended(
    tmp_path: Path,
    record: MakeRecord,
    far: ProcessIdentity,
    dead: ProcessIdentity,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Between the reading of a silent run and the claim, another process takes it over, finishes it and exits."""
    paths = RunPaths(tmp_path / "runs" / "a")
    left_by(paths, record(owner=far))
    reader = Reader()
    assert silent_runs([paths], reader.observer) == [paths]
    read, seen_states = run_end.read_record, []

    def read_and_lose_time(paths: RunPaths) -> RunRecord:
        seen = read(paths)
        seen_states.append(seen.status)
        if len(seen_states) == 1:
            claim_run(paths, record(owner=dead), observer=reader.observer).write(status=Status.FINISHED)
        return seen

    monkeypatch.setattr(run_end, "read_record", read_and_lose_time)
    assert end_silent_run(paths, reader.observer) is None
    assert seen_states[0] is Status.RUNNING and read(paths).status is Status.FINISHED


def test_own_process_writes_its_end_with_other_fields(tmp_path: Path, record: MakeRecord) -> None:
    folder = claim_run(RunPaths(tmp_path / "runs" / "a"), record())
    ended = end_own_run(folder, Outcome(Status.FINISHED), run_seconds=3.0)
    assert ended == read_record(folder.paths) == folder.record
    assert (ended.status, ended.reason, ended.run_seconds) == (Status.FINISHED, None, 3.0)
    assert ended.ended_at is not None
    folder.leave()
    with pytest.raises(UsageError, match="got a call after its end"):
        end_own_run(folder, SIGKILL)
    assert read_record(folder.paths) == ended


def test_skipped_run_ends_when_it_starts(record: MakeRecord) -> None:
    skipped = skipped_record(record(started_at=NOON), "no CUDA device")
    assert skipped.outcome == Outcome(Status.SKIPPED, Reason.DEVICE_UNAVAILABLE, "no CUDA device")
    assert skipped.ended_at == skipped.started_at == NOON


@pytest.mark.parametrize("owner", ["own", "dead", "living"])
def test_driver_ends_a_running_run_unless_another_living_process_owns_it(
    tmp_path: Path, record: MakeRecord, dead: ProcessIdentity, owner: str
) -> None:
    paths = RunPaths(tmp_path / "runs" / "a")
    living = ProcessIdentity.current()
    left_by(paths, record(owner=dead if owner == "dead" else living, started_at=NOON))
    before = read_record(paths)
    pid = living.pid if owner == "own" else 4_000_000
    end = find_end(paths, pid, SIGKILL, pending=record(), has_returned=False)
    assert read_record(paths) == before, "finding an end writes nothing"
    assert (end.outcome, end.is_recorded) == (SIGKILL, False)
    if owner == "living":
        assert end.to_write is None
    else:
        assert end.to_write is not None
        assert end.to_write == before.ended(SIGKILL, at=end.to_write.ended_at)


@pytest.mark.parametrize(("is_own", "has_returned"), [(True, False), (False, True), (False, False)])
def test_stored_end_stays(
    tmp_path: Path, record: MakeRecord, dead: ProcessIdentity, is_own: bool, has_returned: bool
) -> None:
    paths = RunPaths(tmp_path / "runs" / "a")
    left_by(paths, record(owner=dead, status=Status.FINISHED))
    pid = dead.pid if is_own else 4_000_000
    end = find_end(paths, pid, SIGKILL, pending=record(), has_returned=has_returned)
    assert end.to_write is None
    assert (end.outcome, end.is_recorded) == (
        (Outcome(Status.FINISHED), True) if is_own or has_returned else (SIGKILL, False)
    )


def test_run_that_never_began_gets_a_folder_with_its_end(tmp_path: Path, record: MakeRecord) -> None:
    paths = RunPaths(tmp_path / "runs" / "a")
    pending = record(status=Status.PENDING, owner=None, started_at=NOON)
    end = find_end(paths, 7, SIGKILL, pending=pending, has_returned=False)
    assert end.to_write is not None and not paths.root.exists()
    write_end(paths, end.to_write, traceback="Traceback: …")
    assert read_record(paths).outcome == SIGKILL
    assert paths.error.read_text() == "Traceback: …"
    gone = RunPaths(tmp_path / "others" / "runs" / "b")
    end_gone_run(gone, SIGKILL, pending=pending)
    assert read_record(gone) == pending.ended(SIGKILL, at=NOON)


@pytest.mark.parametrize("content", [{"run.json": "{"}, {"epochs.jsonl": '{"epoch":1}\n'}, {"checkpoint.pt": "state"}])
def test_damaged_or_lost_record_is_not_replaced(tmp_path: Path, record: MakeRecord, content: dict[str, str]) -> None:
    paths = RunPaths(tmp_path / "runs" / "a")
    paths.root.mkdir(parents=True)
    for name, text in content.items():
        (paths.root / name).write_text(text)
    end = find_end(paths, 7, SIGKILL, pending=record(), has_returned=False)
    assert (end.outcome, end.is_recorded, end.to_write) == (SIGKILL, False, None)
    end_gone_run(paths, SIGKILL, pending=record())
    if not paths.record.exists():
        with pytest.raises(RunBusyError, match="got other files"):
            claim_run(paths, record(), may_hold_files=True)
    assert {path.name: path.read_text() for path in paths.root.iterdir()} == content


def test_no_end_is_written_through_a_link(tmp_path: Path, record: MakeRecord, dead: ProcessIdentity) -> None:
    other, link = RunPaths(tmp_path / "other" / "runs" / "a"), RunPaths(tmp_path / "runs" / "a")
    left_by(other, record(owner=dead, status=Status.RUNNING))
    before = other.record.read_bytes()
    link.root.parent.mkdir()
    link.root.symlink_to(other.root)
    end = find_end(link, dead.pid, SIGKILL, pending=record(), has_returned=False)
    assert (end.outcome, end.to_write) == (SIGKILL, None)
    end_gone_run(link, SIGKILL, pending=record())
    assert other.record.read_bytes() == before


def test_gone_run_ended_at_its_last_sign_of_life(tmp_path: Path, record: MakeRecord, dead: ProcessIdentity) -> None:
    paths = RunPaths(tmp_path / "runs" / "a")
    left_by(paths, record(owner=dead, started_at=NOON))
    write_beat(paths.heartbeat, Beat(9, 9, 1795262410))  # ten seconds after noon
    end_gone_run(paths, SIGKILL, pending=record())
    ended = read_record(paths)
    assert (ended.outcome, ended.ended_at) == (SIGKILL, "2026-11-21T12:00:10+00:00")
    assert not paths.heartbeat.exists()
    end_gone_run(paths, Outcome(Status.CRASHED, Reason.VANISHED), pending=record())
    assert read_record(paths) == ended, "an end is written once"

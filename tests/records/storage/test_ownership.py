"""Ownership of run folders: one writer at a time, and another one only after the first is gone."""

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import pytest

from runmanager.errors import RecordError, RunBusyError
from runmanager.records.files.paths import RunPaths
from runmanager.records.host.process import ProcessIdentity
from runmanager.records.run.heartbeat import Beat, write_beat
from runmanager.records.run.run_record import RunRecord
from runmanager.records.run.status import Status
from runmanager.records.storage import ownership
from runmanager.records.storage.ownership import claim_run, silent_runs
from runmanager.records.storage.reader import read_record, read_run
from runmanager.records.storage.run_folder import RunFolder

from ..run_folders import Reader, left_by

MakeRecord = Callable[..., RunRecord]
Race = Callable[..., list[list[str]]]

CLAIM = """
from pathlib import Path
from runmanager.errors import RunBusyError
from runmanager.records.files.paths import RunPaths
from runmanager.records.host.process import ProcessIdentity
from runmanager.records.run.run_record import RunRecord
from runmanager.records.run.status import Status
from runmanager.records.storage.ownership import claim_run

def record(name):
    return RunRecord(
        name=name, signature="s", status=Status.RUNNING, config={"lr": 0.1}, owner=ProcessIdentity.current()
    )
"""
TAKE = f"""
{CLAIM}
def take(number):
    name = f"run-{{number}}"
    try:
        folder = claim_run(RunPaths(Path("runs") / name), record(name))
    except RunBusyError:
        return "busy"
    folder.write(status=Status.RUNNING)
    return f"won {{folder.record.attempt}}"
"""


def test_new_folder_has_its_record_immediately(tmp_path: Path, record: MakeRecord) -> None:
    mine = record()
    folder = claim_run(RunPaths(tmp_path / "runs" / "a"), mine)
    assert folder.record is mine
    assert read_record(folder.paths) == mine
    assert sorted(path.name for path in tmp_path.rglob("*")) == ["a", "run.json", "runs"]


def test_what_a_kill_left_half_written_goes_with_the_next_claim(
    tmp_path: Path, record: MakeRecord, dead: ProcessIdentity
) -> None:
    paths = RunPaths(tmp_path / "runs" / "a")
    left_by(paths, record(owner=dead))
    (paths.root / ".checkpoint.pt.k3_x9abc").write_bytes(b"half of it")
    stays = [paths.root / name for name in (".checkpoint.pt", ".own.pt.k3_x9abc", "checkpoint.pt.k3_x9abc")]
    for each in stays:
        each.touch()
    claim_run(paths, record())
    assert not (paths.root / ".checkpoint.pt.k3_x9abc").exists() and all(each.exists() for each in stays)


def test_one_of_eight_processes_gets_a_new_folder(race: Race, tmp_path: Path) -> None:
    answers = race(TAKE)
    for number, words in enumerate(zip(*answers, strict=True)):
        assert sorted(words) == ["busy"] * 7 + ["won 1"], f"run-{number}"
    assert not list((tmp_path / "runs").glob(".*"))  # the losers removed their prepared folders


def test_one_of_eight_processes_gets_a_crashed_run(
    race: Race, tmp_path: Path, record: MakeRecord, dead: ProcessIdentity
) -> None:
    for number in range(20):
        left_by(RunPaths(tmp_path / "runs" / f"run-{number}"), record(name=f"run-{number}", owner=dead))
    answers = race(TAKE)
    for number, words in enumerate(zip(*answers, strict=True)):
        assert sorted(words) == ["busy"] * 7 + ["won 2"], f"run-{number}"
        paths = RunPaths(tmp_path / "runs" / f"run-{number}")
        assert read_run(paths).record.status is Status.RUNNING
        assert [path.name for path in sorted(paths.root.glob(".*"))] == [".claim-2"]


FINISH = f"""
{CLAIM}
folder = claim_run(RunPaths(Path("runs/a")), record("a"))
assert folder.record.attempt == 2
folder.write(status=Status.FINISHED)
"""


def test_run_finished_by_another_process_meanwhile_is_not_run_again(
    tmp_path: Path, record: MakeRecord, dead: ProcessIdentity, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Between the reading of a crashed run and the claim, another process takes it over, finishes it and exits."""
    paths = RunPaths(tmp_path / "runs" / "a")
    left_by(paths, record(name="a", owner=dead))
    read, seen_states = ownership.read_record, []

    def read_and_lose_time(paths: RunPaths) -> RunRecord:
        seen = read(paths)
        seen_states.append(seen.status)
        if len(seen_states) == 1:
            subprocess.run([sys.executable, "-c", FINISH], cwd=tmp_path, check=True, timeout=120)
        return seen

    monkeypatch.setattr(ownership, "read_record", read_and_lose_time)
    folder = claim_run(paths, record(name="a"))
    assert seen_states[0] is Status.RUNNING
    assert folder.record.status is Status.FINISHED  # the caller sees that nothing is left to do
    assert folder.record.attempt == 3
    assert read(paths).attempt == 2


def test_living_owner_keeps_its_run(tmp_path: Path, record: MakeRecord, start_process: Callable[[], Any]) -> None:
    paths = RunPaths(tmp_path / "runs" / "a")
    other = start_process()
    left_by(paths, record(owner=other.identity))
    before = sorted(paths.root.iterdir())
    with pytest.raises(RunBusyError, match=rf"being run by process {other.identity.pid} on "):
        claim_run(paths, record())
    assert sorted(paths.root.iterdir()) == before
    other.end()
    folder = claim_run(paths, record())
    assert (folder.record.attempt, folder.record.owner) == (2, ProcessIdentity.current())


def test_run_on_another_host_with_heartbeats_keeps_its_owner(
    tmp_path: Path, record: MakeRecord, far: ProcessIdentity
) -> None:
    paths = RunPaths(tmp_path / "runs" / "a")
    left_by(paths, record(owner=far))
    write_beat(paths.heartbeat, Beat(1, 1, 1))
    reader = Reader(lambda now: write_beat(paths.heartbeat, Beat(1 + int(now / 2), 1, 1)))
    with pytest.raises(RunBusyError, match="on elsewhere"):
        claim_run(paths, record(), observer=reader.observer)
    assert reader.now == 2.0, "a living run is recognised by its next beat"
    assert not list(paths.root.glob(".*")) and read_record(paths).owner == far


def test_silent_run_on_another_host_is_taken_over_after_the_limit(
    tmp_path: Path, record: MakeRecord, far: ProcessIdentity
) -> None:
    paths = RunPaths(tmp_path / "runs" / "a")
    left_by(paths, record(owner=far))
    write_beat(paths.heartbeat, Beat(7, 1, 1))
    reader = Reader()
    folder = claim_run(paths, record(), observer=reader.observer)
    assert reader.now == 60.0
    assert (folder.record.attempt, folder.record.owner) == (2, ProcessIdentity.current())


def test_run_on_another_host_that_ends_while_watched_is_not_run_again(
    tmp_path: Path, record: MakeRecord, far: ProcessIdentity
) -> None:
    paths = RunPaths(tmp_path / "runs" / "a")
    left = left_by(paths, record(owner=far))
    reader = Reader(lambda now: left.write(status=Status.FINISHED) if now == 10 else None)
    folder = claim_run(paths, record(), observer=reader.observer)
    assert (folder.record.status, reader.now) == (Status.FINISHED, 10.0)


def test_abandoned_claim_of_another_host_expires(
    tmp_path: Path, record: MakeRecord, dead: ProcessIdentity, far: ProcessIdentity
) -> None:
    """A process on another host claimed a crashed run, and its machine went down before it could begin."""
    paths = RunPaths(tmp_path / "runs" / "a")
    left_by(paths, record(owner=dead))
    paths.claim(2).mkdir()
    (paths.claim(2) / "owner.json").write_bytes(msgspec.json.encode(far))
    begun = Reader(lambda now: RunFolder(paths, read_record(paths)).write(owner=far, attempt=2) if now == 3 else None)
    with pytest.raises(RunBusyError, match="being taken over"):
        claim_run(paths, record(), observer=begun.observer)
    RunFolder(paths, read_record(paths)).write(owner=dead, attempt=1)
    reader = Reader()
    assert claim_run(paths, record(), observer=reader.observer).record.attempt == 3
    assert reader.now == 60.0


def test_abandoned_claim_of_another_host_on_a_folder_without_a_record_expires(
    tmp_path: Path, record: MakeRecord, far: ProcessIdentity
) -> None:
    paths = RunPaths(tmp_path / "runs" / "a")
    paths.claim(1).mkdir(parents=True)
    (paths.claim(1) / "owner.json").write_bytes(msgspec.json.encode(far))
    reader = Reader()
    folder = claim_run(paths, record(), observer=reader.observer, may_hold_files=True)
    assert (folder.record.attempt, folder.record.owner) == (2, ProcessIdentity.current())


def test_silent_runs_are_watched_together(tmp_path: Path, record: MakeRecord, far: ProcessIdentity) -> None:
    runs = [RunPaths(tmp_path / "runs" / name) for name in ("silent", "beats", "ends", "here", "gone", "mute")]
    silent, beats, ends, here, gone, mute = runs
    for paths in runs[:4] + runs[5:]:
        left_by(paths, record(owner=ProcessIdentity.current() if paths is here else far))
    for paths in (silent, beats, ends):
        write_beat(paths.heartbeat, Beat(1, 1, 1))

    def meanwhile(now: float) -> None:
        if now == 40:
            write_beat(beats.heartbeat, Beat(2, 1, 1))
            RunFolder(ends, read_record(ends)).write(status=Status.FAILED)

    reader = Reader(meanwhile)
    assert silent_runs(runs, reader.observer) == [silent, mute]
    assert reader.now == 60.0
    assert not gone.root.exists()


def test_record_of_a_run_taken_over_is_returned_unchanged_and_unwritten(
    tmp_path: Path, record: MakeRecord, dead: ProcessIdentity
) -> None:
    paths = RunPaths(tmp_path / "runs" / "a")
    old = record(owner=dead, status=Status.FAILED, message="why", config={"lr": 7.0})
    left_by(paths, old)
    folder = claim_run(paths, record(config={"lr": 0.1}))
    assert folder.record == msgspec.structs.replace(old, owner=ProcessIdentity.current(), attempt=2)
    assert read_record(paths) == old


def test_a_link_in_place_of_the_folder_is_not_followed(
    tmp_path: Path, record: MakeRecord, dead: ProcessIdentity
) -> None:
    """It may lead to a run of another sweep, which would be taken over."""
    other = RunPaths(tmp_path / "other")
    left_by(other, record(status=Status.RUNNING, owner=dead))
    before = other.record.read_bytes()
    (tmp_path / "mine").symlink_to(other.root)
    with pytest.raises(RecordError, match="must be a folder, got a link"):
        claim_run(RunPaths(tmp_path / "mine"), record())
    assert other.record.read_bytes() == before


def test_folder_with_links_is_rejected(tmp_path: Path, record: MakeRecord, dead: ProcessIdentity) -> None:
    """The folder may come from an untrusted source; through a link, the run would append to a file elsewhere."""
    paths = RunPaths(tmp_path / "run")
    left_by(paths, record(status=Status.RUNNING, owner=dead))
    (tmp_path / "victim").write_text("mine")
    paths.log.symlink_to(tmp_path / "victim")
    before = read_record(paths)
    with pytest.raises(RecordError, match=r"must hold only regular files and folders, got run\.log; move it away"):
        claim_run(paths, record())
    assert read_record(paths) == before
    paths.log.unlink()
    assert claim_run(paths, record()).is_ours


def test_folder_with_other_files_is_rejected(tmp_path: Path, record: MakeRecord) -> None:
    paths = RunPaths(tmp_path / "runs" / "a")
    paths.root.mkdir(parents=True)
    (paths.root / "thesis.tex").write_text("mine")
    with pytest.raises(RunBusyError, match=r"must be empty or hold a run\.json, got other files"):
        claim_run(paths, record())
    assert [path.name for path in paths.root.iterdir()] == ["thesis.tex"]
    assert list(paths.root.parent.iterdir()) == [paths.root]
    (paths.root / "thesis.tex").unlink()
    assert claim_run(paths, record()).record.attempt == 1


DIE_WHILE_CLAIMING = f"""
{CLAIM}
import os, signal, sys

step = sys.argv[1]
real = getattr(os, step, None)

def die(*arguments):
    if ".claim" in str(arguments[0]):
        os.kill(os.getpid(), signal.SIGKILL)
    return real(*arguments)

if real:
    setattr(os, step, die)
claim_run(RunPaths(Path("runs/a")), record("a"))
os.kill(os.getpid(), signal.SIGKILL)
"""


@pytest.mark.parametrize(("step", "attempt"), [("replace", 2), ("rename", 2), ("after it", 3)])
def test_claimant_that_dies_does_not_block_others(
    tmp_path: Path, record: MakeRecord, dead: ProcessIdentity, step: str, attempt: int
) -> None:
    paths = RunPaths(tmp_path / "runs" / "a")
    left_by(paths, record(name="a", owner=dead))
    died = subprocess.run([sys.executable, "-c", DIE_WHILE_CLAIMING, step], cwd=tmp_path, check=False, timeout=120)
    assert died.returncode == -9
    assert claim_run(paths, record(name="a")).record.attempt == attempt


# Content left by a power cut, and text that is not UTF-8.
@pytest.mark.parametrize("content", [b"\0" * 80, b'{"pid":1,"start_ticks":2,"boot_id":"\xff","host":""}'])
def test_damaged_claim_does_not_block_others(
    tmp_path: Path, record: MakeRecord, dead: ProcessIdentity, content: bytes
) -> None:
    paths = RunPaths(tmp_path / "runs" / "a")
    left_by(paths, record(owner=dead))
    paths.claim(2).mkdir()
    (paths.claim(2) / "owner.json").write_bytes(content)
    assert claim_run(paths, record()).record.attempt == 3


def test_claimed_run_can_be_released_unwritten(tmp_path: Path, record: MakeRecord, dead: ProcessIdentity) -> None:
    paths = RunPaths(tmp_path / "runs" / "a")
    left_by(paths, record(owner=dead, status=Status.FINISHED))
    before = sorted(path.name for path in paths.root.iterdir())
    for _ in range(3):  # for example a notebook cell that is run repeatedly
        folder = claim_run(paths, record())
        assert folder.record.status is Status.FINISHED
        folder.release()
    assert sorted(path.name for path in paths.root.iterdir()) == before
    claim_run(paths, record())
    with pytest.raises(RunBusyError, match="being taken over"):
        claim_run(paths, record())


@pytest.mark.parametrize("left", ["a file of others", "a pipe"])
def test_a_claim_without_its_owner_is_passed_over(
    tmp_path: Path, record: MakeRecord, dead: ProcessIdentity, left: str
) -> None:
    paths = left_by(RunPaths(tmp_path / "a"), record(owner=dead)).paths
    paths.claim(2).mkdir()
    if left == "a pipe":
        os.mkfifo(paths.claim(2) / "owner.json")
    else:
        (paths.claim(2) / "notes.txt").touch()
    assert claim_run(paths, record()).record.attempt == 3

"""The run folder: one writer however many want it, and readers that lose no run to another's damage."""

import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from runmanager.errors import RecordError, RunBusyError
from runmanager.records import store
from runmanager.records.paths import RunPaths, SweepPaths
from runmanager.records.process import ProcessIdentity
from runmanager.records.run import SCHEMA_VERSION, EpochRecord, RunRecord
from runmanager.records.states import Status
from runmanager.records.store import RunFolder, claim_run, encode_record, read_record, read_run, read_sweep

MakeRecord = Callable[..., RunRecord]
Race = Callable[..., list[list[str]]]

CLAIM = """
from pathlib import Path
from runmanager.errors import RunBusyError
from runmanager.records.paths import RunPaths
from runmanager.records.process import ProcessIdentity
from runmanager.records.run import RunRecord
from runmanager.records.states import Status
from runmanager.records.store import claim_run

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


def left_by(paths: RunPaths, record: RunRecord) -> RunFolder:
    """A run folder as its owner left it."""
    folder = claim_run(paths, record)
    folder.append(EpochRecord(epoch=1, loss=0.5))
    folder.close()
    return folder


def test_a_new_folder_holds_its_record_at_once(tmp_path: Path, record: MakeRecord) -> None:
    mine = record()
    folder = claim_run(RunPaths(tmp_path / "runs" / "a"), mine)
    assert folder.record is mine
    assert read_record(folder.paths) == mine
    assert sorted(path.name for path in tmp_path.rglob("*")) == ["a", "run.json", "runs"]
    assert folder.paths.root.stat().st_mode & 0o777 == 0o755


def test_of_eight_processes_that_want_a_new_folder_exactly_one_gets_it(race: Race, tmp_path: Path) -> None:
    answers = race(TAKE)
    for number, words in enumerate(zip(*answers, strict=True)):
        assert sorted(words) == ["busy"] * 7 + ["won 1"], f"run-{number}"
    assert not list((tmp_path / "runs").glob(".*"))  # the losers took their own folders away


def test_of_eight_processes_that_want_a_crashed_run_exactly_one_gets_it(
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


def test_a_run_that_another_finished_meanwhile_is_not_run_again(
    tmp_path: Path, record: MakeRecord, dead: ProcessIdentity, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Between our look at a crashed run and our claim, another process takes it over, finishes it, and is gone."""
    paths = RunPaths(tmp_path / "runs" / "a")
    left_by(paths, record(name="a", owner=dead))
    read, looks = store.read_record, []

    def read_and_lose_time(paths: RunPaths) -> RunRecord:
        seen = read(paths)
        looks.append(seen.status)
        if len(looks) == 1:
            subprocess.run([sys.executable, "-c", FINISH], cwd=tmp_path, check=True, timeout=120)
        return seen

    monkeypatch.setattr(store, "read_record", read_and_lose_time)
    folder = claim_run(paths, record(name="a"))
    assert looks[0] is Status.RUNNING
    assert folder.record.status is Status.FINISHED  # the caller sees that there is nothing to do
    assert folder.record.attempt == 3
    assert read(paths).attempt == 2


def test_a_living_owner_keeps_its_run(tmp_path: Path, record: MakeRecord, start_process: Callable[[], Any]) -> None:
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


def test_an_owner_on_another_host_may_live(tmp_path: Path, record: MakeRecord, dead: ProcessIdentity) -> None:
    paths = RunPaths(tmp_path / "runs" / "a")
    left_by(paths, record(owner=msgspec.structs.replace(dead, host="elsewhere")))
    with pytest.raises(RunBusyError, match="on elsewhere"):
        claim_run(paths, record())


def test_the_record_of_a_run_taken_over_comes_back_unchanged_and_unwritten(
    tmp_path: Path, record: MakeRecord, dead: ProcessIdentity
) -> None:
    paths = RunPaths(tmp_path / "runs" / "a")
    old = record(owner=dead, status=Status.FAILED, message="why", config={"lr": 7.0})
    left_by(paths, old)
    folder = claim_run(paths, record(config={"lr": 0.1}))
    assert folder.record == msgspec.structs.replace(old, owner=ProcessIdentity.current(), attempt=2)
    assert read_record(paths) == old


def test_a_folder_with_others_files_is_left_alone(tmp_path: Path, record: MakeRecord) -> None:
    paths = RunPaths(tmp_path / "runs" / "a")
    paths.root.mkdir(parents=True)
    (paths.root / "thesis.tex").write_text("mine")
    with pytest.raises(RunBusyError, match=r"must be empty or hold a run\.json, got other files"):
        claim_run(paths, record())
    assert [path.name for path in paths.root.iterdir()] == ["thesis.tex"]
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
def test_a_claimant_that_dies_at_it_blocks_nobody(
    tmp_path: Path, record: MakeRecord, dead: ProcessIdentity, step: str, attempt: int
) -> None:
    paths = RunPaths(tmp_path / "runs" / "a")
    left_by(paths, record(name="a", owner=dead))
    died = subprocess.run([sys.executable, "-c", DIE_WHILE_CLAIMING, step], cwd=tmp_path, check=False, timeout=120)
    assert died.returncode == -9
    assert claim_run(paths, record(name="a")).record.attempt == attempt


def test_a_damaged_claim_blocks_nobody(tmp_path: Path, record: MakeRecord, dead: ProcessIdentity) -> None:
    paths = RunPaths(tmp_path / "runs" / "a")
    left_by(paths, record(owner=dead))
    paths.claim(2).mkdir()
    (paths.claim(2) / "owner.json").write_bytes(b"\0" * 80)  # as a power cut leaves it
    assert claim_run(paths, record()).record.attempt == 3


def test_a_run_that_is_only_looked_at_can_be_given_back(
    tmp_path: Path, record: MakeRecord, dead: ProcessIdentity
) -> None:
    paths = RunPaths(tmp_path / "runs" / "a")
    left_by(paths, record(owner=dead, status=Status.FINISHED))
    before = sorted(path.name for path in paths.root.iterdir())
    for _ in range(3):  # a notebook's cell, run again and again by one living process
        folder = claim_run(paths, record())
        assert folder.record.status is Status.FINISHED
        folder.give_back()
    assert sorted(path.name for path in paths.root.iterdir()) == before
    claim_run(paths, record())
    with pytest.raises(RunBusyError, match="being taken over"):
        claim_run(paths, record())


def taken_over(folder: RunFolder, record: RunRecord) -> RunFolder:
    """The folder in the hands of its next owner, as `claim_run` gives it."""
    return RunFolder(folder.paths, msgspec.structs.replace(record, attempt=folder.record.attempt + 1))


def filled(folder: RunFolder) -> RunPaths:
    paths = folder.paths
    for path in (paths.checkpoint, paths.log, paths.error, paths.config, paths.root / "events.out.tfevents.1"):
        path.write_text(path.name)
    return paths


def test_an_old_attempt_is_put_aside_whole(tmp_path: Path, record: MakeRecord) -> None:
    old = left_by(RunPaths(tmp_path / "runs" / "a"), record(status=Status.FAILED))
    paths = filled(old)
    before = paths.record.read_bytes()
    folder = taken_over(old, old.record)
    folder.begin_anew(record(status=Status.RUNNING))
    assert {path.name for path in (paths.attempts / "1").iterdir()} == {
        *("run.json", "epochs.jsonl", "checkpoint.pt", "run.log", "error.txt", "config.yaml", "events.out.tfevents.1")
    }
    assert (paths.attempts / "1" / "run.json").read_bytes() == before
    assert (read_record(paths).status, read_record(paths).attempt) == (Status.RUNNING, 2)
    assert [path.name for path in sorted(paths.root.iterdir())] == ["attempts", "run.json"]
    folder.append(EpochRecord(epoch=1))
    taken_over(folder, folder.record).begin_anew(record())  # the first stays where it is
    assert {path.name for path in paths.attempts.iterdir()} == {"1", "2"}
    assert (paths.attempts / "1" / "checkpoint.pt").read_text() == "checkpoint.pt"
    folder.close()


@pytest.mark.parametrize("moves", range(7))
def test_a_kill_while_an_attempt_is_put_aside_leaves_no_lie(
    tmp_path: Path, record: MakeRecord, monkeypatch: pytest.MonkeyPatch, moves: int
) -> None:
    old = left_by(RunPaths(tmp_path / "runs" / "a"), record(status=Status.FINISHED))
    paths = filled(old)
    before = read_run(paths)
    left = iter(range(moves))
    replace = os.replace

    def killed_after(source: Path, target: Path) -> None:
        if next(left, None) is None:
            raise KeyboardInterrupt
        replace(source, target)

    monkeypatch.setattr(os, "replace", killed_after)
    with pytest.raises(KeyboardInterrupt):
        taken_over(old, old.record).begin_anew(record(status=Status.RUNNING))
    monkeypatch.undo()
    after = read_run(paths)
    if after.record.status is Status.FINISHED:
        assert after.epochs == before.epochs, "what reads finished has all its epochs"
    else:
        assert not paths.checkpoint.exists(), "nobody goes on from the old attempt's checkpoint"


def epochs(*numbers: int) -> list[EpochRecord]:
    return [EpochRecord(epoch=number, loss=1 / (number + 1), samples=number) for number in numbers]


@pytest.mark.parametrize(
    ("there", "last", "kept"),
    [
        ((0, 1, 2, 3), 3, (0, 1, 2, 3)),
        ((0, 1, 2, 3), 2, (0, 1, 2)),  # what came after the checkpoint is run again
        ((1, 2), 3, (1, 2, 3)),  # the kill fell between the checkpoint and its line
        ((), 1, (1,)),
        ((1, 2), None, ()),
    ],
)
def test_epochs_are_cut_to_the_checkpoint(
    tmp_path: Path,
    record: MakeRecord,
    there: tuple[int, ...],
    last: int | None,
    kept: tuple[int, ...],
) -> None:
    folder = claim_run(RunPaths(tmp_path / "a"), record())
    for epoch in epochs(*there):
        folder.append(epoch)
    with folder.paths.epochs.open("ab") as file:
        file.write(b'{"epoch": 9, "lo')
    carried = None if last is None else epochs(last)[0]
    assert folder.cut_epochs(carried) == epochs(*kept)
    folder.append(EpochRecord(epoch=7))
    folder.close()
    assert read_run(folder.paths).epochs == [*epochs(*kept), EpochRecord(epoch=7)]


def test_a_torn_last_line_is_left_out_and_a_damaged_one_is_told(tmp_path: Path, record: MakeRecord) -> None:
    folder = left_by(RunPaths(tmp_path / "a"), record())
    whole = folder.paths.epochs.read_bytes()
    folder.paths.epochs.write_bytes(whole + whole[:10])
    assert [epoch.epoch for epoch in read_run(folder.paths).epochs] == [1]
    folder.paths.epochs.write_bytes(whole[:10] + b"\n" + whole)
    with pytest.raises(RecordError, match=r"epochs\.jsonl is damaged"):
        read_run(folder.paths)


def test_an_epoch_of_a_later_program_is_read(tmp_path: Path, record: MakeRecord) -> None:
    folder = claim_run(RunPaths(tmp_path / "a"), record())
    folder.paths.epochs.write_bytes(b'{"epoch":1,"loss":0.5,"perplexity":{"of":3}}\n')
    assert read_run(folder.paths).epochs == [EpochRecord(epoch=1, loss=0.5)]


def sweep_of_five(folder: Path, record: MakeRecord, dead: ProcessIdentity) -> SweepPaths:
    sweep = SweepPaths(folder)
    for number in range(5):
        started = None if number == 0 else f"2026-11-21T12:00:0{9 - number}+00:00"
        left_by(sweep.run(f"run-{number}"), record(name=f"run-{number}", owner=dead, started_at=started))
    return sweep


def test_a_sweep_is_read_in_order_of_start(tmp_path: Path, record: MakeRecord, dead: ProcessIdentity) -> None:
    sweep = sweep_of_five(tmp_path / "s", record, dead)
    (sweep.runs / ".new-being-claimed").mkdir()
    (sweep.runs / "notes.txt").write_text("not a run")
    contents = read_sweep(sweep)
    assert [run.record.name for run in contents.runs] == ["run-4", "run-3", "run-2", "run-1", "run-0"]
    assert {run.record.status for run in contents.runs} == {Status.CRASHED}
    assert contents.damaged == []
    assert read_sweep(SweepPaths(tmp_path / "nothing")).runs == []


def test_damage_is_told_and_drops_no_other_run(tmp_path: Path, record: MakeRecord, dead: ProcessIdentity) -> None:
    sweep = sweep_of_five(tmp_path / "s", record, dead)
    sweep.run("run-1").record.write_bytes(b'{"name": "run-1", ')
    sweep.run("run-2").epochs.write_bytes(b"nonsense\n")
    sweep.run("run-3").record.write_bytes(
        encode_record(record()).replace(b'"schema_version": 1', b'"schema_version": 2')
    )
    sweep.run("run-4").record.unlink()
    contents = read_sweep(sweep)
    assert {run.record.name: len(run.epochs) for run in contents.runs} == {"run-0": 1, "run-2": 0}
    told = {damage.path.name: damage.message for damage in contents.damaged}
    assert set(told) == {"run-1", "run-2", "run-3", "run-4"}
    assert "run.json is damaged" in told["run-1"] and "epochs.jsonl is damaged" in told["run-2"]
    assert f"at most {SCHEMA_VERSION}, got 2" in told["run-3"] and "got nothing there" in told["run-4"]


DAMAGE = st.one_of(
    st.binary(max_size=60),
    st.just(b"\0" * 300),
    st.just(b"[" * 100_000),
    st.sampled_from([b"null", b"{}", b"[]", b'{"schema_version": "x"}', b'{"schema_version": 1e999}', b"\xff\xfe{}"]),
)


@settings(max_examples=40)
@given(damage=DAMAGE, name=st.sampled_from(["run.json", "epochs.jsonl"]))
def test_no_damage_ends_the_reading(
    tmp_path_factory: pytest.TempPathFactory, record: MakeRecord, damage: bytes, name: str
) -> None:
    root = tmp_path_factory.mktemp("damage", numbered=True)
    sweep = SweepPaths(root)
    for run in ("good", "bad"):
        left_by(sweep.run(run), record(name=run))
    (sweep.run("bad").root / name).write_bytes(damage)
    contents = read_sweep(sweep)
    assert "good" in {run.record.name for run in contents.runs}
    assert len(contents.runs) + len(contents.damaged) >= 2
    shutil.rmtree(root)


def test_a_folder_in_a_files_place_is_damage(tmp_path: Path, record: MakeRecord) -> None:
    sweep = SweepPaths(tmp_path)
    left_by(sweep.run("a"), record())
    sweep.run("a").epochs.unlink()
    sweep.run("a").epochs.mkdir()
    contents = read_sweep(sweep)
    assert len(contents.runs) == len(contents.damaged) == 1

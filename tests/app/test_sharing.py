"""Tests of two drivers on one sweep: they share its cells, run none twice, and both show all of them."""

import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

from runmanager.app.driver.driver_faults import Telling
from runmanager.app.driver.run_listener import DrivenRuns, SweepListener
from runmanager.app.driver.sweep_plan import end_silent_runs
from runmanager.launching.local.jobs import Job, ProcessExit
from runmanager.launching.local.worker import Raised, Returned
from runmanager.launching.plan import Action, Cell, PlannedRun
from runmanager.records.files.paths import SweepPaths
from runmanager.records.host.process import ProcessIdentity
from runmanager.records.run.heartbeat import Beat, HeartbeatObserver, write_beat
from runmanager.records.run.run_record import RunRecord
from runmanager.records.run.status import Outcome, Reason, Status
from runmanager.records.storage.ownership import claim_run
from runmanager.records.storage.reader import read_record
from runmanager.records.storage.run_folder import RunFolder

RATES = tuple(number / 10 for number in range(1, 6))
OWN = ("model=custom", "model._target_=own.Net")


def test_two_drivers_share_a_sweep_and_run_no_cell_twice(
    start: Callable[..., Any],
    finish: Callable[..., Any],
    sweep: Callable[[str], Any],
    own_module: Path,
    tiny: tuple[str, ...],
) -> None:
    # The first run waits for another one; otherwise a late driver would find nothing left to share.
    meeting = (*OWN, "+model.way=meet", "+model.partners=2")
    words = ("-m", *tiny, *meeting, f"lr={','.join(map(str, RATES))}", "name=shared")
    ends = [finish(driver) for driver in [start(*words), start(*words)]]
    for done in ends:
        assert done.status == 0, done.out + done.err
        assert done.err == ""
        assert "5/5  lr=" in done.out
        assert "5 runs: 5 finished." in done.out
    records = sweep("shared").records
    assert sorted(each.settings["lr"] for each in records) == list(RATES)
    assert {(each.status, each.attempt) for each in records} == {("finished", 1)}
    for each in records:
        assert sweep("shared").num_epochs(each) == 2
        assert not sweep("shared").paths.run(each.name).attempts.exists()
    begun = {line.split()[1] for done in ends for line in done.out.splitlines() if line.endswith(" started")}
    assert begun == {f"lr={rate}" for rate in RATES}
    assert [row["status"] for row in sweep("shared").rows()] == ["finished"] * 5
    assert len(sweep("shared").rows("epochs.csv")) == 10


@pytest.mark.parametrize("program", ["application", "script"])
def test_drivers_that_begin_together_all_end_well(program: str, tmp_path: Path) -> None:
    sys.path.insert(0, str(Path(__file__).parents[1] / "reliability"))
    import drivers

    seen = drivers.try_drivers(tmp_path / "shared", program, 4)
    assert seen.is_as_promised, seen


def test_a_driver_resumes_what_another_left_undone(
    start: Callable[..., Any],
    finish: Callable[..., Any],
    sweep: Callable[[str], Any],
    wait: Callable[..., Any],
    own_module: Path,
    tiny: tuple[str, ...],
) -> None:
    gate = own_module.parent / "gate"
    gate.touch()
    words = ("-m", *tiny, *OWN, "lr=0.1", "epochs=3", "name=left")
    first = start(*words)
    wait((own_module.parent / "waiting").exists, "the run's second epoch")
    second = start(*words)
    wait(lambda: "running in process" in read_some(second), "the second driver's plan")
    owner = sweep("left").records[0].owner
    first.kill()
    wait(lambda: owner.is_alive() is False, "the death of the first driver's run")
    gate.unlink()
    done = finish(second)
    assert done.status == 0, done.out + done.err
    (record,) = sweep("left").records
    assert (record.status, record.attempt) == ("finished", 2)
    assert sweep("left").num_epochs(record) == 3


def read_some(process: Any) -> str:
    """Read the next line of a command's output."""
    return str(process.stdout.readline())


@pytest.fixture
def run(tmp_path: Path) -> PlannedRun:
    """A cell, planned before anything was stored of it."""
    paths = SweepPaths(tmp_path / "shared")
    paths.runs.mkdir(parents=True)
    return PlannedRun(Cell("a" * 64, "lr=1-aaaaaaaa", {"lr": 1}, ()), Action.START, "new", paths.run("lr=1-aaaaaaaa"))


def watcher(run: PlannedRun, wait: Callable[[float], object] = lambda seconds: None) -> SweepListener:
    """A driver's listener whose clock advances by a minute in each wait and by nothing else."""
    sweep = SweepPaths(run.paths.root.parents[1])
    now = [0.0]

    def pass_a_minute(seconds: float) -> None:
        wait(seconds)
        now[0] += 60.0

    observer = HeartbeatObserver(clock=lambda: now[0], wait=pass_a_minute)
    return SweepListener(DrivenRuns(sweep, [run], [run]), Telling(Console(quiet=True), quiet=True), observer=observer)


def taken(run: PlannedRun, owner: ProcessIdentity) -> RunFolder:
    """Begin the run as another process."""
    record = RunRecord(
        name=run.paths.name, signature=run.cell.signature, status=Status.RUNNING, config={"lr": 1}, owner=owner
    )
    return claim_run(run.paths, record)


def process_exits(watching: SweepListener, ending: ProcessExit) -> None:
    """What an engine reports of a process that has exited."""
    watching.finalize(ending)
    watching.ended(ending)


LIVING = ProcessIdentity.current()
ELSEWHERE = ProcessIdentity(pid=7, start_ticks=1, boot_id="other", host="elsewhere")


@pytest.mark.parametrize("owner", [LIVING, ELSEWHERE], ids=["here", "elsewhere"])
def test_a_process_that_lost_its_cell_leaves_the_winners_run_unchanged(run: PlannedRun, owner: ProcessIdentity) -> None:
    ends = iter([lambda: folder.write(status=Status.FINISHED)])
    watching = watcher(run, lambda seconds: next(ends)())
    assert watching.wants(0)
    watching.started(Job(0, print), 4_000_000)
    folder = taken(run, owner)
    before = run.paths.record.read_bytes()
    process_exits(watching, ProcessExit(Job(0, print), 0, Returned(None)))
    assert run.paths.record.read_bytes() == before
    assert watching.follow_other_drivers() == []
    assert watching.finish(interrupted=False) == 0
    assert (run.paths.root.parents[1] / "results.csv").read_text().count("finished") == 1


@pytest.mark.parametrize("status", [Status.RUNNING, Status.FINISHED])
def test_a_process_that_came_too_late_is_no_failure(run: PlannedRun, status: Status) -> None:
    """Whatever has become of the winner's run by then: the driver sees the end of its process later."""
    ends = iter([lambda: folder.write(status=Status.FINISHED)])
    watching = watcher(run, lambda seconds: next(ends)())
    assert watching.wants(0)
    watching.started(Job(0, print), pid=1)
    folder = taken(run, LIVING)
    folder.write(status=status)
    late = Raised("RunBusyError: it is being run", "", is_busy=True)
    process_exits(watching, ProcessExit(Job(0, print), 0, late))
    assert watching.follow_other_drivers() == []
    assert watching.finish(interrupted=False) == 0


@pytest.mark.parametrize(("state", "left"), [((Status.CRASHED, Reason.VANISHED), True), ((Status.FAILED, None), False)])
def test_undone_cells_of_another_driver_are_returned(
    run: PlannedRun, state: tuple[Status, Reason | None], left: bool
) -> None:
    ends = iter([lambda: folder.write(status=state[0], reason=state[1])])
    watching = watcher(run, lambda seconds: next(ends)())
    folder = taken(run, LIVING)
    assert not watching.wants(0)
    assert watching.follow_other_drivers() == ([run] if left else [])
    assert watching.take([run]) == 1


def test_a_run_that_vanished_with_its_host_is_returned_after_the_timeout(run: PlannedRun) -> None:
    beats = iter(range(2, 4))

    def beat(seconds: float) -> None:
        if (number := next(beats, None)) is not None:
            write_beat(run.paths.heartbeat, Beat(number, 1, 1795262400 + number))

    watching = watcher(run, beat)
    folder = taken(run, ELSEWHERE)
    folder.write(started_at="2026-11-21T12:00:00+00:00")
    write_beat(run.paths.heartbeat, Beat(1, 1, 1795262400))
    assert not watching.wants(0)
    assert watching.follow_other_drivers() == [run]
    record = read_record(run.paths)
    assert (record.outcome.status, record.outcome.reason) == (Status.CRASHED, Reason.VANISHED)
    assert record.ended_at == "2026-11-21T12:00:03+00:00", "its last beat"
    assert claim_run(run.paths, record.ended(Outcome(Status.RUNNING), at=None)).record.attempt == 2


@pytest.mark.parametrize("lives", [True, False])
def test_a_plan_takes_over_runs_without_a_heartbeat(run: PlannedRun, lives: bool) -> None:
    taken(run, ELSEWHERE)
    left = replace(run, action=Action.LEAVE, stored=read_record(run.paths))
    now, said = [0.0], []

    def wait(seconds: float) -> None:
        now[0] += seconds
        assert now[0] < 100
        if lives:
            write_beat(run.paths.heartbeat, Beat(int(now[0]), 1))

    observer = HeartbeatObserver(clock=lambda: now[0], wait=wait)
    assert end_silent_runs([left], observer, say=said.append) is not lives
    assert said[0] == "1 run says `running` on elsewhere: watched for a sign of life for up to 60 s."
    gone = f"{run.paths.name}: no sign of life from process 7 on elsewhere for 60 s; taken over."
    assert said[1:] == ([] if lives else [gone])
    assert (now[0] < 5) if lives else (now[0] == 60)
    assert read_record(run.paths).status is (Status.RUNNING if lives else Status.CRASHED)
    assert not end_silent_runs([left], observer, apart_from=[run.paths.name], say=said.append)


def test_the_end_of_an_own_run_that_died_is_recorded(run: PlannedRun) -> None:
    watching = watcher(run)
    watching.started(Job(0, print), LIVING.pid)
    taken(run, LIVING)
    process_exits(watching, ProcessExit(Job(0, print), -9, None))
    assert read_record(run.paths).outcome == Outcome(Status.KILLED, Reason.SIGNAL, "SIGKILL")

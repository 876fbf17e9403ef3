"""Tests of following a sweep from its files: output, end, and the states of dead runs."""

import datetime
import io
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest
from rich.console import Console

from runmanager.app.display.output import ConsoleOutput
from runmanager.app.display.watching import follow_runs, follow_sweep, show_state
from runmanager.app.driver.run_listener import write_tables_alone
from runmanager.app.follow import sweep_state
from runmanager.app.follow.sweep_state import SweepReader
from runmanager.launching.job_registry import locked_job_registry
from runmanager.launching.slurm.queue import SlurmQueue
from runmanager.records.files.paths import RunPaths, SweepPaths
from runmanager.records.host.process import ProcessIdentity
from runmanager.records.run.heartbeat import Beat, HeartbeatObserver, write_beat
from runmanager.records.run.program_report import ProgramReport
from runmanager.records.run.run_record import EpochRecord, RunRecord
from runmanager.records.run.status import Outcome, Reason, Status
from runmanager.records.storage.ownership import claim_run
from runmanager.records.storage.reader import read_record
from runmanager.records.storage.run_folder import RunFolder
from runmanager.records.sweep.lookup import Messages
from runmanager.records.sweep.sweep_record import SweepCommand, leave_sweep, plan_cell, write_cells

ME = ProcessIdentity.current()
ELSEWHERE = ProcessIdentity(pid=1, start_ticks=1, boot_id="other", host="elsewhere")
AT = "2026-11-01T10:00:00+00:00"


class Disk:
    """A sweep of cells `lr=0`, `lr=1`, …; a test writes its files in place of a driver and runs."""

    def __init__(self, root: Path, num_cells: int) -> None:
        self.paths = SweepPaths(root)
        self.names = [f"lr={number}-{number:08x}" for number in range(num_cells)]
        self.plan(driver=ME)
        self.folders: dict[int, RunFolder] = {}

    def plan(self, *, driver: ProcessIdentity | None = None) -> None:
        cells = [plan_cell(name, name, {"lr": number}) for number, name in enumerate(self.names)]
        write_cells(self.paths, cells, SweepCommand(["sweep"], axes={"lr": list(range(len(cells)))}), driver=driver)

    def begin(self, number: int, *, owner: ProcessIdentity = ME, attempt: int = 1, **settings: object) -> None:
        name = self.names[number]
        record = RunRecord(
            name=name,
            signature=name,
            status=Status.RUNNING,
            config={"lr": number, **settings},
            epochs_planned=3,
            started_at=AT,
            owner=owner,
            attempt=attempt,
        )
        if attempt == 1:
            self.folders[number] = claim_run(self.paths.run(name), record)
        self.folders[number].record = record
        self.folders[number].write()

    def epoch(self, number: int, epoch: int, **fields: Any) -> None:
        usual = {"loss": 0.25, "epoch_seconds": 0.5, "samples": 10}
        self.folders[number].append(EpochRecord(epoch=epoch, **usual | fields))
        self.folders[number].close()

    def end(self, number: int, status: Status = Status.FINISHED, reason: Reason | None = None, *, at: str = AT) -> None:
        record = self.folders[number].record.ended(Outcome(status, reason, ""), at=at)
        self.folders[number].write(**{name: getattr(record, name) for name in ("status", "reason", "ended_at")})
        self.folders[number].close()


@pytest.fixture
def disk(tmp_path: Path) -> Callable[[int], Disk]:
    def of(num_cells: int) -> Disk:
        return Disk(tmp_path / "grid", num_cells)

    return of


def follow(disk: Disk, *moments: Callable[[], object], seconds: float = 1.0) -> tuple[int, list[str]]:
    """Follow a sweep to its end; one of `moments` changes the disk before each poll, `seconds` apart."""
    out = io.StringIO()
    coming = iter(moments)
    now = [0.0]

    def wait(_: float) -> None:
        next(coming)()  # StopIteration: following should have ended
        now[0] += seconds

    observer = HeartbeatObserver(clock=lambda: now[0], wait=wait)
    status = follow_sweep(disk.paths, Console(file=out, width=200), observer=observer)
    assert next(coming, None) is None, "following ended too early"
    return status, out.getvalue().splitlines()


def test_a_sweep_is_shown_from_its_first_run_to_its_last(disk: Callable[[int], Disk]) -> None:
    sweep = disk(2)
    status, lines = follow(
        sweep,
        lambda: sweep.begin(0),
        lambda: sweep.epoch(0, 1, warmup=True, epoch_seconds=5.0),
        lambda: sweep.epoch(0, 2),
        lambda: sweep.epoch(0, 3, epoch_seconds=0.25),
        lambda: sweep.end(0),
        lambda: sweep.begin(1),
        lambda: sweep.end(1, Status.SKIPPED, Reason.DEVICE_UNAVAILABLE),
        lambda: leave_sweep(sweep.paths, ME),
    )
    assert status == 0
    assert lines[0].endswith("grid: 2 cells: 2 pending")
    assert lines[1:5] == [
        "[1/2] lr=0 started",
        "✓ 1/2  lr=0  finished  loss 0.250 30/s",  # the median, as in tables
        "[2/2] lr=1 started",
        "- 2/2  lr=1  skipped (device_unavailable)",
    ]
    assert "2 runs: 1 finished, 1 skipped." in lines
    assert not list(sweep.paths.root.glob("results.*")), "a reader writes nothing"


class Terminal(ConsoleOutput):
    """A terminal whose live region is drawn on request."""

    render: Callable[[], Any]

    def __init__(self) -> None:
        self.text = io.StringIO()
        super().__init__(
            Console(file=self.text, width=80, force_terminal=True, color_system=None, force_interactive=True)
        )

    def start(self, render: Callable[[], Any]) -> None:
        self.render = render

    def region(self) -> list[list[str]]:
        with self.console.capture() as capture:
            self.console.print(self.render())
        return [line.split() for line in capture.get().splitlines()]


def watch_live(
    sweep: Disk, *moments: Callable[[], object], metric: str | None = None
) -> tuple[list[list[list[str]]], list[str]]:
    """Follow a sweep in a terminal; return the live region before each of the `moments`, and the permanent lines."""
    terminal = Terminal()
    drawn: list[list[list[str]]] = []
    coming = iter(moments)

    def wait(_: float) -> None:
        drawn.append(terminal.region())
        next(coming)()

    observer = HeartbeatObserver(clock=lambda: float(len(drawn)), wait=wait)
    follow_runs(SweepReader(sweep.paths, observer=observer), terminal, metric=metric)
    return drawn, terminal.text.getvalue().splitlines()


def test_a_live_table_shows_logged_metrics_and_steps(disk: Callable[[int], Disk]) -> None:
    sweep = disk(2)

    def by_steps() -> None:  # what a program reports, not its supervisor
        report = ProgramReport(attempt=1, interval="steps")
        sweep.folders[0].paths.reported.write_bytes(msgspec.json.encode(report))
        sweep.epoch(0, 1200, loss=None, samples=0, metrics={"psnr": 30.0, "val/f1": 0.5, "fid": None})

    def merge_and_end() -> None:
        sweep.folders[0].write(interval="steps", summary={"psnr": 31.0})
        sweep.end(0)

    drawn, lines = watch_live(
        sweep,
        lambda: sweep.begin(0),
        by_steps,
        lambda: sweep.epoch(0, 2400, loss=None, samples=0, metrics={"val/f1": 0.75}),
        merge_and_end,
        lambda: sweep.begin(1),
        lambda: sweep.end(1, Status.SKIPPED, Reason.DEVICE_UNAVAILABLE),
        lambda: leave_sweep(sweep.paths, ME),
        metric="val/f1",
    )
    assert drawn[1][0] == ["run", "state", "epoch", "loss", "val_acc", "samples/s", "took", "left"]
    assert drawn[3][:2] == [
        ["run", "state", "step", "val/f1", "psnr", "fid", "took", "left"],
        [">", "lr=0", "running", "2400", "0.75", "30", "N/A", *drawn[3][1][-1:]],
    ]
    ended = next(line.split() for line in lines if line.startswith("✓"))
    assert ended[:7] == ["✓", "lr=0", "finished", "2400", "0.75", "31", "N/A"]


def test_a_live_table_says_that_a_run_is_resumed_and_no_longer_that_cells_wait(disk: Callable[[int], Disk]) -> None:
    sweep = disk(3)
    for number in (0, 1):
        sweep.begin(number)
        sweep.end(number, Status.KILLED, Reason.INTERRUPTED)
    leave_sweep(sweep.paths, ME)

    def resume() -> None:
        sweep.plan(driver=ME)
        sweep.folders[0].record = msgspec.structs.replace(sweep.folders[0].record, resumed_at=AT)
        sweep.folders[0].write(resumed_at=AT, status=Status.RUNNING, reason=None, ended_at=None)

    drawn, lines = watch_live(
        sweep,
        resume,
        lambda: sweep.end(0),
        lambda: sweep.begin(1, attempt=2),
        lambda: sweep.end(1),
        lambda: (sweep.begin(2), sweep.end(2), leave_sweep(sweep.paths, ME)),
    )
    waits = ["1", "cell", "waits", "for", "a", "driver;", "Ctrl-C", "leaves."]
    assert [waits in each for each in drawn] == [True, False, False, False, False]
    assert [line.split()[:3] for line in lines if line[:1] in tuple("✗↻✓")] == [
        ["✗", "lr=0", "killed"],
        ["✗", "lr=1", "killed"],
        ["↻", "lr=0", "resumed"],
        ["✓", "lr=0", "finished"],
        ["↻", "lr=1", "started"],
        ["✓", "lr=1", "finished"],
        ["✓", "lr=2", "finished"],
    ]
    assert not any("Ctrl-C" in line for line in lines)


def test_the_state_of_a_run_by_steps(disk: Callable[[int], Disk]) -> None:
    sweep = disk(1)
    sweep.begin(0)
    sweep.folders[0].write(interval="steps")
    sweep.epoch(0, 1200, metrics={"val/f1": 0.5})
    out = io.StringIO()
    show_state(sweep.paths, Console(file=out, width=200))
    assert "> 1/1  lr=0  running  loss 0.250 20/s  val/f1 0.5000  step 1200" in out.getvalue()


def test_what_a_driver_says_is_told_by_its_watchers(disk: Callable[[int], Disk]) -> None:
    sweep = disk(2)
    driver = Messages(sweep.paths)
    driver.say("2 runs to do")
    sweep.paths.messages.write_bytes(sweep.paths.messages.read_bytes() + b'{"line": "torn')

    def retry() -> None:
        driver.say("lr=0  killed (signal): SIGKILL; retried (2 of 2)", retried=sweep.names[0])
        sweep.begin(0, attempt=2)

    status, lines = follow(
        sweep,
        lambda: sweep.begin(0),
        lambda: sweep.end(0, Status.KILLED, Reason.SIGNAL),
        retry,
        lambda: (sweep.end(0, Status.KILLED, Reason.SIGNAL, at="2999-01-01T10:00:00+00:00"), sweep.begin(1)),
        lambda: (driver.say("the disk\nis full"), sweep.end(1)),
        lambda: leave_sweep(sweep.paths, ME),
    )
    assert status == 1
    assert lines[1:8] == [
        "2 runs to do",
        "[1/2] lr=0 started",
        "↻ lr=0  killed (signal): SIGKILL; retried (2 of 2)",
        "[1/2] lr=0 started",
        "[2/2] lr=1 started",
        r"the disk\nis full",
        "✗ 1/2  lr=0  killed (signal)",
    ]
    assert not [line for line in follow(sweep)[1] if "retried" in line], "no driver is at work any more"


def test_following_continues_while_a_driver_starts_the_next_run(disk: Callable[[int], Disk]) -> None:
    sweep = disk(2)
    for number in (0, 1):
        sweep.begin(number)
        sweep.end(number, Status.KILLED, Reason.INTERRUPTED)
    status, lines = follow(
        sweep,
        lambda: sweep.begin(0, attempt=2),
        lambda: sweep.end(0),
        lambda: sweep.begin(1, attempt=2),
        lambda: (sweep.end(1), leave_sweep(sweep.paths, ME)),
    )
    assert status == 0
    assert [line for line in lines if "killed" in line][1:] == [
        f"✗ {n + 1}/2  lr={n}  killed (interrupted)" for n in (0, 1)
    ]
    again = ["[2/2] lr=0 started again", "[2/2] lr=1 started again"]
    assert [line for line in lines if " started" in line] == again
    assert [line for line in lines if "  finished" in line and "✓" in line] == [
        f"✓ 2/2  lr={n}  finished" for n in (0, 1)
    ]


def test_a_run_whose_processes_are_restarted_is_shown_once(disk: Callable[[int], Disk]) -> None:
    """Under `measure=paired` a run ends and starts again until its driver starts others or exits."""
    sweep, measure = disk(2), {"name": "paired", "max_seconds": 60.0}
    status, lines = follow(
        sweep,
        lambda: sweep.begin(0, measure=measure),
        lambda: sweep.end(0),
        lambda: sweep.begin(0, attempt=2, measure=measure),
        lambda: sweep.end(0),
        lambda: sweep.begin(1, measure=measure),
        lambda: sweep.end(1),
        lambda: leave_sweep(sweep.paths, ME),
    )
    assert status == 0
    assert [line for line in lines if "lr=" in line] == [
        "[1/2] lr=0 started",
        "[2/2] lr=1 started",
        "✓ 1/2  lr=0  finished",
        "✓ 2/2  lr=1  finished",
    ]


def test_an_ended_sweep_is_shown_with_its_results(disk: Callable[[int], Disk]) -> None:
    sweep = disk(3)
    for number in range(3):
        sweep.begin(number)
        sweep.end(number, *((Status.FAILED, Reason.EXCEPTION) if number else ()))
    leave_sweep(sweep.paths, ME)
    status, lines = follow(sweep)
    assert status == 1
    assert lines[0].endswith("grid: 3 cells: 1 finished, 2 failed")
    assert lines[1:3] == ["✗ 2/3  lr=1  failed (exception)", "✗ 3/3  lr=2  failed (exception)"]
    assert "3 runs: 1 finished, 2 failed." in lines


@pytest.mark.parametrize(("seconds", "shown"), [(-1, True), (1, False)])
def test_runs_that_ended_since_the_command_began_are_shown(
    disk: Callable[[int], Disk], seconds: float, shown: bool
) -> None:
    sweep, out = disk(1), io.StringIO()
    sweep.begin(0)
    sweep.epoch(0, 1)
    sweep.end(0)
    observer = HeartbeatObserver(wait=lambda _: None)
    reader = SweepReader(sweep.paths, observer=observer)
    since = datetime.datetime.fromisoformat(AT).timestamp() + seconds
    follow_runs(reader, ConsoleOutput(Console(file=out, width=200)), has_left=lambda: True, since=since)
    assert ("✓ 1/1  lr=0  finished" in out.getvalue()) is shown


def test_cells_added_while_following_are_waited_for(disk: Callable[[int], Disk]) -> None:
    sweep = disk(1)

    def widen() -> None:
        sweep.names.append("lr=1-00000001")
        sweep.plan(driver=ME)
        leave_sweep(sweep.paths, ME)

    sweep.begin(0)
    sweep.end(0)
    status, lines = follow(sweep, widen, lambda: sweep.begin(1), lambda: sweep.end(1))
    assert status == 0
    assert "1 cell waits for a driver; Ctrl-C leaves." in lines
    assert "✓ 2/2  lr=1  finished" in lines


def test_the_driver_may_still_record_the_end_of_a_vanished_run(
    disk: Callable[[int], Disk], dead: ProcessIdentity
) -> None:
    sweep = disk(1)
    sweep.begin(0, owner=dead)
    status, lines = follow(
        sweep, lambda: sweep.end(0, Status.KILLED, Reason.SIGNAL), lambda: leave_sweep(sweep.paths, ME)
    )
    assert status == 1
    assert [line for line in lines if line.startswith("✗")] == ["✗ 1/1  lr=0  killed (signal)"]


def test_a_vanished_run_without_a_driver_is_crashed(disk: Callable[[int], Disk], dead: ProcessIdentity) -> None:
    sweep = disk(1)
    sweep.begin(0, owner=dead)
    leave_sweep(sweep.paths, ME)
    status, lines = follow(sweep)
    assert status == 1
    assert lines[1].startswith("✗ 1/1  lr=0  crashed (vanished)")


def test_a_driver_on_another_host_counts_as_alive_until_it_is_silent(disk: Callable[[int], Disk]) -> None:
    sweep = disk(1)
    leave_sweep(sweep.paths, ME)
    sweep.plan(driver=ELSEWHERE)
    now = [0.0]
    reader = SweepReader(sweep.paths, observer=HeartbeatObserver(clock=lambda: now[0]))
    sweep.begin(0, owner=ELSEWHERE)
    sweep.end(0)
    assert not reader.read().is_ended
    now[0] = 59.0
    assert not reader.read().is_ended
    now[0] = 61.0
    assert reader.read().is_ended


def test_a_run_that_died_with_its_host_is_crashed_after_a_minute(
    disk: Callable[[int], Disk],
) -> None:
    sweep = disk(2)
    leave_sweep(sweep.paths, ME)
    sweep.plan(driver=ELSEWHERE)
    for number in (0, 1):
        sweep.begin(number, owner=ELSEWHERE)
        write_beat(sweep.folders[number].paths.heartbeat, Beat(1, 1, 1795262400))
    heartbeat = sweep.folders[1].paths.heartbeat
    moments = [
        *(lambda beat=beat: write_beat(heartbeat, Beat(beat, 1, 1795262400)) for beat in range(2, 5)),
        lambda: sweep.end(1),
        *[lambda: None] * 3,  # nothing changes any more
    ]
    status, lines = follow(sweep, *moments, seconds=20.0)
    assert status == 1
    gone = "crashed (vanished)  no sign of life from process 1 on elsewhere for 60 s"
    assert [line for line in lines if line[:1] in "✗✓"][:2] == [f"✗ 1/2  lr=0  {gone}", "✓ 2/2  lr=1  finished"]
    assert "2 runs: 1 finished, 1 crashed." in lines, "the tables say so too"
    assert not list(sweep.paths.root.glob("results.*")) and "running" in sweep.folders[0].paths.record.read_text()


def test_show_state_prints_the_last_heartbeat_of_a_run_on_another_host(disk: Callable[[int], Disk]) -> None:
    sweep = disk(1)
    sweep.begin(0, owner=ELSEWHERE)
    write_beat(sweep.folders[0].paths.heartbeat, Beat(3, 1, 1795262410))
    out = io.StringIO()
    assert show_state(sweep.paths, Console(file=out, width=200)) == 0
    assert out.getvalue().splitlines()[1] == (
        "> 1/1  lr=0  running  epoch 0/3  on another host, last heartbeat 2026-11-21 12:00:10 UTC"
    )


def test_an_unclaimed_folder_is_pending_and_a_damaged_one_has_ended_badly(
    disk: Callable[[int], Disk],
) -> None:
    sweep = disk(2)
    leave_sweep(sweep.paths, ME)
    sweep.paths.run(sweep.names[0]).root.mkdir(parents=True)
    (sweep.paths.runs / "unclaimed").mkdir()
    sweep.begin(1)
    reader = SweepReader(sweep.paths)
    assert reader.read().in_words() == "2 cells: 1 pending, 1 running"
    sweep.paths.run(sweep.names[1]).record.write_text("{")
    state = reader.read()
    assert state.in_words() == "2 cells: 1 pending, 1 damaged"
    assert (state.is_ended, state.status) == (False, 1)


def test_only_changed_files_are_read_again(disk: Callable[[int], Disk], monkeypatch: pytest.MonkeyPatch) -> None:
    sweep = disk(2)
    for number in (0, 1):
        sweep.begin(number)
    reader = SweepReader(sweep.paths)
    reader.read()
    read: list[RunPaths] = []
    monkeypatch.setattr(sweep_state, "read_record", lambda paths, **_: read.append(paths) or read_record(paths))
    sweep.end(1)
    assert reader.read().in_words() == "2 cells: 1 running, 1 finished"
    assert len(read) == 1


def test_show_state_prints_the_current_state(disk: Callable[[int], Disk]) -> None:
    sweep = disk(4)
    for number in (0, 1, 2):
        sweep.begin(number)
    sweep.epoch(0, 1)
    sweep.end(1)
    out = io.StringIO()
    assert show_state(sweep.paths, Console(file=out, width=200)) == 0
    sweep.end(2, Status.KILLED, Reason.SIGNAL)
    assert show_state(sweep.paths, Console(file=out, width=200)) == 1
    lines = out.getvalue().splitlines()
    assert lines[0].endswith("grid: 4 cells: 2 running, 1 finished, 1 pending")
    assert lines[1:3] == ["> 1/4  lr=0  running  loss 0.250 20/s  epoch 1/3", "> 3/4  lr=2  running  epoch 0/3"]
    assert lines[3].endswith("grid: 4 cells: 1 running, 1 finished, 1 killed, 1 pending")
    assert lines[5] == "✗ 3/4  lr=2  killed (signal)"


class Queue(SlurmQueue):
    """A queue with the given states of jobs; None if Slurm does not answer."""

    def __init__(self, states: dict[str, str] | None) -> None:
        self.now = states

    def states(self, jobs: Iterable[str]) -> dict[str, str] | None:
        return None if self.now is None else {job: self.now[job] for job in jobs if job in self.now}


def hand_over(sweep: Disk) -> None:
    """Submit each cell as a job, `7_0`, `7_1`, …, and exit, like a driver that does not wait."""
    with locked_job_registry(sweep.paths) as book:
        book.update((name, f"7_{number}") for number, name in enumerate(sweep.names))
    leave_sweep(sweep.paths, ME)


@pytest.fixture
def clock() -> list[float]:
    """The current time, which a test advances."""
    return [100.0]


def reader_of(sweep: Disk, queue: SlurmQueue | None, clock: list[float]) -> SweepReader:
    return SweepReader(sweep.paths, queue=queue, observer=HeartbeatObserver(clock=lambda: clock[0]))


def test_cells_with_a_slurm_job_are_queued_and_others_pending(disk: Callable[[int], Disk], clock: list[float]) -> None:
    sweep = disk(3)
    hand_over(sweep)
    queue = Queue({"7_0": "RUNNING", "7_1": "PENDING"})
    reader = reader_of(sweep, queue, clock)
    sweep.begin(0)
    assert reader.read().in_words() == "3 cells: 1 running, 1 queued, 1 pending"
    queue.now = None
    clock[0] += 10
    assert reader.read().in_words() == "3 cells: 1 running, 1 queued, 1 pending", "no answer says nothing"
    queue.now = {}
    clock[0] += 10
    assert reader.read().in_words() == "3 cells: 1 running, 2 pending"


def test_without_an_answer_of_slurm_the_state_is_unknown(disk: Callable[[int], Disk], clock: list[float]) -> None:
    sweep = disk(2)
    hand_over(sweep)
    assert reader_of(sweep, None, clock).read().in_words() == "2 cells: 2 handed to Slurm"
    assert reader_of(sweep, Queue(None), clock).read().in_words() == "2 cells: 2 handed to Slurm"


def test_slurm_is_not_queried_at_every_poll(disk: Callable[[int], Disk], clock: list[float]) -> None:
    sweep = disk(1)
    hand_over(sweep)
    queue = Queue({"7_0": "PENDING"})
    reader = reader_of(sweep, queue, clock)
    reader.read()
    queue.now = {}
    clock[0] += 1
    assert reader.read().in_words() == "1 cell: 1 queued"


def test_a_sweep_has_not_ended_while_slurm_may_resume_a_run(disk: Callable[[int], Disk], clock: list[float]) -> None:
    sweep = disk(1)
    hand_over(sweep)
    queue = Queue({"7_0": "RUNNING"})
    reader = reader_of(sweep, queue, clock)
    sweep.begin(0)
    assert not reader.read().is_ended
    sweep.end(0, Status.KILLED, Reason.INTERRUPTED)
    clock[0] += 1
    state = reader.read()
    assert (state.is_ended, state.in_words()) == (False, "1 cell: 1 killed")
    queue.now = {"7_0": "PENDING"}
    clock[0] += 10
    state = reader.read()
    assert (state.is_ended, state.status, state.in_words()) == (False, 0, "1 cell: 1 queued")
    sweep.begin(0, attempt=2)
    assert reader.read().in_words() == "1 cell: 1 running"
    sweep.end(0)
    clock[0] += 1
    assert reader.read().in_words() == "1 cell: 1 finished", "the job that waited had not begun its run then"
    queue.now = {}
    clock[0] += 10
    state = reader.read()
    assert (state.is_ended, state.status) == (True, 0)


def test_the_reason_for_waiting_is_printed(disk: Callable[[int], Disk]) -> None:
    sweep = disk(2)
    hand_over(sweep)
    out = io.StringIO()

    def leave(seconds: float) -> None:
        raise KeyboardInterrupt

    def said(states: dict[str, str] | None) -> str:
        with pytest.raises(KeyboardInterrupt):
            follow_sweep(
                sweep.paths,
                Console(file=out, width=200),
                queue=Queue(states),
                observer=HeartbeatObserver(wait=leave),
            )
        return out.getvalue().splitlines()[-1]

    assert said({"7_0": "PENDING", "7_1": "PENDING"}) == "2 cells wait in Slurm's queue; Ctrl-C leaves."
    assert said({"7_0": "PENDING"}) == "1 cell waits in Slurm's queue; 1 cell waits for a driver; Ctrl-C leaves."
    assert said({}) == "2 cells wait for a driver; Ctrl-C leaves."
    assert said(None) == "2 cells were handed to Slurm, which cannot be queried from here; Ctrl-C leaves."


def test_the_missing_report_of_a_detached_sweep_is_written(disk: Callable[[int], Disk]) -> None:
    sweep = disk(1)
    hand_over(sweep)
    sweep.begin(0)
    sweep.end(0)
    assert follow_sweep(sweep.paths, Console(file=io.StringIO()), queue=Queue({})) == 0
    assert sweep.paths.report.exists()
    written = sweep.paths.report.stat().st_mtime_ns
    assert follow_sweep(sweep.paths, Console(file=io.StringIO()), queue=Queue({})) == 0
    assert sweep.paths.report.stat().st_mtime_ns == written


def test_the_last_job_writes_the_report(disk: Callable[[int], Disk]) -> None:
    sweep = disk(2)
    hand_over(sweep)
    for number, is_last in ((0, False), (1, True)):
        sweep.begin(number)
        sweep.end(number)
        write_tables_alone(sweep.paths)
        assert sweep.paths.results("csv").exists()
        assert sweep.paths.report.exists() is is_last


@pytest.fixture
def sleeper(mortal: Callable[..., subprocess.Popen[bytes]]) -> Iterator[subprocess.Popen[bytes]]:
    """A process to kill."""
    process = mortal(subprocess.Popen([sys.executable, "-c", "print(flush=True); input()"], stdin=-1, stdout=-1))
    assert process.stdout is not None and process.stdin is not None
    process.stdout.readline()
    yield process
    process.kill()
    process.wait(60)
    process.stdin.close()
    process.stdout.close()


@pytest.fixture
def dead() -> ProcessIdentity:
    return msgspec.structs.replace(ME, start_ticks=1)


def test_a_zombie_process_does_not_count_as_running(
    disk: Callable[[int], Disk], sleeper: subprocess.Popen[bytes], wait: Callable[..., object]
) -> None:
    stat = Path(f"/proc/{sleeper.pid}/stat")
    if not stat.exists():
        pytest.skip("/proc is wanted")
    ticks = int(stat.read_text().rpartition(")")[2].split()[19])
    sweep = disk(1)
    sweep.begin(0, owner=msgspec.structs.replace(ME, pid=sleeper.pid, start_ticks=ticks))
    reader = SweepReader(sweep.paths)
    assert reader.read().in_words() == "1 cell: 1 running"
    os.kill(sleeper.pid, signal.SIGKILL)
    wait(lambda: stat.read_text().rpartition(")")[2].split()[0] == "Z", "the process's death")
    assert reader.read().in_words() == "1 cell: 1 crashed"

"""A driver that waits for its jobs: it sees them begin and end, and hands a cell in again that Slurm has stopped."""

import pickle
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec

from runmanager.errors import RecordError
from runmanager.launching.local.interrupt_counter import InterruptCounter
from runmanager.launching.local.jobs import Job, Listener, ProcessExit, outcome_of_exit
from runmanager.launching.local.worker import Raised
from runmanager.launching.plan import PlannedRun
from runmanager.launching.run_end import write_missing_end
from runmanager.launching.slurm.job import Report, owner_note
from runmanager.launching.slurm.options import SlurmOptions
from runmanager.launching.slurm.queue import WAITING_STATES, JobEnd, SlurmQueue
from runmanager.records.files.damaged_files import UNREADABLE
from runmanager.records.host.process import ProcessIdentity
from runmanager.records.run.status import Outcome, Reason, Status
from runmanager.records.storage.reader import read_epochs, read_record
from runmanager.text import pluralize

__all__ = ["SubmittedCell", "follow", "outcome_of_job", "read_report"]

_TICK_SECONDS = 0.2
# A job's last words may reach this host later than the news that it is gone.
_LOOKS_BEFORE_GONE = 2
# States in which Slurm, not the cell, ended a job: it is worth another try.
_STOPPED_BY_SLURM = ("PREEMPTED", "TIMEOUT", "NODE_FAIL", "BOOT_FAIL", "REQUEUED", "STOPPED", "SUSPENDED")


@dataclass
class SubmittedCell:
    """A cell in Slurm's hands: its key in a listener, its job, its run where the application keeps run folders."""

    key: int
    job: str
    run: PlannedRun | None
    num_resubmissions: int = 0
    has_begun: bool = False
    looks_in_vain: int = 0
    epochs_before: int = 0

    @property
    def num_epochs(self) -> int:
        """The epochs that are stored of its run."""
        if self.run is None:
            return 0
        try:
            return len(read_epochs(self.run.paths))
        except RecordError:
            return 0


def follow(
    submitted: Sequence[SubmittedCell],
    listener: Listener,
    *,
    queue: SlurmQueue,
    options: SlurmOptions,
    folder: Path,
    submit_again: Callable[[SubmittedCell], str],
) -> bool:
    """Wait until every cell has ended for good, and return whether the user asked to stop.

    The first Ctrl-C or SIGTERM takes what has not begun out of the queue, and lets running epochs be finished; the
    second ends everything at once. `folder` is where jobs leave their reports; `submit_again` returns the new job.
    """
    return _Follower(listener, queue, options, folder, submit_again).follow(submitted)


class _Follower:
    def __init__(
        self,
        listener: Listener,
        queue: SlurmQueue,
        options: SlurmOptions,
        folder: Path,
        submit_again: Callable[[SubmittedCell], str],
    ) -> None:
        self._listener = listener
        self._queue = queue
        self._options = options
        self._folder = folder
        self._submit_again = submit_again
        self._open: list[SubmittedCell] = []
        self._to_submit: list[SubmittedCell] = []
        self._interrupts = InterruptCounter()

    def follow(self, submitted: Sequence[SubmittedCell]) -> bool:
        self._open = list(submitted)
        for each in self._open:
            each.epochs_before = each.num_epochs
        due = 0.0
        with self._interrupts.counted():
            while self._open or self._to_submit:
                if self._interrupts.heed():
                    self._stop()
                    due = 0.0
                if time.monotonic() >= due:
                    self._look()
                    due = time.monotonic() + self._options.poll_seconds
                self._listener.tick()
                time.sleep(_TICK_SECONDS)
        return bool(self._interrupts)

    def _look(self) -> None:
        """Ask Slurm once, and see what has begun, ended, or is to be submitted again."""
        states = self._queue.states(each.job for each in self._open)
        if states is None:
            return  # it does not answer: that says nothing about the jobs
        for each in list(self._open):
            state = states.get(each.job)
            if state is not None:
                each.looks_in_vain = 0
                if state not in WAITING_STATES:
                    self._see_begun(each)
                continue
            each.looks_in_vain += 1
            report = read_report(self._folder, each.job)
            if report is not None or each.looks_in_vain >= _LOOKS_BEFORE_GONE:
                self._open.remove(each)
                self._see_gone(each, report, self._queue.end_of(each.job))
        self._submit_waiting(states)

    def _see_begun(self, each: SubmittedCell, *, is_over: bool = False) -> None:
        """Say that a run has begun, once its job has noted the run's process, or is over without having done so."""
        if each.has_begun:
            return
        pid = _pid_in(owner_note(self._folder, each.job))
        if pid is None and not is_over:
            return
        each.has_begun = True
        self._listener.started(_as_job(each), pid or 0)
        if self._interrupts.heeded and not is_over:
            self._queue.signal([each.job], "TERM")  # it slipped out of the queue just before

    def _see_gone(self, each: SubmittedCell, report: Report | None, end: JobEnd) -> None:
        if self._interrupts.heeded and report is None and not each.has_begun and not _has_a_record(each):
            return  # taken out of the queue: it stays pending
        self._see_begun(each, is_over=True)
        ending = self._ending(each, report, end)
        if self._is_worth_another_try(each, report, end):
            stopped = Outcome(Status.KILLED, Reason.INTERRUPTED, f"job {each.job} was stopped by Slurm")
            self._settle(each, stopped)
            tries = each.num_resubmissions + 1
            self._listener.retrying(ending, stopped, tries=tries, of=self._options.resubmissions + 1)
            each.has_begun = False
            self._to_submit.append(each)
            return
        if ending.verdict is not None:
            self._settle(each, ending.verdict)
        self._listener.ended(ending)

    def _ending(self, each: SubmittedCell, report: Report | None, end: JobEnd) -> ProcessExit:
        job = _as_job(each)
        if report is not None:
            return ProcessExit(job, report.exit_code, report.answer, report.was_stopped, report.verdict)
        if self._interrupts.heeded:
            stopped = Outcome(Status.KILLED, Reason.INTERRUPTED, "interrupted")
            return ProcessExit(job, end.exit_code, None, verdict=stopped)
        log = self._folder / f"{each.job}_0_log.out"
        return ProcessExit(job, end.exit_code, None, verdict=outcome_of_job(end, options=self._options, log=log))

    def _settle(self, each: SubmittedCell, outcome: Outcome) -> None:
        # The job is gone, and with it the one process that could write here.
        if each.run is not None:
            write_missing_end(each.run, outcome)

    def _is_worth_another_try(self, each: SubmittedCell, report: Report | None, end: JobEnd) -> bool:
        if self._interrupts.heeded or end.state == "CANCELLED" or each.num_resubmissions >= self._options.resubmissions:
            return False
        by_slurm = end.state in _STOPPED_BY_SLURM if report is None else report.was_told
        if not by_slurm or _has_done_its_work(each):
            return False
        is_time_up = end.state == "TIMEOUT" or (report is not None and report.time_was_up)
        # A run that does not get through an epoch within the limit would never get on.
        return not is_time_up or each.num_epochs > each.epochs_before

    def _submit_waiting(self, states: dict[str, str]) -> None:
        """Submit again what Slurm has stopped, once no array holds cells back: its own limit does not count these."""
        waiting = [each for each in self._open if states.get(each.job) == "PENDING" and "_" in each.job]
        while self._to_submit and not waiting and len(self._open) < self._options.array_parallelism:
            each = self._to_submit.pop(0)
            each.epochs_before = each.num_epochs
            each.num_resubmissions += 1
            each.job = self._submit_again(each)
            each.looks_in_vain = 0
            self._open.append(each)

    def _stop(self) -> None:
        self._to_submit.clear()  # their records say that they were stopped, which is how they stay
        jobs = [each.job for each in self._open]
        self._listener.stopping(at_once=self._interrupts.is_at_once)
        if self._interrupts.is_at_once:
            self._queue.kill(jobs)
            return
        self._queue.cancel(jobs)
        self._queue.signal([each.job for each in self._open if each.has_begun], "TERM")


def _as_job(each: SubmittedCell) -> Job:
    return Job(each.key, _elsewhere)


def _elsewhere() -> None:
    """Stands for what a job of Slurm's does: this process only hears of it."""


def _pid_in(note: Path) -> int | None:
    try:
        return msgspec.json.decode(note.read_bytes(), type=ProcessIdentity).pid
    except UNREADABLE:
        return None


def _has_a_record(each: SubmittedCell) -> bool:
    return each.run is not None and each.run.paths.record.exists()


def _has_done_its_work(each: SubmittedCell) -> bool:
    """Whether the run ended in its own way, just when Slurm told it to stop."""
    if each.run is None:
        return False
    try:
        status = read_record(each.run.paths).status
    except RecordError:
        return False
    return status.is_ended and status not in (Status.KILLED, Status.CRASHED)


def read_report(folder: Path, job: str) -> Report | None:
    """What a job has said at its end; None while it has said nothing."""
    try:
        kind, value = pickle.loads((folder / f"{job}_0_result.pkl").read_bytes())
    except Exception:  # it is not there, not whole, or damaged, of which unpickling may raise anything
        return None
    if isinstance(value, Report):
        return value
    text = str(value).strip() if kind == "error" else f"the job said {value!r}"
    return Report(1, Raised(text.splitlines()[-1], text), False, None)


def outcome_of_job(end: JobEnd, *, options: SlurmOptions, log: Any) -> Outcome:
    """What the end of a job makes of a run, where the job itself could not tell."""
    match end.state:
        case "TIMEOUT" | "DEADLINE":
            return Outcome(Status.KILLED, Reason.TIMEOUT, f"Slurm's time limit of {pluralize(options.time, 'minute')}")
        case "OUT_OF_MEMORY":
            asked = f" with memory_gb={options.memory_gb:g}" if options.memory_gb else ""
            return Outcome(Status.FAILED, Reason.OUT_OF_MEMORY, f"Slurm killed the job: it was out of memory{asked}")
        case "CANCELLED":
            return Outcome(Status.KILLED, Reason.INTERRUPTED, "cancelled in Slurm")
        case "PREEMPTED":
            return Outcome(Status.KILLED, Reason.INTERRUPTED, "preempted by Slurm")
    if end.signal:
        return outcome_of_exit(ProcessExit(Job(0, _elsewhere), -end.signal, None))
    if end.state == "FAILED" and end.exit_code:
        return Outcome(Status.FAILED, Reason.EXIT, f"the job ended with exit code {end.exit_code}; see {log}")
    known = f" ({end.state})" if end.state else ""
    return Outcome(Status.CRASHED, Reason.VANISHED, f"the job is gone from Slurm{known} without a word")

"""The driver's wait for its Slurm jobs: reports their starts and ends, and resubmits cells that Slurm has stopped."""

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
from runmanager.launching.slurm.job import Report, owner_note
from runmanager.launching.slurm.options import SlurmOptions
from runmanager.launching.slurm.queue import WAITING_STATES, JobEnd, SlurmQueue
from runmanager.records.files.atomic_files import read_bytes
from runmanager.records.files.file_errors import UNREADABLE
from runmanager.records.host.process import ProcessIdentity
from runmanager.records.run.status import Outcome, Reason, Status
from runmanager.records.storage.reader import read_epochs, read_record
from runmanager.records.storage.run_end import end_gone_run
from runmanager.text import pluralize

__all__ = ["SubmittedCell", "follow", "outcome_of_job", "read_report"]

_TICK_SECONDS = 0.2
# A job's report may reach this host later than its end does.
_POLLS_BEFORE_GONE = 2
# States in which Slurm, not the cell, ended a job: another try is worthwhile.
_STOPPED_BY_SLURM = ("PREEMPTED", "TIMEOUT", "NODE_FAIL", "BOOT_FAIL", "REQUEUED", "STOPPED", "SUSPENDED")


@dataclass
class SubmittedCell:
    """A submitted cell: its key in a listener, its job, and its run where the application keeps run folders."""

    key: int
    job: str
    run: PlannedRun | None
    num_resubmissions: int = 0
    has_started: bool = False
    num_polls_missing: int = 0
    epochs_before: int = 0

    @property
    def num_epochs(self) -> int:
        """The number of stored epochs of its run."""
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

    The first Ctrl-C or SIGTERM cancels jobs that have not started and lets running epochs end; the second kills all
    jobs. `folder` is where jobs write their reports; `submit_again` returns the new job.
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
        self._active: list[SubmittedCell] = []
        self._to_submit: list[SubmittedCell] = []
        self._interrupts = InterruptCounter()

    def follow(self, submitted: Sequence[SubmittedCell]) -> bool:
        self._active = list(submitted)
        for each in self._active:
            each.epochs_before = each.num_epochs
        due = 0.0
        with self._interrupts.counting():
            while self._active or self._to_submit:
                if self._interrupts.take():
                    self._stop()
                    due = 0.0
                if time.monotonic() >= due:
                    self._poll()
                    due = time.monotonic() + self._options.poll_seconds
                self._listener.tick()
                time.sleep(_TICK_SECONDS)
        return bool(self._interrupts)

    def _poll(self) -> None:
        """Query Slurm once and handle starts, ends and resubmissions."""
        states = self._queue.states(each.job for each in self._active)
        if states is None:
            return  # no answer: nothing is known about the jobs
        for each in list(self._active):
            state = states.get(each.job)
            if state is not None:
                each.num_polls_missing = 0
                if state not in WAITING_STATES:
                    self._report_start(each)
                continue
            each.num_polls_missing += 1
            report = read_report(self._folder, each.job)
            if report is not None or each.num_polls_missing >= _POLLS_BEFORE_GONE:
                self._active.remove(each)
                self._handle_gone(each, report, self._queue.end_of(each.job))
        self._submit_waiting(states)

    def _report_start(self, each: SubmittedCell, *, is_over: bool = False) -> None:
        """Report the start of a run once its job has written the run's process, or is over without having done so."""
        if each.has_started:
            return
        pid = _pid_in(owner_note(self._folder, each.job))
        if pid is None and not is_over:
            return
        each.has_started = True
        self._listener.started(_as_job(each), pid or 0)
        if self._interrupts.num_handled and not is_over:
            self._queue.signal([each.job], "TERM")  # it started just before the jobs were cancelled

    def _handle_gone(self, each: SubmittedCell, report: Report | None, end: JobEnd) -> None:
        if self._interrupts.num_handled and report is None and not each.has_started and not _has_a_record(each):
            return  # cancelled: it stays pending
        self._report_start(each, is_over=True)
        ending = self._ending(each, report, end)
        if self._should_resubmit(each, report, end):
            stopped = Outcome(Status.KILLED, Reason.INTERRUPTED, f"job {each.job} was stopped by Slurm")
            self._settle(each, stopped)
            tries = each.num_resubmissions + 1
            self._listener.retrying(ending, stopped, tries=tries, of=self._options.resubmissions + 1)
            each.has_started = False
            self._to_submit.append(each)
            return
        if ending.verdict is not None:
            self._settle(each, ending.verdict)
        self._listener.finalize(ending)
        self._listener.ended(ending)

    def _ending(self, each: SubmittedCell, report: Report | None, end: JobEnd) -> ProcessExit:
        job = _as_job(each)
        if report is not None:
            return ProcessExit(job, report.exit_code, report.answer, report.was_stopped, report.verdict)
        if self._interrupts.num_handled:
            stopped = Outcome(Status.KILLED, Reason.INTERRUPTED, "interrupted")
            return ProcessExit(job, end.exit_code, None, verdict=stopped)
        log = self._folder / f"{each.job}_0_log.out"
        return ProcessExit(job, end.exit_code, None, verdict=outcome_of_job(end, options=self._options, log=log))

    def _settle(self, each: SubmittedCell, outcome: Outcome) -> None:
        # The job is gone, and with it the one process that could write here.
        if each.run is not None:
            end_gone_run(each.run.paths, outcome, pending=each.run.pending_record())

    def _should_resubmit(self, each: SubmittedCell, report: Report | None, end: JobEnd) -> bool:
        is_stopped = self._interrupts.num_handled or end.state == "CANCELLED"
        if is_stopped or each.num_resubmissions >= self._options.resubmissions:
            return False
        by_slurm = end.state in _STOPPED_BY_SLURM if report is None else report.was_notified
        if not by_slurm or _has_finished(each):
            return False
        is_time_up = end.state == "TIMEOUT" or (report is not None and report.time_was_up)
        # A run that cannot finish an epoch within the limit would never advance.
        return not is_time_up or each.num_epochs > each.epochs_before

    def _submit_waiting(self, states: dict[str, str]) -> None:
        """Resubmit what Slurm has stopped once no array has waiting jobs: the array's limit does not count these."""
        waiting = [each for each in self._active if states.get(each.job) == "PENDING" and "_" in each.job]
        while self._to_submit and not waiting and len(self._active) < self._options.array_parallelism:
            each = self._to_submit.pop(0)
            each.epochs_before = each.num_epochs
            each.num_resubmissions += 1
            each.job = self._submit_again(each)
            each.num_polls_missing = 0
            self._active.append(each)

    def _stop(self) -> None:
        self._to_submit.clear()  # their records already say that they were stopped
        jobs = [each.job for each in self._active]
        self._listener.stopping(at_once=self._interrupts.is_immediate)
        if self._interrupts.is_immediate:
            self._queue.kill(jobs)
            return
        self._queue.cancel(jobs)
        self._queue.signal([each.job for each in self._active if each.has_started], "TERM")


def _as_job(each: SubmittedCell) -> Job:
    return Job(each.key, _remote_job)


def _remote_job() -> None:
    """Stand-in for the function of a job that runs on a node."""


def _pid_in(note: Path) -> int | None:
    try:
        return msgspec.json.decode(read_bytes(note), type=ProcessIdentity).pid
    except UNREADABLE:
        return None


def _has_a_record(each: SubmittedCell) -> bool:
    return each.run is not None and each.run.paths.record.exists()


def _has_finished(each: SubmittedCell) -> bool:
    """Whether the run ended by itself just when Slurm told it to stop."""
    if each.run is None:
        return False
    try:
        status = read_record(each.run.paths).status
    except RecordError:
        return False
    return status.is_ended and status not in (Status.KILLED, Status.CRASHED)


def read_report(folder: Path, job: str) -> Report | None:
    """Return the report that a job writes at its end; None without one."""
    try:
        kind, value = pickle.loads((folder / f"{job}_0_result.pkl").read_bytes())  # noqa: S301  # of our own job
    except Exception:  # missing, incomplete or damaged: unpickling may raise anything
        return None
    if isinstance(value, Report):
        return value
    text = str(value).strip() if kind == "error" else f"the job returned {value!r}"
    return Report(1, Raised(text.splitlines()[-1], text), False, None)


def outcome_of_job(end: JobEnd, *, options: SlurmOptions, log: Any) -> Outcome:
    """Return the outcome of a run from the end of its job, where the job wrote no report."""
    match end.state:
        case "TIMEOUT" | "DEADLINE":
            return Outcome(Status.KILLED, Reason.TIMEOUT, f"Slurm's time limit of {pluralize(options.time, 'minute')}")
        case "OUT_OF_MEMORY":
            limit = f" with memory_gb={options.memory_gb:g}" if options.memory_gb else ""
            return Outcome(Status.FAILED, Reason.OUT_OF_MEMORY, f"Slurm killed the job: it was out of memory{limit}")
        case "CANCELLED":
            return Outcome(Status.KILLED, Reason.INTERRUPTED, "cancelled in Slurm")
        case "PREEMPTED":
            return Outcome(Status.KILLED, Reason.INTERRUPTED, "preempted by Slurm")
    if end.signal:
        return outcome_of_exit(ProcessExit(Job(0, _remote_job), -end.signal, None))
    if end.state == "FAILED" and end.exit_code:
        return Outcome(Status.FAILED, Reason.EXIT, f"the job ended with exit code {end.exit_code}; see {log}")
    state = f" ({end.state})" if end.state else ""
    return Outcome(Status.CRASHED, Reason.VANISHED, f"the job is gone from Slurm{state} without a report")

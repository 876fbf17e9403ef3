"""Jobs in Slurm's queue as an engine: reports their starts and ends, and says which of them Slurm has stopped."""

import pickle
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec

from runmanager.errors import RecordError
from runmanager.launching.job_registry import jobs_folder
from runmanager.launching.local.jobs import Engine, Job, Listener, ProcessExit, outcome_of_exit
from runmanager.launching.local.worker import Raised
from runmanager.launching.plan import PlannedRun
from runmanager.launching.slurm.job import Report, SlurmRequest, owner_note
from runmanager.launching.slurm.options import SlurmOptions
from runmanager.launching.slurm.queue import JobEnd, SlurmQueue
from runmanager.records.files.atomic_files import read_bytes
from runmanager.records.files.file_errors import UNREADABLE
from runmanager.records.host.process import ProcessIdentity
from runmanager.records.run.status import Outcome, Reason, Status
from runmanager.records.storage.reader import read_epochs, read_record
from runmanager.records.storage.run_end import end_gone_run
from runmanager.text import pluralize

_TICK_SECONDS = 0.2
# A job's report may reach this host later than its end does.
_POLLS_BEFORE_GONE = 2
# States in which Slurm, not the cell, ended a job: another try is worthwhile.
_STOPPED_BY_SLURM = ("PREEMPTED", "TIMEOUT", "NODE_FAIL", "BOOT_FAIL", "REQUEUED", "STOPPED", "SUSPENDED")


@dataclass
class SubmittedCell:
    """A cell: its key in a listener, its name in the job registry, the request for its job, and its last job."""

    key: int
    name: str
    request: SlurmRequest
    job: str = ""
    has_started: bool = False
    num_polls_missing: int = 0
    epochs_before: int = 0

    @property
    def run(self) -> PlannedRun | None:
        """Its run, where the application keeps run folders."""
        return self.request.run

    @property
    def num_epochs(self) -> int:
        """The number of stored epochs of its run."""
        if self.run is None:
            return 0
        try:
            return len(read_epochs(self.run.paths))
        except RecordError:
            return 0

    @property
    def as_job(self) -> Job:
        return Job(self.key, _remote_job)

    @property
    def folder(self) -> Path:
        """Where its jobs write their reports."""
        return jobs_folder(self.request.sweep)


class SlurmJobs(Engine):
    """Jobs in Slurm's queue, which has room for all that there are: they are submitted together.

    `submit` submits cells and returns those that have a job, `submit_again` submits one that Slurm has stopped. Jobs
    that have not started are cancelled when all are to stop.
    """

    has_room = True

    def __init__(
        self,
        options: SlurmOptions,
        queue: SlurmQueue,
        *,
        submit: Callable[[Sequence[SubmittedCell]], Sequence[SubmittedCell]],
        submit_again: Callable[[SubmittedCell], None],
    ) -> None:
        self._cells: dict[int, SubmittedCell] = {}
        self._options = options
        self._queue = queue
        self._submit = submit
        self._submit_again = submit_again
        self._handed: list[SubmittedCell] = []
        self._active: list[SubmittedCell] = []
        self._has_waiting_array = False
        self._is_stopping = False
        self._due = 0.0

    def job(self, cell: SubmittedCell) -> Job:
        """Return the job of a cell that is to be submitted."""
        self._cells[cell.key] = cell
        return cell.as_job

    @property
    def is_idle(self) -> bool:
        return not (self._handed or self._active)

    def start(self, job: Job, number: int, listener: Listener) -> bool:
        """Hand a cell over, or submit it again, by itself, as soon as the limit of its array would leave it room."""
        each = self._cells[job.key]
        if number == 1:
            self._handed.append(each)
            return True
        if self._has_waiting_array or len(self._active) >= self._options.array_parallelism:
            return False
        each.epochs_before, each.num_polls_missing, each.has_started = each.num_epochs, 0, False
        self._submit_again(each)
        self._active.append(each)
        return True

    def wait(self) -> None:
        if not self._handed:
            time.sleep(_TICK_SECONDS)
            return
        submitted, self._handed = self._submit(self._handed), []
        for each in submitted:
            each.epochs_before = each.num_epochs
        self._active += submitted

    def observe(self, listener: Listener, may_retry: Callable[[Job], bool]) -> Iterator[ProcessExit]:
        """Query Slurm, if it is time to; report starts, and yield ends."""
        if time.monotonic() < self._due:
            return
        states = self._queue.states(each.job for each in self._active)
        self._due = time.monotonic() + self._options.poll_seconds
        if states is None:
            return  # no answer: nothing is known about the jobs
        self._has_waiting_array = any(states.get(each.job) == "PENDING" and "_" in each.job for each in self._active)
        for each in list(self._active):
            state = states.get(each.job)
            if state is not None:
                each.num_polls_missing = 0
                if state not in self._queue.waiting:
                    self._report_start(each, listener)
                continue
            each.num_polls_missing += 1
            report = read_report(each.folder, each.job)
            if report is not None or each.num_polls_missing >= _POLLS_BEFORE_GONE:
                self._active.remove(each)
                end = self._queue.end_of(each.job)
                if self._is_stopping and report is None and not each.has_started and not _has_a_record(each):
                    continue  # cancelled: it stays pending
                self._report_start(each, listener, is_over=True)
                yield self._ending(each, report, end, may_retry(each.as_job))

    def stop(self, *, at_once: bool) -> None:
        self._is_stopping, self._due = True, 0.0
        jobs = [each.job for each in self._active]
        if at_once:
            self._queue.kill(jobs)
            return
        self._queue.cancel(jobs)
        self._queue.signal([each.job for each in self._active if each.has_started], "TERM")

    def end(self, key: int, *, at_once: bool) -> None:
        jobs = [each.job for each in self._active if each.key == key and each.has_started]
        if at_once:
            self._queue.kill(jobs)
        else:
            self._queue.signal(jobs, "TERM")

    def _report_start(self, each: SubmittedCell, listener: Listener, *, is_over: bool = False) -> None:
        """Report the start of a run once its job has written the run's process, or is over without having done so."""
        if each.has_started:
            return
        pid = _pid_in(owner_note(each.folder, each.job))
        if pid is None and not is_over:
            return
        each.has_started = True
        listener.started(each.as_job, pid or 0)
        if self._is_stopping and not is_over:
            self._queue.signal([each.job], "TERM")  # it started just before the jobs were cancelled

    def _ending(self, each: SubmittedCell, report: Report | None, end: JobEnd, may_retry: bool) -> ProcessExit:
        displaced = None
        if may_retry and self._is_displaced(each, report, end):
            displaced = Outcome(Status.KILLED, Reason.INTERRUPTED, f"job {each.job} was stopped by Slurm")
        if report is not None:
            answer, verdict, exit_code = report.answer, report.verdict, report.exit_code
        else:
            log = each.folder / f"{each.job}_0_log.out"
            stopped = Outcome(Status.KILLED, Reason.INTERRUPTED, "interrupted")
            gone = stopped if self._is_stopping else outcome_of_job(end, options=self._options, log=log)
            answer, verdict, exit_code = None, gone, end.exit_code
        if (outcome := displaced or verdict) is not None:
            self._settle(each, outcome)
        was_stopped = report is not None and report.was_stopped
        return ProcessExit(each.as_job, exit_code, answer, was_stopped, verdict, displaced)

    def _settle(self, each: SubmittedCell, outcome: Outcome) -> None:
        # The job is gone, and with it the one process that could write here.
        if each.run is not None:
            end_gone_run(each.run.paths, outcome, pending=each.run.pending_record())

    def _is_displaced(self, each: SubmittedCell, report: Report | None, end: JobEnd) -> bool:
        """Whether Slurm, and neither the user nor the run, has ended a job that would advance when it goes on."""
        by_slurm = end.state in _STOPPED_BY_SLURM if report is None else report.was_notified
        if not by_slurm or end.state == "CANCELLED" or _has_finished(each):
            return False
        is_time_up = end.state == "TIMEOUT" or (report is not None and report.time_was_up)
        # A run that cannot finish an epoch within the limit would never advance.
        return not is_time_up or each.num_epochs > each.epochs_before


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

"""A Slurm job on its node: starts the run in a new process, watches it, and reports how it ended."""

import contextlib
import importlib
import os
import signal
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from types import FrameType
from typing import Any

import msgspec

from runmanager.errors import RecordError
from runmanager.launching.job_registry import jobs_folder
from runmanager.launching.local.engine import LocalEngine
from runmanager.launching.local.jobs import Job, Limits, Listener, ProcessExit, outcome_of_exit
from runmanager.launching.local.multiprocessing_internals import start_forkserver
from runmanager.launching.local.worker import RESUMES_VARIABLE, Raised, Returned, do_sent_work
from runmanager.launching.plan import PlannedRun
from runmanager.launching.slurm.queue import SlurmQueue
from runmanager.records.files.atomic_files import read_bytes, replace_file
from runmanager.records.files.file_errors import UNREADABLE
from runmanager.records.files.paths import SweepPaths
from runmanager.records.host.process import ProcessIdentity
from runmanager.records.host.standard_streams import print_line
from runmanager.records.run.status import Outcome, Reason, Status
from runmanager.records.storage.reader import read_record
from runmanager.records.storage.run_end import ON_REQUEST, end_gone_run, note_stop
from runmanager.text import pluralize

# Sent by Slurm, as requested, when a job's time is nearly up. Slurm sends each signal to every process of a job.
_TIME_SIGNALS = (signal.SIGUSR1, signal.SIGUSR2)
_STOP_SIGNALS = (signal.SIGTERM, *_TIME_SIGNALS)


@dataclass(frozen=True)
class SlurmRequest:
    """The request for a job: the pickled `Work` of its run's process, and the driver's state.

    `processes` is the number of its ranks. `run` is None for an application without run folders; with them `when_ended`
    (`module:name`) is called with the sweep's paths where no driver waits (`is_detached`).
    """

    work: bytes
    driver_state: Mapping[str, Any]
    environment: Mapping[str, str]
    sweep: SweepPaths
    run: PlannedRun | None
    limits: Limits
    time_limit_minutes: int
    is_resumed: bool
    is_detached: bool
    processes: int = 1
    when_ended: str | None = None


@dataclass(frozen=True)
class Report:
    """How the process of a run ended, as its supervisor saw it.

    `was_notified` is whether Slurm had signalled the job to end, `time_was_up` whether because its time was nearly up.
    """

    exit_code: int
    answer: Returned | Raised | None
    was_stopped: bool
    verdict: Outcome | None
    was_notified: bool = False
    time_was_up: bool = False


class _Supervisor(Listener):
    """Listener that writes the run's process identity, forwards Slurm's signal to the engine, and keeps the ending."""

    def __init__(self, request: SlurmRequest, note: Path) -> None:
        self.ending: ProcessExit | None = None
        self.pid: int | None = None
        self.was_notified = False
        self.time_is_up = False
        self._request = request
        self._note = note

    @property
    def time_limit(self) -> Outcome:
        """The outcome of a run that was stopped as the time of its job was up."""
        message = f"stopped before Slurm's time limit of {pluralize(self._request.time_limit_minutes, 'minute')}"
        return Outcome(Status.KILLED, Reason.TIMEOUT, message)

    def started(self, job: Job, pid: int) -> None:
        self.pid = pid
        # Read by the requeued job, maybe on another node, which cannot see whether this process lives.
        identity = ProcessIdentity.of(pid)
        if identity is not None:
            replace_file(self._note, msgspec.json.encode(identity))
        self._forward_first(signal.getsignal(signal.SIGTERM))

    def _forward_first(self, engine_handler: Any) -> None:
        """Forward Slurm's first signal to the engine and ignore the others.

        Slurm sends each signal twice or more, and the second SIGTERM would make the engine kill the run immediately.
        """

        def handle(number: int, frame: FrameType | None) -> None:
            for each in _STOP_SIGNALS:
                signal.signal(each, signal.SIG_IGN)
            self.was_notified = True
            self.time_is_up = number in _TIME_SIGNALS
            self._note_stop()
            engine_handler(signal.SIGTERM, frame)

        for each in _STOP_SIGNALS:
            signal.signal(each, handle)

    def _note_stop(self) -> None:
        if self._request.run is None:
            return
        with contextlib.suppress(RecordError):
            record = read_record(self._request.run.paths)
            if record.owner is not None and record.owner.pid == self.pid:
                note_stop(self._request.run.paths, record.attempt, self.time_limit if self.time_is_up else ON_REQUEST)

    def ended(self, ending: ProcessExit) -> None:
        # Also of a run that could not begin before its time was up.
        verdict = ending.verdict or (self.time_limit if self.time_is_up else None)
        self.ending = replace(ending, verdict=verdict)


def run_slurm_job(request: SlurmRequest) -> Report:
    """Run the task and report how it ended. Called by submitit on the node, in the main thread of the job."""
    os.environ.update(request.environment)
    os.chdir(request.driver_state["dir"])
    job = _job_name()
    note = owner_note(jobs_folder(request.sweep), job)
    is_resumed = request.is_resumed or note.exists()
    if request.run is not None and note.exists():
        _end_earlier(request.run, note)
    if is_resumed:
        os.environ[RESUMES_VARIABLE] = "1"
    cores = os.environ.get("SLURM_CPUS_PER_TASK")
    if cores:
        os.environ.setdefault("OMP_NUM_THREADS", cores)
    supervisor = _Supervisor(request, note)
    report = _supervise(request, supervisor)
    if request.run is not None:
        _write_end(request, supervisor, report)
        if request.is_detached:
            _finish_detached(request, job, report)
    return report


def owner_note(folder: Path, job: str) -> Path:
    """Return the file in which a job writes the `ProcessIdentity` of its run."""
    return folder / f"{job}_owner.json"


def _job_name() -> str:
    array = os.environ.get("SLURM_ARRAY_JOB_ID")
    return f"{array}_{os.environ['SLURM_ARRAY_TASK_ID']}" if array else os.environ["SLURM_JOB_ID"]


def _supervise(request: SlurmRequest, supervisor: _Supervisor) -> Report:
    engine = LocalEngine()  # nothing preloaded: it starts one process only
    for number in _TIME_SIGNALS:
        signal.signal(number, signal.SIG_IGN)  # until there is a run to stop
    with _ignoring(signal.SIGTERM):
        start_forkserver()  # it and its children inherit this
    engine.run([Job(0, do_sent_work, (request.driver_state, request.work), limits=request.limits)], supervisor)
    ending = supervisor.ending
    if ending is None:  # stopped before it started
        stopped = Outcome(Status.KILLED, Reason.INTERRUPTED, "stopped by Slurm before it began")
        return Report(0, None, True, stopped, was_notified=True, time_was_up=supervisor.time_is_up)
    return Report(
        ending.exit_code,
        ending.answer,
        ending.was_stopped,
        ending.verdict,
        was_notified=supervisor.was_notified,
        time_was_up=supervisor.time_is_up,
    )


@contextlib.contextmanager
def _ignoring(number: signal.Signals) -> Iterator[None]:
    earlier = signal.signal(number, signal.SIG_IGN)
    try:
        yield
    finally:
        signal.signal(number, earlier)


def _end_earlier(run: PlannedRun, note: Path) -> None:
    """Write the end of the run of this job from before Slurm requeued it."""
    try:
        earlier = msgspec.json.decode(read_bytes(note), type=ProcessIdentity)
        record = read_record(run.paths)
    except (RecordError, *UNREADABLE):
        return
    if record.owner == earlier:
        requeued = Outcome(Status.KILLED, Reason.INTERRUPTED, "put back into the queue by Slurm")
        end_gone_run(run.paths, requeued, pending=run.pending_record())


def _write_end(request: SlurmRequest, supervisor: _Supervisor, report: Report) -> None:
    """Write the end of the run into its record where its process could not, unless it is another job's run."""
    assert request.run is not None
    paths = request.run.paths
    try:
        owner = read_record(paths).owner
    except RecordError:
        owner = None
    if owner is not None and owner.pid != supervisor.pid:
        return  # another job's run: this job came too late
    ending = ProcessExit(Job(0, do_sent_work), report.exit_code, report.answer, report.was_stopped, report.verdict)
    end_gone_run(paths, outcome_of_exit(ending), pending=request.run.pending_record())
    if isinstance(report.answer, Raised):
        replace_file(paths.error, report.answer.traceback)


def _finish_detached(request: SlurmRequest, job: str, report: Report) -> None:
    """Do what a waiting driver would do: write the tables, and requeue a job that Slurm has stopped."""
    assert request.run is not None
    if request.when_ended is not None:
        module, _, name = request.when_ended.partition(":")
        getattr(importlib.import_module(module), name)(request.sweep)
    if not report.was_notified or read_record(request.run.paths).status is not Status.KILLED:
        return
    queue = SlurmQueue()
    # A job that the user has cancelled has another state by now, and must not be requeued.
    if queue.end_of(job).state == "RUNNING" and not queue.requeue(job):
        print_line(f"job {job} could not be put back into the queue; run the same command again", sys.stderr)

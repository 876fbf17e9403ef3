"""What a job of Slurm's does on its node: it starts the run in a process of its own, and sees how that ends."""

import contextlib
import importlib
import os
import pickle
import signal
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from types import FrameType
from typing import Any

import msgspec

from runmanager.errors import RecordError
from runmanager.launching.hydra_job import run_hydra_job
from runmanager.launching.local.engine import Job, Listener, LocalEngine, ProcessExit
from runmanager.launching.local.jobs import outcome_of_exit
from runmanager.launching.local.multiprocessing_internals import restore_interpreter_state, start_forkserver
from runmanager.launching.local.time_limits import Limits
from runmanager.launching.local.worker import RESUMES_VARIABLE, Raised, Returned
from runmanager.launching.plan import PlannedRun
from runmanager.launching.run_end import write_missing_end
from runmanager.launching.slurm.queue import SlurmQueue
from runmanager.records.files.atomic_files import replace_file
from runmanager.records.files.damaged_files import UNREADABLE
from runmanager.records.files.paths import SweepPaths
from runmanager.records.host.process import ProcessIdentity
from runmanager.records.run.status import Outcome, Reason, Status
from runmanager.records.storage.reader import read_record
from runmanager.records.storage.versioned_file import encode_record
from runmanager.text import pluralize

__all__ = ["Report", "SlurmRequest", "owner_note", "run_slurm_job"]

# What Slurm sends when a job's time is nearly up, as it is told to. It sends everything to every process of a job.
_NOTICES = (signal.SIGUSR1, signal.SIGUSR2)
_WORDS = (signal.SIGTERM, *_NOTICES)


@dataclass(frozen=True)
class SlurmRequest:
    """What a job is to do: the pickled (module, qualified name, configuration) of a task, and the driver's world.

    `run` is there for an application that keeps run folders; `when_ended` (`module:name`) is then called with the
    sweep's paths, for a driver that does not wait.
    """

    task: bytes
    world: Mapping[str, Any]
    environment: Mapping[str, str]
    sweep: SweepPaths
    run: PlannedRun | None
    limits: Limits
    time_limit_minutes: int
    goes_on: bool
    is_detached: bool
    when_ended: str | None = None


@dataclass(frozen=True)
class Report:
    """How a run's process ended, as seen from beside it.

    `was_told` is whether Slurm had told the job to end, `time_was_up` whether because its time was nearly up.
    """

    exit_code: int
    answer: Returned | Raised | None
    was_stopped: bool
    verdict: Outcome | None
    was_told: bool = False
    time_was_up: bool = False


class _Overseer(Listener):
    """Stands beside the run's process: notes whose it is, hears what Slurm says, and sees how it ends."""

    def __init__(self, note: Path) -> None:
        self.ending: ProcessExit | None = None
        self.pid: int | None = None
        self.was_told = False
        self.time_is_up = False
        self._note = note

    def started(self, job: Job, pid: int) -> None:
        self.pid = pid
        # Read by this job's next incarnation, maybe on another node, which cannot see whether this one lives.
        identity = ProcessIdentity.of(pid)
        if identity is not None:
            replace_file(self._note, msgspec.json.encode(identity))
        self._hear_once(signal.getsignal(signal.SIGTERM))

    def _hear_once(self, engine_hears: Any) -> None:
        """Hand the first word of Slurm's on to the engine, and be deaf to the others.

        Slurm says everything twice or more often, and the second SIGTERM would make the engine kill the run at once.
        """

        def hear(number: int, frame: FrameType | None) -> None:
            for each in _WORDS:
                signal.signal(each, signal.SIG_IGN)
            self.was_told = True
            self.time_is_up = number in _NOTICES
            engine_hears(signal.SIGTERM, frame)

        for each in _WORDS:
            signal.signal(each, hear)

    def ended(self, ending: ProcessExit) -> None:
        self.ending = ending


def run_slurm_job(request: SlurmRequest) -> Report:
    """Run the task and say how it ended. Called by submitit on the node, in the main thread of the job's process."""
    os.environ.update(request.environment)
    os.chdir(request.world["dir"])
    job = _job_name()
    note = owner_note(request.sweep.slurm, job)
    goes_on = request.goes_on or note.exists()
    if request.run is not None and note.exists():
        _end_earlier(request.run, note)
    if goes_on:
        os.environ[RESUMES_VARIABLE] = "1"
    cores = os.environ.get("SLURM_CPUS_PER_TASK")
    if cores:
        os.environ.setdefault("OMP_NUM_THREADS", cores)
    overseer = _Overseer(note)
    report = _oversee(request, overseer)
    if request.run is not None:
        _settle(request, overseer, report)
        if request.is_detached:
            _look_after(request, job, report)
    return report


def owner_note(folder: Path, job: str) -> Path:
    """Where a job notes the process of its run: a `ProcessIdentity`."""
    return folder / f"{job}_owner.json"


def _job_name() -> str:
    array = os.environ.get("SLURM_ARRAY_JOB_ID")
    return f"{array}_{os.environ['SLURM_ARRAY_TASK_ID']}" if array else os.environ["SLURM_JOB_ID"]


def _oversee(request: SlurmRequest, overseer: _Overseer) -> Report:
    engine = LocalEngine()  # nothing preloaded: it starts one process only
    for number in _NOTICES:
        signal.signal(number, signal.SIG_IGN)  # until there is a run that could be told
    with _deaf(signal.SIGTERM):
        start_forkserver()  # deaf by inheritance, it and all its children
    engine.run([Job(0, _in_own_process, (request.world, request.task), limits=request.limits)], overseer)
    ending = overseer.ending
    if ending is None:  # told to end before it began
        stopped = Outcome(Status.KILLED, Reason.INTERRUPTED, "stopped by Slurm before it began")
        return Report(0, None, True, stopped, was_told=True, time_was_up=overseer.time_is_up)
    return Report(
        ending.exit_code,
        ending.answer,
        ending.was_stopped,
        ending.verdict,
        was_told=overseer.was_told,
        time_was_up=overseer.time_is_up,
    )


@contextlib.contextmanager
def _deaf(number: signal.Signals) -> Iterator[None]:
    earlier = signal.signal(number, signal.SIG_IGN)
    try:
        yield
    finally:
        signal.signal(number, earlier)


def _in_own_process(world: Mapping[str, Any], task: bytes) -> Any:
    """In the run's own process: stand where the driver stood, and run the task as Hydra does."""
    os.register_at_fork(after_in_child=_block_termination)
    signal.signal(signal.SIGTERM, signal.SIG_DFL)  # deaf by inheritance; the task may listen
    restore_interpreter_state(world)
    module, name, config = pickle.loads(task)
    return run_hydra_job(module, name, config)


def _block_termination() -> None:
    # torch gives a loader's workers a handler that lets them die of a SIGTERM that is not their parent's, and the run
    # would fail of that where it is to end after its epoch. When the run is over, its whole group is killed.
    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGTERM})


def _end_earlier(run: PlannedRun, note: Path) -> None:
    """Write the end of this same job's earlier incarnation: Slurm has put the job back into its queue meanwhile."""
    try:
        earlier = msgspec.json.decode(note.read_bytes(), type=ProcessIdentity)
        record = read_record(run.paths)
    except (RecordError, *UNREADABLE):
        return
    if record.owner == earlier:
        write_missing_end(run, Outcome(Status.KILLED, Reason.INTERRUPTED, "put back into the queue by Slurm"))


def _settle(request: SlurmRequest, overseer: _Overseer, report: Report) -> None:
    """See that the run's record tells how it ended, if it is this job's run."""
    assert request.run is not None
    paths = request.run.paths
    try:
        owner = read_record(paths).owner
    except RecordError:
        owner = None
    if owner is not None and owner.pid != overseer.pid:
        return  # somebody else's run: this job came too late
    ending = ProcessExit(Job(0, _in_own_process), report.exit_code, report.answer, report.was_stopped, report.verdict)
    write_missing_end(request.run, outcome_of_exit(ending))
    if isinstance(report.answer, Raised):
        replace_file(paths.error, report.answer.traceback)
    record = read_record(paths)
    if overseer.time_is_up and record.status is Status.KILLED and record.reason is Reason.INTERRUPTED:
        message = f"stopped before Slurm's time limit of {pluralize(request.time_limit_minutes, 'minute')}"
        outcome = Outcome(Status.KILLED, Reason.TIMEOUT, message)
        replace_file(paths.record, encode_record(record.ended(outcome, at=record.ended_at)))


def _look_after(request: SlurmRequest, job: str, report: Report) -> None:
    """What else the driver would do, had it waited: the tables, and the cell's way back into the queue."""
    assert request.run is not None
    if request.when_ended is not None:
        module, _, name = request.when_ended.partition(":")
        getattr(importlib.import_module(module), name)(request.sweep)
    if not report.was_told or read_record(request.run.paths).status is not Status.KILLED:
        return
    queue = SlurmQueue()
    # A job that the user has cancelled reads otherwise by now, and is to stay away.
    if queue.end_of(job).state == "RUNNING" and not queue.requeue(job):
        print(f"job {job} could not be put back into the queue; run the same command again", file=sys.stderr)

"""The local engine: runs each job in a new process, several at a time, and reports how each ended."""

import contextlib
import os
import pickle
import re
import signal
import time
import traceback
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import partial
from multiprocessing import connection
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

from runmanager.launching.local.forkserver import ProcessStarter, StartedProcess, kill_group
from runmanager.launching.local.gpus import EVERY_GPU, GpuSlots, Lease
from runmanager.launching.local.interrupt_counter import InterruptCounter
from runmanager.launching.local.jobs import Job, Listener, ProcessExit
from runmanager.launching.local.time_limits import LimitWatch
from runmanager.launching.local.turns import Turns
from runmanager.launching.local.worker import Raised, Request, Returned
from runmanager.launching.options import RETRIED
from runmanager.records.host.gpus import VISIBLE_VARIABLE
from runmanager.records.host.process import usable_cores
from runmanager.records.run.status import Outcome, Reason, Status

__all__ = ["Job", "Listener", "LocalEngine", "ProcessExit", "Retries", "call_in_process"]

# Variables of Slurm and MPI that say which of several tasks the driver is.
_TASK_OF_DRIVER = re.compile(
    r"SLURM_(?:PROCID|LOCALID|NODEID|NPROCS|NTASKS\w*|(?:STEP_)?TASKS_PER_NODE|STEP_NUM_TASKS|TASK_PID|GTIDS)"
    r"|PMI\w?_.*|(?:OMPI|MV2)_COMM_WORLD_.*"
)
_TICK_SECONDS = 0.2
_EXIT_TIMEOUT = 30.0
_MAX_WAITING = 1000  # jobs that wait for a GPU while a later one may start


@dataclass(frozen=True)
class Retries:
    """The number of further tries of a job that ended for one of `reasons`."""

    times: int = 0
    reasons: tuple[str, ...] = RETRIED


@dataclass(frozen=True)
class _Try:
    """A job and the number of this try of it, from 1."""

    job: Job
    number: int = 1


class _JobQueue:
    """Takes each of `jobs` only when there is room for it."""

    def __init__(self, jobs: Iterable[Job], slots: GpuSlots) -> None:
        self._jobs = iter(jobs)
        self._slots = slots
        self._waiting: list[_Try] = []

    def take(self) -> tuple[_Try, Lease] | None:
        """Return the next job that may start now, with its GPU slots; None if there is none."""
        for index, each in enumerate(self._waiting):
            lease = self._lease(each)
            if lease is not None:
                del self._waiting[index]
                return each, lease
        while len(self._waiting) < _MAX_WAITING:
            job = next(self._jobs, None)
            if job is None:
                return None
            lease = self._lease(_Try(job))
            if lease is not None:
                return _Try(job), lease
            self._waiting.append(_Try(job))
        return None

    def put_back(self, ended: _Try) -> None:
        """Queue a job for its next try, before all jobs that have not started."""
        self._waiting.insert(0, _Try(ended.job, ended.number + 1))

    def _lease(self, each: _Try) -> Lease | None:
        return Lease() if each.job.gpus is None else self._slots.take(each.job.gpus)


@dataclass
class _Child:
    task: _Try
    lease: Lease
    started: StartedProcess
    watch: LimitWatch
    answer: Returned | Raised | None = None
    answered_at: float = 0.0
    is_pipe_closed: bool = False  # at the process's end: no answer will come
    verdict: Outcome | None = None
    was_stopped: bool = False

    @property
    def process(self) -> Any:
        return self.started.process

    @property
    def pipe(self) -> Connection:
        return self.started.pipe


class LocalEngine:
    """Runs jobs on this machine, `workers` at a time, each in a process forked from one that has imported `preload`.

    After the first Ctrl-C or SIGTERM no job starts, and the running ones get SIGTERM and may finish their epoch; the
    second kills them. They die when the driver dies, however it dies. `slots` are the GPU slots. With `stop_on_error`
    no job starts after the first that did not succeed and is not tried again. A process that has answered but does not
    exit, held up by a thread or a loader's worker, is killed after `exit_timeout` seconds; its answer stands. With
    `turns` all jobs live together, and only one at a time uses the machine. `threads` are those of a job.
    """

    def __init__(
        self,
        *,
        workers: int = 1,
        preload: Sequence[str] = (),
        slots: GpuSlots | None = None,
        retries: Retries | None = None,
        stop_on_error: bool = False,
        turns: Turns | None = None,
        threads: int | None = None,
        exit_timeout: float = _EXIT_TIMEOUT,
    ) -> None:
        self._workers = workers
        self._turns = turns or Turns()
        self._num_working = workers if turns is None else 1  # jobs that use the machine at a time
        self._given_threads = threads
        self._exit_timeout = exit_timeout
        self._slots = slots or GpuSlots()
        self._retries = retries or Retries()
        self._stop_on_error = stop_on_error
        self._starter = ProcessStarter(preload=preload, environment=_server_environment(self._num_working))
        self._interrupts = InterruptCounter()
        self._is_halted = False

    def get_ready(self, *, num_jobs: int) -> None:
        """Start to import what jobs need, if that has not started; else the first job of `run` waits for it."""
        self._starter.get_ready(num_jobs=num_jobs)

    @property
    def was_interrupted(self) -> bool:
        """Whether the user asked to stop."""
        return bool(self._interrupts)

    def run(self, jobs: Iterable[Job], listener: Listener) -> None:
        """Run all jobs until the last has ended, taking each from `jobs` only when there is room for it."""
        queue = _JobQueue(jobs, self._slots)
        children: list[_Child] = []
        self._is_halted = False
        with self._interrupts.counting():
            try:
                while True:
                    self._fill(children, queue, listener)
                    if not children:
                        return
                    self._wait(children)
                    self._handle_interrupts(children, listener)
                    self._enforce_limits(children)
                    for child in [child for child in children if child.process.exitcode is not None]:
                        children.remove(child)
                        self._end(child, queue, listener)
                    listener.tick()
            finally:
                for child in children:
                    _kill(child)
                    self._reap(child)

    def _fill(self, children: list[_Child], queue: _JobQueue, listener: Listener) -> None:
        while len(children) < self._workers and not self._interrupts and not self._is_halted:
            taken = queue.take()
            if taken is None:
                return
            task, lease = taken
            try:
                children.append(self._start(task, lease))
            except BaseException:
                self._slots.release(lease)
                raise
            listener.started(task.job, children[-1].process.pid)

    def _start(self, task: _Try, lease: Lease) -> _Child:
        job, turns = task.job, self._turns
        client = turns.add(job.key)
        try:
            request = Request(
                function=job.function,
                arguments=job.arguments if job.prepare is None else job.prepare(task.number),
                environment=_environment(lease),
                folder=str(Path.cwd()),
                threads=self._threads(),
                turns=client,
            )
            started = self._starter.start(request)
            turns.started()
        except BaseException:
            turns.remove(job.key)
            raise
        finally:
            if client is not None:
                client.close()
        return _Child(task, lease, started, LimitWatch(job.limits, clock=partial(turns.clock, job.key)))

    def _enforce_limits(self, children: Sequence[_Child]) -> None:
        for child in children:
            if child.verdict is not None or child.process.exitcode is not None:
                continue
            if child.answer is None:
                child.verdict = child.watch.verdict()
                if child.verdict is not None:
                    _kill(child)
            elif time.monotonic() - child.answered_at >= self._exit_timeout:
                _kill(child)

    def _end(self, child: _Child, queue: _JobQueue, listener: Listener) -> None:
        ending = self._reap(child)
        listener.finalize(ending)
        outcome = listener.outcome(ending)
        number, times = child.task.number, self._retries.times
        if number <= times and outcome.reason in self._retries.reasons and not (self._interrupts or self._is_halted):
            listener.retrying(ending, outcome, tries=number, of=times + 1)
            queue.put_back(child.task)
            return
        listener.ended(ending)
        if self._stop_on_error and not outcome.status.is_success and not (self._interrupts or self._is_halted):
            self._is_halted = True
            listener.halted()

    def _threads(self) -> int:
        """Return the number of threads per job: the given one, OMP_NUM_THREADS, or an equal share of the cores."""
        if self._given_threads is not None:
            return self._given_threads
        given = os.environ.get("OMP_NUM_THREADS", "")
        return int(given) if given.isdigit() and int(given) > 0 else max(1, usable_cores() // self._num_working)

    def _wait(self, children: Sequence[_Child]) -> None:
        watched: list[Any] = [child.process.sentinel for child in children]
        watched += [child.pipe for child in children if child.answer is None and not child.is_pipe_closed]
        ready = self._wait_for_any(watched)
        for child in children:
            if child.pipe in ready:
                _receive_answer(child)
            if child.process.sentinel in ready:
                child.process.join()

    def _wait_for_any(self, watched: Sequence[Any]) -> Sequence[Any]:
        """Return those of `watched` that are ready, none after a tick. Grants turns meanwhile."""
        deadline = time.monotonic() + _TICK_SECONDS
        while True:
            readable = connection.wait([*watched, *self._turns.pipes], timeout=max(0.0, deadline - time.monotonic()))
            self._turns.receive(readable)
            ready = [each for each in watched if each in readable]
            if ready or not readable or time.monotonic() >= deadline:
                return ready

    def _reap(self, child: _Child) -> ProcessExit:
        child.process.join()
        if child.answer is None and not child.is_pipe_closed and child.pipe.poll():
            _receive_answer(child)
        child.pipe.close()
        if child.started.is_lost() and child.verdict is None:
            child.verdict = Outcome(Status.CRASHED, Reason.VANISHED, "the process that had started it was killed")
        kill_group(child.process.pid)  # what the run may have left, as a loader's workers
        self._turns.remove(child.task.job.key)
        self._slots.release(child.lease)
        ending = ProcessExit(
            child.task.job,
            child.process.exitcode,
            child.answer,
            was_stopped=child.was_stopped and not isinstance(child.answer, Returned),
            verdict=child.verdict,
        )
        child.process.close()
        return ending

    def _handle_interrupts(self, children: Sequence[_Child], listener: Listener) -> None:
        if not self._interrupts.take():
            return
        at_once = self._interrupts.is_immediate
        listener.stopping(at_once=at_once)
        for child in children:
            child.was_stopped = True
            if at_once:
                _kill(child)
            elif child.process.exitcode is None:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(child.process.pid, signal.SIGTERM)


class _EndingListener(Listener):
    ending: ProcessExit | None = None

    def ended(self, ending: ProcessExit) -> None:
        self.ending = ending


def call_in_process(engine: LocalEngine, function: Callable[..., Any], *arguments: Any) -> ProcessExit:
    """Call a function in a new process and wait for its end; its output goes where the driver's goes.

    Raises `KeyboardInterrupt` if the user asked to stop.
    """
    listener = _EndingListener()
    engine.run([Job(-1, function, arguments, gpus=EVERY_GPU)], listener)
    if listener.ending is None or engine.was_interrupted:
        raise KeyboardInterrupt
    return listener.ending


def _server_environment(workers: int) -> dict[str, str]:
    # OpenMP reads this when torch is imported. By default its threads spin while they wait, and take the cores from
    # other runs, which then crawl. Passive waiting costs a run on a quiet machine a little, so one worker keeps the
    # default.
    return {"OMP_WAIT_POLICY": "passive"} if workers > 1 and "OMP_WAIT_POLICY" not in os.environ else {}


def _environment(lease: Lease) -> dict[str, str]:
    # A job is a program of its own: as the driver's task, one of several, it would take itself for one of their ranks.
    variables = {name: value for name, value in os.environ.items() if not _TASK_OF_DRIVER.fullmatch(name)}
    return variables if lease.visible is None else {**variables, VISIBLE_VARIABLE: lease.visible}


def _receive_answer(child: _Child) -> None:
    try:
        data = child.pipe.recv_bytes()
    except (EOFError, OSError):
        child.is_pipe_closed = True  # it died before it sent its answer, or while it did
        return
    try:
        child.answer = pickle.loads(data)  # noqa: S301  # from the run's own process
    except Exception as error:
        child.answer = Raised(f"the result cannot be read: {type(error).__name__}: {error}", traceback.format_exc())
    child.answered_at = time.monotonic()


def _kill(child: _Child) -> None:
    kill_group(child.process.pid)
    with contextlib.suppress(ProcessLookupError, ValueError):
        child.process.kill()

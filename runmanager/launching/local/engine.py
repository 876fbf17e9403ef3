"""The local engine: runs each job in a new process, several at a time, and reports how each ended."""

import contextlib
import os
import pickle
import signal
import time
import traceback
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from multiprocessing import connection
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

from runmanager.launching.local.forkserver import ProcessStarter, StartedProcess, kill_group
from runmanager.launching.local.gpus import EVERY_GPU, GpuSlots, Lease
from runmanager.launching.local.jobs import Engine, Job, LimitWatch, Listener, ProcessExit
from runmanager.launching.local.turns import Turns
from runmanager.launching.local.worker import Raised, Request, Returned
from runmanager.records.host.gpus import visibility
from runmanager.records.host.process import OF_TASK, usable_cores
from runmanager.records.run.status import Outcome, Reason, Status

_TICK_SECONDS = 0.2
_EXIT_TIMEOUT = 30.0


@dataclass
class _Child:
    job: Job
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


class LocalEngine(Engine):
    """Runs jobs on this machine, `workers` at a time, each in a process forked from one that has imported `preload`.

    A job that is to stop gets SIGTERM. All die when the driver dies, however it dies. `slots` are the GPU slots. A
    process that has answered but does not exit, held up by a thread or a loader's worker, is killed after
    `exit_timeout` seconds; its answer stands. With `turns` all jobs live together, and only one at a time uses the
    machine. `threads` are those of a job.
    """

    def __init__(
        self,
        *,
        workers: int = 1,
        preload: Sequence[str] = (),
        slots: GpuSlots | None = None,
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
        self._starter = ProcessStarter(preload=preload, environment=_server_environment(self._num_working))
        self._children: list[_Child] = []

    def get_ready(self, *, num_jobs: int) -> None:
        """Start to import what jobs need, if that has not started; else the first job of `run` waits for it."""
        self._starter.get_ready(num_jobs=num_jobs)

    @property
    def has_room(self) -> bool:
        return len(self._children) < self._workers

    @property
    def is_idle(self) -> bool:
        return not self._children

    def start(self, job: Job, number: int, listener: Listener) -> bool:
        lease = Lease() if job.gpus is None else self._slots.take(job.gpus)
        if lease is None:
            return False
        try:
            child = self._start(job, number, lease)
        except BaseException:
            self._slots.release(lease)
            raise
        self._children.append(child)
        listener.started(job, child.process.pid)
        return True

    def observe(self, listener: Listener, may_retry: Callable[[Job], bool]) -> Iterator[ProcessExit]:
        self._enforce_limits()
        for child in [child for child in self._children if child.process.exitcode is not None]:
            self._children.remove(child)
            yield self._reap(child)

    def close(self) -> None:
        while self._children:
            child = self._children.pop()
            _kill(child)
            self._reap(child)

    def _start(self, job: Job, number: int, lease: Lease) -> _Child:
        turns = self._turns
        client = turns.add(job.key)
        try:
            request = Request(
                function=job.function,
                arguments=job.arguments if job.prepare is None else job.prepare(number),
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
        return _Child(job, lease, started, LimitWatch(job.limits, clock=partial(turns.clock, job.key)))

    def _enforce_limits(self) -> None:
        for child in self._children:
            if child.verdict is not None or child.process.exitcode is not None:
                continue
            if child.answer is None:
                child.verdict = child.watch.verdict()
                if child.verdict is not None:
                    _kill(child)
            elif time.monotonic() - child.answered_at >= self._exit_timeout:
                _kill(child)

    def _threads(self) -> int:
        """Return the number of threads per job: the given one, OMP_NUM_THREADS, or an equal share of the cores."""
        if self._given_threads is not None:
            return self._given_threads
        given = os.environ.get("OMP_NUM_THREADS", "")
        return int(given) if given.isdigit() and int(given) > 0 else max(1, usable_cores() // self._num_working)

    def wait(self) -> None:
        watched: list[Any] = [child.process.sentinel for child in self._children]
        watched += [child.pipe for child in self._children if child.answer is None and not child.is_pipe_closed]
        ready = self._wait_for_any(watched)
        for child in self._children:
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
        self._turns.remove(child.job.key)
        self._slots.release(child.lease)
        ending = ProcessExit(
            child.job,
            child.process.exitcode,
            child.answer,
            was_stopped=child.was_stopped and not isinstance(child.answer, Returned),
            verdict=child.verdict,
        )
        child.process.close()
        return ending

    def stop(self, *, at_once: bool) -> None:
        for child in self._children:
            self.end(child.job.key, at_once=at_once)

    def end(self, key: int, *, at_once: bool) -> None:
        for child in self._children:
            if child.job.key != key:
                continue
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
    was_interrupted = engine.run([Job(-1, function, arguments, gpus=EVERY_GPU)], listener)
    if listener.ending is None or was_interrupted:
        raise KeyboardInterrupt
    return listener.ending


def _server_environment(workers: int) -> dict[str, str]:
    # OpenMP reads this when torch is imported. By default its threads spin while they wait, and take the cores from
    # other runs, which then crawl. Passive waiting costs a run on a quiet machine a little, so one worker keeps the
    # default.
    return {"OMP_WAIT_POLICY": "passive"} if workers > 1 and "OMP_WAIT_POLICY" not in os.environ else {}


def _environment(lease: Lease) -> dict[str, str]:
    # A job is a program of its own: as the driver's task, one of several, it would take itself for one of their ranks.
    variables = {name: value for name, value in os.environ.items() if not OF_TASK.fullmatch(name)}
    return variables if lease.visible is None else {**variables, **visibility(lease.visible)}


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

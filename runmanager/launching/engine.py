"""The local engine: each job in a fresh process, so many at once, and a truthful word on how each ended."""

import contextlib
import multiprocessing
import os
import pickle
import signal
import sys
import threading
import time
import traceback
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from multiprocessing import connection
from multiprocessing.connection import Connection
from pathlib import Path
from types import FrameType
from typing import Any

from runmanager.launching.child import PRELOAD_VARIABLE, Raised, Request, Returned, child_main
from runmanager.records.states import Outcome

__all__ = ["Ending", "Job", "Listener", "LocalEngine", "usable_cores"]

_TICK_SECONDS = 0.2
_START_TRIES = 10


@dataclass(frozen=True)
class Job:
    """A function that can be pickled, and what to call it with; `key` tells it apart in a listener."""

    key: int
    function: Callable[..., Any]
    arguments: tuple[Any, ...] = ()


@dataclass(frozen=True)
class Ending:
    """How a job's process ended.

    `answer` is what it said itself, None if it could not: then `exit_code` tells, negative for a signal.
    `was_stopped` is True if it ended because the engine was told to end everything at once. `verdict` is what a
    launcher knows that these cannot tell.
    """

    job: Job
    exit_code: int
    answer: Returned | Raised | None
    was_stopped: bool = False
    verdict: Outcome | None = None


class Listener:
    """Is told what happens, in the driver's main thread; does nothing unless told otherwise."""

    def wants(self, key: int) -> bool:
        """Whether the job of this key, whose turn it is, is to be run at all."""
        return True

    def started(self, job: Job, pid: int) -> None:
        """A job's process has started."""

    def ended(self, ending: Ending) -> None:
        """A job's process is gone."""

    def tick(self) -> None:
        """Some time has passed (a fifth of a second at most) while jobs run."""

    def stopping(self, *, at_once: bool) -> None:
        """The user asked to stop: after the running epochs, or at once."""


@dataclass
class _Child:
    job: Job
    process: Any
    pipe: Connection
    answer: Returned | Raised | None = None
    is_silent: bool = False  # it has closed its end of the pipe: nothing will come any more


class LocalEngine:
    """Runs jobs on this machine, `workers` at once, each in a process forked from one that has imported `preload`.

    The first Ctrl-C or SIGTERM starts no further job and passes SIGTERM on to the running ones, which may finish what
    they are at; the second kills them. When the driver dies, however it dies, they die with it.
    """

    def __init__(self, *, workers: int = 1, preload: Sequence[str] = ()) -> None:
        self._workers = workers
        self._context = _context(preload)
        self._interrupts = 0
        self._heeded = 0

    @property
    def was_interrupted(self) -> bool:
        """Whether the user asked to stop."""
        return self._interrupts > 0

    def run(self, jobs: Iterable[Job], listener: Listener) -> None:
        """Run all jobs, taking each from `jobs` only when there is room for it; returns when the last has ended."""
        waiting = iter(jobs)
        children: list[_Child] = []
        with self._signals_counted():
            try:
                while True:
                    while len(children) < self._workers and not self._interrupts:
                        job = next(waiting, None)
                        if job is None:
                            break
                        children.append(self._start(job, listener))
                    if not children:
                        return
                    self._wait(children)
                    self._heed_interrupts(children, listener)
                    for child in [child for child in children if child.process.exitcode is not None]:
                        children.remove(child)
                        listener.ended(self._bury(child))
                    listener.tick()
            finally:
                for child in children:
                    _kill(child)
                    self._bury(child)

    def _start(self, job: Job, listener: Listener) -> _Child:
        mine, theirs = connection.Pipe(duplex=False)
        request = Request(
            function=job.function,
            arguments=job.arguments,
            environment=dict(os.environ),
            folder=str(Path.cwd()),
            threads=self._threads(),
        )
        process = self._process(child_main, theirs, request)
        theirs.close()
        listener.started(job, process.pid)
        return _Child(job, process, mine)

    def _process(self, target: Callable[..., None], *arguments: Any) -> Any:
        """Start a process. Where the forkserver was killed, by the out-of-memory killer say, that starts another."""
        for tries_left in reversed(range(_START_TRIES)):
            process = self._context.Process(target=target, args=arguments, daemon=False)
            try:
                process.start()
                return process
            except (EOFError, ConnectionError):
                if not tries_left:
                    raise
                time.sleep(_TICK_SECONDS / 2)  # until its death can be seen
        raise AssertionError("the last try returns or raises")

    def _threads(self) -> int:
        given = os.environ.get("OMP_NUM_THREADS", "")
        return int(given) if given.isdigit() and int(given) > 0 else max(1, usable_cores() // self._workers)

    def _wait(self, children: Sequence[_Child]) -> None:
        watched: list[Any] = [child.process.sentinel for child in children]
        watched += [child.pipe for child in children if child.answer is None and not child.is_silent]
        ready = connection.wait(watched, timeout=_TICK_SECONDS)
        for child in children:
            if child.pipe in ready:
                _listen(child)
            if child.process.sentinel in ready:
                child.process.join()

    def _bury(self, child: _Child) -> Ending:
        child.process.join()
        if child.answer is None and not child.is_silent and child.pipe.poll():
            _listen(child)
        child.pipe.close()
        _kill_group(child.process.pid)  # what the run may have left behind: a loader's workers
        ending = Ending(child.job, child.process.exitcode, child.answer, was_stopped=self._heeded > 1)
        child.process.close()
        return ending

    def _heed_interrupts(self, children: Sequence[_Child], listener: Listener) -> None:
        if self._interrupts == self._heeded:
            return
        self._heeded = self._interrupts
        at_once = self._heeded > 1
        listener.stopping(at_once=at_once)
        for child in children:
            if at_once:
                _kill(child)
            elif child.process.exitcode is None:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(child.process.pid, signal.SIGTERM)

    @contextlib.contextmanager
    def _signals_counted(self) -> Iterator[None]:
        if threading.current_thread() is not threading.main_thread():
            yield
            return

        def count(number: int, frame: FrameType | None) -> None:
            self._interrupts += 1

        earlier = {number: signal.signal(number, count) for number in (signal.SIGINT, signal.SIGTERM)}
        try:
            yield
        finally:
            for number, handler in earlier.items():
                signal.signal(number, handler)


class _Answer(Listener):
    ending: Ending | None = None

    def ended(self, ending: Ending) -> None:
        self.ending = ending


def call(engine: LocalEngine, function: Callable[..., Any], *arguments: Any) -> Ending:
    """Call a function in a process of its own and wait for it; its output goes where the driver's goes.

    Raises `KeyboardInterrupt` if the user asked to stop.
    """
    answer = _Answer()
    engine.run([Job(-1, function, arguments)], answer)
    if answer.ending is None or engine.was_interrupted:
        raise KeyboardInterrupt
    return answer.ending


def usable_cores() -> int:
    """The cores that this process may run on."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def _context(preload: Sequence[str]) -> Any:
    if sys.platform != "linux":
        return multiprocessing.get_context("spawn")
    context = multiprocessing.get_context("forkserver")
    os.environ[PRELOAD_VARIABLE] = ",".join(preload)
    context.set_forkserver_preload(["runmanager.launching.preload"])
    return context


def _listen(child: _Child) -> None:
    try:
        data = child.pipe.recv_bytes()
    except (EOFError, OSError):
        child.is_silent = True  # it died before it could say a word, or in the middle of one
        return
    try:
        child.answer = pickle.loads(data)
    except Exception as error:
        child.answer = Raised(f"the result cannot be read: {type(error).__name__}: {error}", traceback.format_exc())


def _kill(child: _Child) -> None:
    _kill_group(child.process.pid)
    with contextlib.suppress(ProcessLookupError, ValueError):
        child.process.kill()


def _kill_group(pid: int) -> None:
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(pid, signal.SIGKILL)

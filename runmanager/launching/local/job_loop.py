"""The driver's loop over jobs: it hands the next one to an engine that has room, and decides what an end leads to."""

import signal
from abc import ABC, abstractmethod
from collections import Counter, deque
from collections.abc import Callable, Iterable, Iterator
from contextlib import closing
from dataclasses import dataclass

from runmanager.launching.local.jobs import Job, Listener, ProcessExit
from runmanager.launching.options import RETRIED
from runmanager.signals import handle_signals

_MAX_WAITING = 1000  # jobs that wait for a GPU while a later one may start


@dataclass(frozen=True)
class Retries:
    """The number of further tries of a job that ended for one of `reasons`, and of one that its engine displaced."""

    times: int = 0
    reasons: tuple[str, ...] = RETRIED
    displaced: int = 0


class _JobQueue:
    """The jobs that are to start, each taken from `jobs` only when there is room for it; `tries` have begun of each."""

    def __init__(self, jobs: Iterable[Job | None]) -> None:
        self._jobs = iter(jobs)
        self._waiting: list[Job] = []
        self.tries = Counter[int]()
        self.displaced = Counter[int]()

    def start_next(self, engine: "Engine", listener: Listener) -> bool:
        """Start the first job that may start now; return whether there was one."""
        for index, job in enumerate(self._waiting):
            if self._start(engine, job, listener):
                del self._waiting[index]
                return True
        while len(self._waiting) < _MAX_WAITING and (new := next(self._jobs, None)) is not None:
            if self._start(engine, new, listener):
                return True
            self._waiting.append(new)
        return False

    def put_back(self, job: Job) -> None:
        """Queue a job for its next try, before all jobs that have not started."""
        self._waiting.insert(0, job)

    def _start(self, engine: "Engine", job: Job, listener: Listener) -> bool:
        is_started = engine.start(job, self.tries[job.key] + 1, listener)
        self.tries[job.key] += is_started
        return is_started


class Engine(ABC):
    """Where jobs run. An engine starts, watches and stops them; how many tries they get, its caller decides."""

    @property
    @abstractmethod
    def has_room(self) -> bool:
        """Whether another job may start."""

    @property
    @abstractmethod
    def is_idle(self) -> bool:
        """Whether no job has started that has not ended."""

    @abstractmethod
    def start(self, job: Job, number: int, listener: Listener) -> bool:
        """Start a job's try of this number, and tell the listener once it has begun; False where it has no room now."""

    @abstractmethod
    def wait(self) -> None:
        """Wait until something may have happened, and not for long."""

    @abstractmethod
    def stop(self, *, at_once: bool) -> None:
        """Let the running epochs end, or kill all jobs (`at_once`), and start nothing more."""

    @abstractmethod
    def end(self, key: int, *, at_once: bool) -> None:
        """Ask the job of this key to end, if it runs, or kill it (`at_once`); the others go on."""

    @abstractmethod
    def observe(self, listener: Listener, may_retry: Callable[[Job], bool]) -> Iterator[ProcessExit]:
        """Enforce the limits, and yield how jobs have ended; one that `may_retry` may have been displaced."""

    def close(self) -> None:  # noqa: B027  # nothing by default
        """Kill what would die with the driver, after an error of the caller's."""

    def run(
        self,
        jobs: Iterable[Job | None],
        listener: Listener,
        *,
        retries: Retries = Retries(),  # frozen, so that all may share it
        stop_on_error: bool = False,
    ) -> bool:
        """Run all jobs until the last has ended, as `steps` does; return whether the user asked to stop."""
        return deque(self.steps(jobs, listener, retries=retries, stop_on_error=stop_on_error), maxlen=1).pop()

    def steps(
        self,
        jobs: Iterable[Job | None],
        listener: Listener,
        *,
        retries: Retries = Retries(),
        stop_on_error: bool = False,
    ) -> Iterator[bool]:
        """Run all jobs until the last has ended; yield, whenever something may have happened and at the end, whether
        the user asked to stop.

        Each is taken from `jobs` when there is room for it, so that a caller may decide late which it is; None stands
        for none now, and more are asked for when something has happened to those that run. After the first Ctrl-C or
        SIGTERM no job starts, and the running epochs end; the second ends everything immediately. With `stop_on_error`
        no job starts after the first that did not succeed and is not tried again.
        """
        queue, interrupts, num_handled, is_halted = _JobQueue(jobs), list[None](), 0, False

        def may_retry(job: Job) -> bool:
            return queue.displaced[job.key] < retries.displaced and not (interrupts or is_halted)

        with handle_signals((signal.SIGINT, signal.SIGTERM), lambda: interrupts.append(None)), closing(self):
            while True:
                while self.has_room and not (interrupts or is_halted) and queue.start_next(self, listener):
                    pass
                if self.is_idle:
                    yield bool(interrupts)
                    return
                self.wait()
                if len(interrupts) > num_handled:
                    num_handled = len(interrupts)
                    listener.stopping(at_once=num_handled > 1)
                    self.stop(at_once=num_handled > 1)
                for ending in self.observe(listener, may_retry):
                    if (outcome := ending.displaced) is None:
                        listener.finalize(ending)
                        outcome = listener.outcome(ending)
                    key = ending.job.key
                    queue.displaced[key] += ending.displaced is not None
                    tries = queue.tries[key]
                    may_try = tries - queue.displaced[key] <= retries.times and not (interrupts or is_halted)
                    if ending.displaced or (outcome.reason in retries.reasons and may_try):
                        listener.retrying(ending, outcome, tries=tries, of=1 + retries.times + retries.displaced)
                        queue.put_back(ending.job)
                        continue
                    listener.ended(ending)
                    if stop_on_error and not outcome.status.is_success and not (interrupts or is_halted):
                        is_halted = True
                        listener.halted()
                listener.tick()
                for key, at_once in listener.unwanted():
                    self.end(key, at_once=at_once)
                yield bool(interrupts)

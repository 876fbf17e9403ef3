"""Jobs of an engine, and the driver's loop over them.

A job has time limits, ways in which its process ends, and a listener that is notified. The loop hands the next one to
an engine that has room, and decides what an end leads to.
"""

import signal
import time
from abc import ABC, abstractmethod
from collections import Counter, deque
from collections.abc import Callable, Iterable, Iterator
from contextlib import closing
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from runmanager.launching.local.gpus import GpuRequest
from runmanager.launching.local.worker import Raised, Returned
from runmanager.launching.options import RETRIED
from runmanager.records.host.process import address_space_limit
from runmanager.records.run.heartbeat import Beat, read_beat
from runmanager.records.run.status import Outcome, Reason, Seen, Status, judge, seen_from_outside
from runmanager.signals import handle_signals, signal_name

_MAX_SILENCE_SECONDS = 10.0  # a missing beat: a busy machine or a hanging job does not let its thread run


@dataclass(frozen=True)
class Limits:
    """Seconds after which a job is killed: since its start, and since its last step as in its `heartbeat` file."""

    timeout: float | None = None
    stall_timeout: float | None = None
    heartbeat: Path | None = None


class LimitWatch:
    """Watches one try of a job; created when it starts."""

    def __init__(self, limits: Limits, *, clock: Callable[[], float] = time.monotonic) -> None:
        self._limits = limits
        self._clock = clock
        self._started_at = self._advanced_at = clock()
        self._last_beat = self._read_beat()

    def verdict(self) -> Outcome | None:
        """Return the outcome for which the job is to be killed; None while it is within its limits."""
        now = self._clock()
        timeout = self._limits.timeout
        if timeout is not None and now - self._started_at >= timeout:
            return Outcome(Status.KILLED, Reason.TIMEOUT, f"longer than timeout={timeout:g} s")
        stall = self._limits.stall_timeout
        if stall is not None and self._stalled_seconds(now, stall) >= stall:
            return Outcome(Status.KILLED, Reason.STALLED, f"no step for stall_timeout={stall:g} s")
        return None

    def _read_beat(self) -> Beat | None:
        path = self._limits.heartbeat
        return read_beat(path) if path is not None and self._limits.stall_timeout is not None else None

    def _stalled_seconds(self, now: float, stall: float) -> float:
        beat = self._read_beat()
        if (beat and beat.progress) != (self._last_beat and self._last_beat.progress):
            self._last_beat, self._advanced_at = beat, now
        stalled = now - self._advanced_at
        if beat is not None and beat == self._last_beat and stalled < stall + _MAX_SILENCE_SECONDS:
            return 0.0  # no beat since the one with this progress: the next may show more
        return stalled


@dataclass(frozen=True)
class Job:
    """A picklable function with its arguments; `key` identifies the job in a listener.

    `prepare` makes the arguments just before each try, given the number of the try (from 1), where making those of all
    jobs in advance would cost too much. `gpus` is the request for GPUs; None leaves CUDA_VISIBLE_DEVICES as it is.
    """

    key: int
    function: Callable[..., Any]
    arguments: tuple[Any, ...] = ()
    prepare: Callable[[int], tuple[Any, ...]] | None = None
    gpus: GpuRequest | None = None
    limits: Limits = field(default_factory=Limits)


@dataclass(frozen=True)
class ProcessExit:
    """How a job's process ended.

    `answer` is what the process sent, None if it could not send; then `exit_code` counts, negative for a signal.
    `was_stopped` is True if it ended without a result after an interrupt, asked by the engine or killed. `verdict` is
    the outcome that the engine decided, where it killed the job for a limit or lost its process. `displaced` is that of
    a job that has lost its place and is to be tried again.
    """

    job: Job
    exit_code: int
    answer: Returned | Raised | None
    was_stopped: bool = False
    verdict: Outcome | None = None
    displaced: Outcome | None = None


def outcome_of_exit(ending: ProcessExit) -> Outcome:
    """Return the outcome of a run that could not write its own end, from the end of its process."""
    seen = Seen() if ending.verdict is None else seen_from_outside(ending.verdict)
    if ending.was_stopped and seen.stop is None:
        how = "at once" if ending.exit_code == -signal.SIGKILL else "on request"
        seen = replace(seen, stop=Outcome(Status.KILLED, Reason.INTERRUPTED, f"stopped {how}"))
    return judge(replace(seen, error=seen.error or _error_of(ending)))


def _error_of(ending: ProcessExit) -> Outcome:
    if isinstance(ending.answer, Raised):
        status = Status.KILLED if ending.answer.reason is Reason.INTERRUPTED else Status.FAILED
        return Outcome(status, ending.answer.reason, ending.answer.message.partition("\n")[0])
    if ending.exit_code < 0:
        causes = [signal_name(-ending.exit_code), address_space_limit()]  # a library without memory may abort
        return Outcome(Status.KILLED, Reason.SIGNAL, "; ".join(filter(None, causes)))
    return Outcome(Status.FAILED, Reason.EXIT, f"the process ended with exit code {ending.exit_code}")


class Listener:
    """Receives the events of jobs in the driver's main thread. The base class ignores them.

    `when_ended` (`module:name`) is called with the sweep's paths after each run where no driver waits.
    """

    when_ended: str | None = None

    def wants(self, key: int) -> bool:
        """Whether to run the job of this key; called when it would start."""
        return True

    def started(self, job: Job, pid: int) -> None:
        """A job's process has started."""

    def finalize(self, ending: ProcessExit) -> None:
        """Write the end of a job whose process is gone, where the process could not.

        Called once for each process, before `outcome`, `retrying` and `ended`.
        """

    def outcome(self, ending: ProcessExit) -> Outcome:
        """Return what a process that has been finalized came to; decides on another try and on `on_error`."""
        return Outcome(Status.FINISHED) if isinstance(ending.answer, Returned) else outcome_of_exit(ending)

    def retrying(self, ending: ProcessExit, outcome: Outcome, *, tries: int, of: int) -> None:
        """A job ended with this outcome in try number `tries`, and is tried again, `of` times in all at most."""

    def ended(self, ending: ProcessExit) -> None:
        """A job has ended for good."""

    def halted(self) -> None:
        """A job did not succeed, and no further job starts because of `on_error=stop`."""

    def tick(self) -> None:
        """Time has passed while jobs run; called at least five times a second."""

    def unwanted(self) -> Iterable[tuple[int, bool]]:
        """Return the keys of jobs that are to end now, each with whether it is to be killed; called after `tick`."""
        return ()

    def stopping(self, *, at_once: bool) -> None:
        """The user asked to stop: after the running epochs, or immediately (`at_once`)."""


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
                yield bool(interrupts)  # before it waits, so that a caller knows at once what has started
                if self.is_idle:
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

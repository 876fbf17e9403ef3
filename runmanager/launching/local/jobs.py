"""Jobs of an engine, their time limits, how their processes end, and the listener that is notified."""

import signal
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from runmanager.launching.local.gpus import GpuRequest
from runmanager.launching.local.worker import Raised, Returned
from runmanager.records.host.process import address_space_limit
from runmanager.records.run.heartbeat import Beat, read_beat
from runmanager.records.run.status import Outcome, Reason, Seen, Status, judge, seen_from_outside
from runmanager.signals import signal_name

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

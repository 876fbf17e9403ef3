"""Jobs of an engine, how their processes end, and the listener that is notified."""

import signal
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any

from runmanager.launching.local.gpus import GpuRequest
from runmanager.launching.local.time_limits import Limits
from runmanager.launching.local.worker import Raised, Returned
from runmanager.records.host.limits import address_space_limit
from runmanager.records.run.judge import Seen, judge, seen_from_outside
from runmanager.records.run.status import Outcome, Reason, Status
from runmanager.signals import signal_name

__all__ = ["Job", "Listener", "ProcessExit", "outcome_of_exit"]


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

    def stopping(self, *, at_once: bool) -> None:
        """The user asked to stop: after the running epochs, or immediately (`at_once`)."""

"""What an engine is given and what it says: a job, how its process ended, and who is told."""

import signal
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from runmanager.launching.local.gpus import GpuRequest
from runmanager.launching.local.time_limits import Limits
from runmanager.launching.local.worker import Raised, Returned
from runmanager.records.host.memory import address_space_limit
from runmanager.records.run.status import Outcome, Reason, Status

__all__ = ["Job", "Listener", "ProcessExit", "outcome_of_exit"]


@dataclass(frozen=True)
class Job:
    """A function that can be pickled, and what to call it with; `key` tells it apart in a listener.

    `prepare` makes the arguments just before each try, told which try it is (from 1), where they are not to be made
    for all jobs at once. `gpus` is what it wants of them; None leaves CUDA_VISIBLE_DEVICES as it is.
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

    `answer` is what it said itself, None if it could not: then `exit_code` tells, negative for a signal.
    `was_stopped` is True if it ended because the engine was told to end everything at once; `verdict` is the engine's
    own word, where it killed the job for a limit, or lost it.
    """

    job: Job
    exit_code: int
    answer: Returned | Raised | None
    was_stopped: bool = False
    verdict: Outcome | None = None


def outcome_of_exit(ending: ProcessExit) -> Outcome:
    """What a process's end makes of a run that could not write its own."""
    if ending.was_stopped:
        return Outcome(Status.KILLED, Reason.INTERRUPTED, "stopped at once")
    if isinstance(ending.answer, Raised):
        reason = Reason.EXIT if ending.answer.is_exit else Reason.EXCEPTION
        return Outcome(Status.FAILED, reason, ending.answer.message.partition("\n")[0])
    if ending.verdict is not None:
        return ending.verdict
    if ending.exit_code < 0:
        said = [_signal_name(-ending.exit_code), address_space_limit()]  # a library that finds no memory may abort
        return Outcome(Status.KILLED, Reason.SIGNAL, "; ".join(filter(None, said)))
    return Outcome(Status.FAILED, Reason.EXIT, f"the process ended with exit code {ending.exit_code}")


def _signal_name(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"


class Listener:
    """Is told what happens, in the driver's main thread; does nothing unless told otherwise."""

    def wants(self, key: int) -> bool:
        """Whether the job of this key, whose turn it is, is to be run at all."""
        return True

    def started(self, job: Job, pid: int) -> None:
        """A job's process has started."""

    def settled(self, ending: ProcessExit) -> Outcome:
        """A job's process is gone: leave its end written where it could not, and say what it was.

        The engine asks before it says `retrying` or `ended`.
        """
        return Outcome(Status.FINISHED) if isinstance(ending.answer, Returned) else outcome_of_exit(ending)

    def retrying(self, ending: ProcessExit, outcome: Outcome, *, tries: int, of: int) -> None:
        """A job ended so for the `tries`th time and is tried again, `of` times at most."""

    def ended(self, ending: ProcessExit) -> None:
        """A job has ended for good."""

    def halted(self) -> None:
        """A job ended badly and no further one is begun, as `on_error=stop` wants it."""

    def tick(self) -> None:
        """Some time has passed (a fifth of a second at most) while jobs run."""

    def stopping(self, *, at_once: bool) -> None:
        """The user asked to stop: after the running epochs, or at once."""

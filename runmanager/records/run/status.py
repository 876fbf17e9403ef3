"""States of a run, their reasons, and outcomes; the outcome that follows from what was seen of its end."""

from dataclasses import dataclass
from enum import StrEnum

import msgspec

from runmanager.records.settings.secrets import redacted
from runmanager.text import truncated


class Status(StrEnum):
    """The state of a run."""

    PENDING = "pending"
    RUNNING = "running"
    FINISHED = "finished"
    FAILED = "failed"
    KILLED = "killed"
    CRASHED = "crashed"
    SKIPPED = "skipped"

    @property
    def is_ended(self) -> bool:
        return self not in (Status.PENDING, Status.RUNNING)

    @property
    def is_success(self) -> bool:
        """Whether a sweep whose runs all have this status exits with status 0."""
        return self in (Status.FINISHED, Status.SKIPPED)


class Reason(StrEnum):
    """Why a run ended; a finished run that ran all its epochs has no reason. A search has ended what is `pruned`."""

    EARLY_STOPPED = "early_stopped"
    PRUNED = "pruned"
    EXCEPTION = "exception"
    EXIT = "exit"
    OUT_OF_MEMORY = "out_of_memory"
    DIVERGED = "diverged"
    SIGNAL = "signal"
    TIMEOUT = "timeout"
    STALLED = "stalled"
    INTERRUPTED = "interrupted"
    VANISHED = "vanished"
    DEVICE_UNAVAILABLE = "device_unavailable"


def is_complete(status: str | None, reason: str | None) -> bool:
    """Whether a run with this status and reason counts: it has finished, and a search has not pruned it."""
    return status == Status.FINISHED and reason != Reason.PRUNED


class Outcome(msgspec.Struct, frozen=True):
    """How a run ended, as a value that explains itself.

    `message` is one line for people, empty if status and reason say it all. A message that is too long, for example an
    error that quotes its data, is cut to keep tables and pages small; error.txt has all of it. Secrets that this
    process knows are masked.
    """

    status: Status
    reason: Reason | None = None
    message: str = ""

    def __post_init__(self) -> None:
        msgspec.structs.force_setattr(self, "message", truncated(redacted(self.message)))


_STOPS = (Reason.INTERRUPTED, Reason.TIMEOUT, Reason.STALLED, Reason.PRUNED)


@dataclass(frozen=True, kw_only=True)
class Seen:
    """What was seen of the end of a run.

    `of_place` is what the place says where it took the process: a lost host, or no memory for it. `stop` is the outcome
    of a stop that was asked for, or of a limit. `error` is what ended the program: an exception, an exit status, a
    signal. `own_end` is how the program itself ended its run, `own_end_is_first` whether that was recorded before the
    stop, and `is_complete` whether every planned epoch is recorded. `lost_metric` is a loss that is not finite.
    """

    of_place: Outcome | None = None
    stop: Outcome | None = None
    error: Outcome | None = None
    own_end: Outcome | None = None
    own_end_is_first: bool = False
    is_complete: bool = False
    lost_metric: str | None = None


def judge(seen: Seen) -> Outcome:
    """Return the outcome of a run: by its place, a stop, an error, its own end, and a lost metric, in this order.

    A run that ends after its stop was asked for has the reason of the stop, whatever its handlers do and return, and
    whichever error they raise. Its end is its own where it came first, or where every planned epoch is recorded.
    """
    if seen.of_place is not None:
        return seen.of_place
    if seen.stop is not None and not (seen.own_end_is_first or seen.is_complete):
        return seen.stop
    if seen.stop is None and seen.error is not None:
        return seen.error
    if seen.own_end is not None and not seen.own_end.status.is_success:
        return seen.own_end
    if seen.lost_metric is not None:
        return Outcome(Status.FAILED, Reason.DIVERGED, f"{seen.lost_metric} is not finite")
    return seen.own_end or Outcome(Status.FINISHED)


def seen_from_outside(outcome: Outcome) -> Seen:
    """Return what was seen where only `outcome` is known of an end, from outside of the run's process."""
    if outcome.reason in _STOPS:
        return Seen(stop=outcome)
    return Seen(of_place=outcome) if outcome.status is Status.CRASHED else Seen(error=outcome)

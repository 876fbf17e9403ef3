"""States of a run, their reasons, and outcomes."""

from enum import StrEnum

import msgspec

from runmanager.records.settings.secrets import redacted
from runmanager.text import truncated

__all__ = ["Outcome", "Reason", "Status"]


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
    """Why a run ended; a finished run that ran all its epochs has no reason."""

    EARLY_STOPPED = "early_stopped"
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

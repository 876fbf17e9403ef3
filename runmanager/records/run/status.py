"""The states of a run and their reasons."""

from enum import StrEnum

import msgspec

from runmanager.text import truncated

__all__ = ["Outcome", "Reason", "Status"]


class Status(StrEnum):
    """Where a run stands."""

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
        """Whether a sweep in which every run ended so exits with status 0."""
        return self in (Status.FINISHED, Status.SKIPPED)


class Reason(StrEnum):
    """Why a run ended as it did; a finished run that ran all its epochs has none."""

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
    """How a run ended: a value that explains itself.

    `message` is one readable line for people, empty where status and reason say it all. What is longer than a line
    can be, as an error that quotes its data, is cut: error.txt has it whole, and the pages and tables stay small.
    """

    status: Status
    reason: Reason | None = None
    message: str = ""

    def __post_init__(self) -> None:
        msgspec.structs.force_setattr(self, "message", truncated(self.message))

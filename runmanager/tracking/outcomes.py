"""From the exception that ended a run to the outcome that says so."""

import traceback

import torch

from runmanager.records.states import Outcome, Reason, Status

__all__ = ["outcome_of", "traceback_of"]


def outcome_of(error: BaseException) -> Outcome:
    """What an exception that left the run's body makes of the run."""
    if isinstance(error, KeyboardInterrupt):
        return Outcome(Status.KILLED, Reason.INTERRUPTED, "interrupted")
    if isinstance(error, SystemExit):
        return Outcome(Status.FAILED, Reason.EXIT, f"sys.exit({error.code if error.code is not None else ''})")
    reason = Reason.OUT_OF_MEMORY if isinstance(error, MemoryError | torch.OutOfMemoryError) else Reason.EXCEPTION
    return Outcome(Status.FAILED, reason, _one_line(error))


def _one_line(error: BaseException) -> str:
    text = str(error).strip()
    first = text.splitlines()[0] if text else ""
    return f"{type(error).__name__}: {first}" if first else type(error).__name__


def traceback_of(error: BaseException) -> str:
    """The whole traceback, as for error.txt."""
    return "".join(traceback.format_exception(error))

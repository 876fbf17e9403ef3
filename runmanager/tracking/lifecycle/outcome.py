"""What a run came to: from its epochs, or from the exception that ended it, to the outcome that says so."""

import errno
import logging
import math
import traceback
from pathlib import Path

import torch

from runmanager.records.files.atomic_files import replace_file
from runmanager.records.run.record import EpochRecord
from runmanager.records.run.status import Outcome, Reason, Status
from runmanager.text import encodable, error_line, first_line

__all__ = ["divergence", "is_out_of_memory", "keep_traceback", "outcome_of", "outcome_of_epochs"]

_log = logging.getLogger(__name__)

_OUT_OF_MEMORY_SIGNS = (
    "defaultcpuallocator: can't allocate memory",
    "not enough memory: you tried",
    "out of memory",
    "_status_alloc_failed",
)


def divergence(record: EpochRecord) -> Outcome | None:
    """The failure that an epoch with a NaN or infinite loss is; None for any other."""
    for name, loss in (("loss", record.loss), ("val_loss", record.val_loss)):
        if loss is not None and not math.isfinite(loss):
            message = f"{name} is {loss} in epoch {record.epoch}; try a smaller lr"
            return Outcome(Status.FAILED, Reason.DIVERGED, message)
    return None


def outcome_of_epochs(done: int, *, planned: int | None, stop: Outcome | None) -> Outcome:
    """What a run came to that ended without an exception after `done` epochs; `stop` is what it was to stop with."""
    if done == 0 and stop is None:
        # Nothing that could be kept: another time it is begun anew.
        return Outcome(Status.KILLED, Reason.INTERRUPTED, "left before its first epoch had ended")
    if stop is not None and (done != planned or stop.status is Status.FAILED):
        return stop  # asked to stop after what was the last epoch anyway, it has run them all
    if planned is not None and done < planned:
        return Outcome(Status.FINISHED, Reason.EARLY_STOPPED, f"the loop was left after {done} of {planned} epochs")
    return Outcome(Status.FINISHED)


def outcome_of(error: BaseException, *, batch_size: object = None, memory_bytes: int | None = None) -> Outcome:
    """What an exception that left the run's body makes of the run.

    Out of memory is a result: the message says at which `batch_size` and how much memory was in use.
    """
    if isinstance(error, KeyboardInterrupt):
        return Outcome(Status.KILLED, Reason.INTERRUPTED, "interrupted")
    if isinstance(error, SystemExit):
        code = "" if error.code is None else first_line(str(error.code))
        return Outcome(Status.FAILED, Reason.EXIT, f"sys.exit({code})")
    if not is_out_of_memory(error):
        return Outcome(Status.FAILED, Reason.EXCEPTION, error_line(error))
    facts = []
    if batch_size is not None:
        facts.append(f"batch_size={batch_size}")
    if memory_bytes is not None:
        facts.append(f"{memory_bytes / 2**30:.2f} GiB in use at most")
    message = error_line(error) + (f" ({', '.join(facts)})" if facts else "")
    return Outcome(Status.FAILED, Reason.OUT_OF_MEMORY, message)


def is_out_of_memory(error: BaseException) -> bool:
    """Whether the host's memory or a device's did not suffice."""
    if isinstance(error, MemoryError | torch.OutOfMemoryError):
        return True
    if isinstance(error, OSError):
        return error.errno == errno.ENOMEM
    # PyTorch's allocators for the CPU and for Apple's GPUs, and CUDA's libraries, have no exception of their own.
    text = str(error).lower()
    return isinstance(error, RuntimeError) and any(sign in text for sign in _OUT_OF_MEMORY_SIGNS)


def keep_traceback(error: BaseException, path: Path) -> None:
    """Write the whole traceback into error.txt, after the record, which has its first line: the disk may be full."""
    try:
        replace_file(path, encodable("".join(traceback.format_exception(error))))
    except OSError as fault:
        _log.warning("%s could not be written: %s", path, fault)

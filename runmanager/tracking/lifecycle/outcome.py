"""Outcomes of runs: from their epochs, or from the exception that ended them. Imports no torch."""

import errno
import logging
import math
import re
import sys
import traceback
from pathlib import Path
from typing import Any

from runmanager.records.files.atomic_files import replace_file
from runmanager.records.run.run_record import EpochRecord
from runmanager.records.run.status import Outcome, Reason, Status
from runmanager.records.settings.secrets import redacted
from runmanager.text import encodable, error_line, first_line, full_message

__all__ = ["divergence_of", "explained", "is_out_of_memory", "outcome_of", "outcome_of_epochs", "write_traceback"]

_log = logging.getLogger(__name__)

_STARTED_WORKER = re.compile(r"multiprocessing.popen_(forkserver|spawn)\w*\.py")  # a file in a traceback

_OUT_OF_MEMORY_SIGNS = (
    "defaultcpuallocator: can't allocate memory",
    "not enough memory: you tried",
    "out of memory",
    "_status_alloc_failed",
)


def divergence_of(record: EpochRecord, *, counted: str = "epoch") -> Outcome | None:
    """Return the failure of an epoch with a NaN or infinite loss, or of what its number has `counted`; else None."""
    for name, loss in (("loss", record.loss), ("val_loss", record.val_loss)):
        if loss is not None and not math.isfinite(loss):
            message = f"{name} is {loss} in {counted} {record.epoch}; try a smaller lr"
            return Outcome(Status.FAILED, Reason.DIVERGED, message)
    return None


def outcome_of_epochs(done: int, *, planned: int | None, stop: Outcome | None) -> Outcome:
    """Return the outcome of a run that ended without an exception after `done` epochs; `stop` is a requested one."""
    if done == 0 and stop is None:
        # Nothing to keep: a rerun restarts it.
        return Outcome(Status.KILLED, Reason.INTERRUPTED, "left before its first epoch had ended")
    if stop is not None and (done != planned or stop.status is Status.FAILED):
        return stop  # a stop requested in the last epoch has no effect, as all epochs were run
    if planned is not None and done < planned:
        return Outcome(Status.FINISHED, Reason.EARLY_STOPPED, f"the loop was left after {done} of {planned} epochs")
    return Outcome(Status.FINISHED)


def outcome_of(error: BaseException, *, batch_size: object = None, memory_bytes: int | None = None) -> Outcome:
    """Return the outcome of a run whose body raised `error`.

    Out of memory is a result: its message names the `batch_size` and the memory in use.
    """
    if isinstance(error, KeyboardInterrupt):
        return Outcome(Status.KILLED, Reason.INTERRUPTED, "interrupted")
    if isinstance(error, SystemExit):
        code = "" if error.code is None else first_line(full_message(error))
        return Outcome(Status.FAILED, Reason.EXIT, f"sys.exit({code})")
    if not is_out_of_memory(error):
        lines = "".join(traceback.format_exception(error))
        return Outcome(Status.FAILED, Reason.EXCEPTION, explained(error_line(error), lines))
    facts = []
    if batch_size is not None:
        facts.append(f"batch_size={batch_size}")
    if memory_bytes is not None:
        facts.append(f"{memory_bytes / 2**30:.2f} GiB in use at most")
    message = error_line(error) + (f" ({', '.join(facts)})" if facts else "")
    return Outcome(Status.FAILED, Reason.OUT_OF_MEMORY, message)


def explained(line: str, text: str) -> str:
    """Return the line of an error with the way out, where its traceback is one that PyTorch leaves unexplained.

    Under other start methods than fork, what a loader's worker gets is pickled, so a lambda ends the run.
    """
    found = _STARTED_WORKER.search(text)
    if found is None or "pickle" not in line.lower():
        return line
    return (
        f"{line}; the start method {found[1]} must pickle what a worker process gets, as a loader's dataset, "
        "collate_fn and worker_init_fn: define them at the top level of a module, without lambda, or give the loader "
        'multiprocessing_context="fork" or num_workers=0'
    )


def is_out_of_memory(error: BaseException) -> bool:
    """Return whether `error` means that the host or a device is out of memory."""
    torch: Any = sys.modules.get("torch")  # without it the error is not PyTorch's
    if isinstance(error, MemoryError) or (torch is not None and isinstance(error, torch.OutOfMemoryError)):
        return True
    if isinstance(error, OSError):
        return error.errno == errno.ENOMEM
    # PyTorch's allocators for the CPU and for Apple's GPUs, and CUDA's libraries, raise no specific exception.
    text = full_message(error).lower()
    return isinstance(error, RuntimeError) and any(sign in text for sign in _OUT_OF_MEMORY_SIGNS)


def write_traceback(error: BaseException, path: Path) -> None:
    """Write the traceback to error.txt; after the record, which has its first line, as the disk may be full."""
    try:
        replace_file(path, redacted(encodable("".join(traceback.format_exception(error)))))
    except OSError as fault:
        _log.warning("%s could not be written: %s", path, fault)

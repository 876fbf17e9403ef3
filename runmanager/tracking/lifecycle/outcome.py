"""Outcomes of runs: from an epoch, from the exception that ended them, from a stop. Imports no torch."""

import errno
import logging
import math
import os
import re
import sys
import traceback
from pathlib import Path
from typing import Any

from runmanager.records.files.atomic_files import replace_file
from runmanager.records.files.paths import RunPaths
from runmanager.records.run.measurement import LOSSES
from runmanager.records.run.run_record import EpochRecord
from runmanager.records.run.status import Outcome, Reason, Status
from runmanager.records.settings.secrets import redacted
from runmanager.records.storage.run_end import noted_stop
from runmanager.text import encodable, error_line, first_line, full_message
from runmanager.tracking.environment.cell_process import ATTEMPT_VARIABLE, RUN_VARIABLE

_log = logging.getLogger(__name__)

_STARTED_WORKER = re.compile(r"multiprocessing.popen_(forkserver|spawn)\w*\.py")  # a file in a traceback

# In lower case: the allocators for the CPU and for Apple's and Intel's GPUs, and CUDA's and ROCm's libraries.
_OUT_OF_MEMORY_SIGNS = (
    "defaultcpuallocator: can't allocate memory",
    "not enough memory: you tried",
    "out of memory",
    *("out_of_device_memory", "out_of_host_memory"),
    *("_status_alloc_failed", "_allocation_failed", "fft_alloc_failed", "rocblas_status_memory_error"),
    "miopenstatusallocfailed",
)
_LIBRARY_SIGNS = (  # also of a kernel that has failed before, after which a device does nothing more
    *("blas_status_not_initialized", "cudnn_status_not_initialized"),
    "unable to find an engine to execute this computation",
)
_FAILED_CHECK = "device-side assert"
_FAILED_CHECK_WAY_OUT = (
    "a check within a kernel failed, most often of an index: a label that is not below the number of classes, a token "
    "that is not in the vocabulary; the same batch on the CPU, or CUDA_LAUNCH_BLOCKING=1, shows where"
)


def divergence_of(record: EpochRecord, *, counted: str = "epoch") -> Outcome | None:
    """Return the failure of an epoch with a NaN or infinite loss, or of what its number has `counted`; else None."""
    for name in LOSSES:
        if (loss := getattr(record, name)) is not None and not math.isfinite(loss):
            message = f"{name} is {loss} in {counted} {record.epoch}; try a smaller lr"
            return Outcome(Status.FAILED, Reason.DIVERGED, message)
    return None


def asked_to_stop(paths: RunPaths, attempt: int) -> Outcome | None:
    """Return the outcome of a stop that was asked for, of this run or of the cell that it is part of; None if none."""
    noted = noted_stop(paths, attempt)
    if noted is None and (cell := os.environ.get(RUN_VARIABLE)) and (of_cell := os.environ.get(ATTEMPT_VARIABLE)):
        noted = noted_stop(RunPaths(Path(cell)), int(of_cell) if of_cell.isdigit() else 0)
    return None if noted is None else noted.outcome


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
        lines = "".join(traceback.format_exception(error)) + _fault_of_device(error)
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

    Under other start methods than fork, what a loader's worker gets is pickled, so a lambda ends the run. A failed
    check within a kernel is found by a later call, which then seems to be the cause.
    """
    if _FAILED_CHECK in text:
        return f"{line}; {_FAILED_CHECK_WAY_OUT}"
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
    if not isinstance(error, RuntimeError):
        return False
    text = full_message(error).lower()
    return any(sign in text for sign in _OUT_OF_MEMORY_SIGNS) or (_is_of_library(text) and not _fault_of_device(error))


def _is_of_library(text: str) -> bool:
    return any(sign in text for sign in _LIBRARY_SIGNS)


def _fault_of_device(error: BaseException) -> str:
    """Return why a device does nothing more in this process, where a library's error may hide it; empty if not."""
    if "torch" not in sys.modules or not _is_of_library(full_message(error).lower()):
        return ""
    from runmanager.tracking.device.devices import devices_in_use, synchronize  # loads torch

    try:
        for device in devices_in_use():
            synchronize(device)
    except RuntimeError as fault:
        return full_message(fault)
    return ""


def write_traceback(error: BaseException | str, path: Path) -> None:
    """Write the traceback to error.txt; after the record, which has its first line, as the disk may be full."""
    text = error if isinstance(error, str) else "".join(traceback.format_exception(error))
    try:
        replace_file(path, redacted(encodable(text)))
    except OSError as fault:
        _log.warning("%s could not be written: %s", path, fault)

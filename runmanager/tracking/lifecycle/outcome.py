"""Outcomes of runs: from an epoch, an exception or a stop; and when a run stops before its last planned epoch."""

import errno
import logging
import math
import os
import re
import sys
import traceback
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from runmanager.records.files.atomic_files import replace_file
from runmanager.records.files.paths import RunPaths
from runmanager.records.run.measurement import LOSSES, METRICS
from runmanager.records.run.run_record import EpochRecord
from runmanager.records.run.status import Outcome, Reason, Seen, Status
from runmanager.records.settings.secrets import redacted
from runmanager.records.storage.run_end import noted_stop
from runmanager.text import encodable, error_line, first_line, full_message
from runmanager.tracking.environment.cell_process import ATTEMPT_VARIABLE, RUN_VARIABLE
from runmanager.tracking.options import EarlyStopOptions, is_better, metric_value

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


class EarlyStopping:
    """Detects that a metric has stopped improving; each epoch is passed in once, so later epochs cost no more."""

    def __init__(self, options: EarlyStopOptions) -> None:
        self._options = options
        self._best: float | None = None
        self._best_epoch = 0
        self._num_since_best = 0  # epochs with the metric

    @property
    def notes(self) -> Sequence[str]:
        """A note if no epoch so far had the metric."""
        metric = self._options.metric
        return [f"no early stopping: no epoch recorded {metric}"] if metric and self._best is None else []

    def reason(self, record: EpochRecord, *, counted: str) -> str | None:
        """Return a readable reason to stop after this epoch, or None.

        Epochs that logged no such metric are skipped; a value that is missing or not finite counts as no improvement.
        """
        if self._options.metric is None:
            return None
        metric = self._options.metric
        if record.epoch == 0 or (metric not in METRICS and metric not in (record.metrics or {})):
            return None
        value = metric_value(record, metric)
        if value is None and self._best is None:
            return None
        if value is not None and is_better(metric, value, self._best, by=self._options.min_delta):
            self._best, self._best_epoch, self._num_since_best = value, record.epoch, 0
        else:
            self._num_since_best += 1
        if self._num_since_best < self._options.patience:
            return None
        assert self._best is not None
        best = f"{counted} {self._best_epoch} ({self._best:.4g})"
        if self._options.min_delta:  # a later value may have been better
            return f"{metric} has improved by no more than {self._options.min_delta:g} since {best}"
        return f"{metric} was best in {best}"


class StopPolicy:
    """Decides whether a run stops after an epoch, and tells what was seen of its end."""

    def __init__(self, early_stop: EarlyStopOptions) -> None:
        self._early_stopping = EarlyStopping(early_stop)
        self._own_stop: Outcome | None = None
        self._interruption: Outcome | None = None
        self._own_stop_is_first = False

    @property
    def should_stop(self) -> bool:
        """Whether no further epoch may begin."""
        return self._own_stop is not None or self.is_interrupted

    @property
    def is_interrupted(self) -> bool:
        """Whether the run was interrupted, so that it can be resumed later."""
        return self._interruption is not None

    @property
    def notes(self) -> Sequence[str]:
        """Readable notes on what could not be decided."""
        return self._early_stopping.notes

    def restore(self, history: Sequence[EpochRecord], *, counted: str) -> None:
        """Process the epochs of earlier attempts; only the last may stop the run, which continued after the others."""
        for earlier in history[:-1]:
            self._early_stopping.reason(earlier, counted=counted)
        if history:
            self.process_epoch(history[-1], counted=counted)

    def process_epoch(self, record: EpochRecord, *, counted: str = "epoch") -> None:
        """Stop after this epoch if it diverged or if the monitored metric no longer improves.

        Its number has `counted` epochs or steps.
        """
        has_diverged = self._own_stop is not None and self._own_stop.reason is Reason.DIVERGED
        if not has_diverged:  # else the rest of a loop by steps, after its first interval that diverged
            self._own_stop = divergence_of(record, counted=counted) or self._own_stop
        if (reason := self._early_stopping.reason(record, counted=counted)) is not None:
            self.stop_early(reason)

    def stop(self, stop: Outcome | None) -> None:
        """Stop after the current epoch as `stop` says; None: continue."""
        if stop is not None and stop.reason is Reason.INTERRUPTED:
            self.interrupt(stop.message)
        elif stop is not None:
            self.stop_early(stop.message)

    def stop_early(self, message: str) -> None:
        """Stop after the current epoch; the run is finished."""
        self._own_stop = self._own_stop or Outcome(Status.FINISHED, Reason.EARLY_STOPPED, message)

    def interrupt(self, message: str) -> None:
        """Stop after the current epoch; the run is recorded as `killed`, unless this is its last epoch anyway."""
        if self._interruption is None:
            self._own_stop_is_first = self._own_stop is not None
        self._interruption = Outcome(Status.KILLED, Reason.INTERRUPTED, message)

    def seen(
        self,
        history: Sequence[EpochRecord],
        *,
        planned: int | None,
        is_measured: bool,
        needs_epochs: bool = True,
    ) -> Seen:
        """Return what is known of the end of a run with `planned` epochs; it is complete only if it `is_measured`.

        A run that `needs_epochs` is not finished without any.
        """
        done = history[-1].epoch if history else 0
        is_complete = planned is not None and done >= planned
        own_end = Outcome(Status.FINISHED)
        if self._own_stop is not None and (not is_complete or self._own_stop.status is Status.FAILED):
            own_end = self._own_stop
        elif done == 0 and needs_epochs:
            # Nothing to keep: a rerun restarts it.
            own_end = Outcome(Status.KILLED, Reason.INTERRUPTED, "left before its first epoch had ended")
        elif planned is not None and done < planned:
            message = f"the loop was left after {done} of {planned} epochs"
            own_end = Outcome(Status.FINISHED, Reason.EARLY_STOPPED, message)
        return Seen(
            stop=self._interruption,
            own_end=own_end,
            own_end_is_first=self._own_stop_is_first and is_measured,
            is_complete=is_complete and is_measured,
        )

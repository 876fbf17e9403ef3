"""The run that this process has started with `start_run`, and `log`, which starts one where none is open."""

import gc
import multiprocessing.process
import os
import threading
from collections.abc import Mapping
from typing import Any

import torch

from runmanager.errors import UsageError
from runmanager.tracking.epoch_metrics.step_values import Reduce
from runmanager.tracking.inactive_run import InactiveRun
from runmanager.tracking.lifecycle.finalizers import last_run_begun_here, open_run_of_thread
from runmanager.tracking.run import ActiveRun

starting = threading.RLock()
"""Held while a run is started, so that two threads do not both start one."""

_started: tuple[int, ActiveRun | InactiveRun] | None = None


def keep_started(run: ActiveRun | InactiveRun) -> None:
    """Remember the run that this process has started; it lives on if the program does not keep it."""
    global _started
    _started = os.getpid(), run


def _own() -> ActiveRun | None:
    if _started is None or _started[0] != os.getpid() or isinstance(_started[1], InactiveRun):
        return None
    return _started[1]


def _is_open(run: ActiveRun) -> bool:
    return not run.record.status.is_ended


def refuse_second_start() -> None:
    """Raise `UsageError` while this process or thread has an open run."""
    own = _own()
    if own is None or not _is_open(own):
        if last_run_begun_here() is not None:
            gc.collect()  # a run that the program has dropped may only wait for this
        own = last_run_begun_here()
        if own is None:
            return
    raise UsageError(
        f"start_run() must come after the end of the run before, got {own.record.name}, which is open; call end() on "
        "it, or leave its `with` block."
    )


def log(
    values: Mapping[str, Any] | None = None,
    /,
    *,
    step: int | None = None,
    reduce: Reduce = "last",
    **named: Any,
) -> None:
    """Log values of a step to the open run, as `ActiveRun.log` does; without one, `start_run()` starts it.

    `runmanager.log(val_f1=0.8)` needs nothing else. Of several open runs it is the one that this thread began last. In
    a worker of a `DataLoader` nothing is logged.
    Raises `UsageError` for values that `ActiveRun.log` refuses, and after the end of the run that the program started.
    """
    if is_loader_worker():
        return
    run = open_run_of_thread()
    if run is None:
        with starting:
            run = _begun_for_log()
    run.log(values, step=step, reduce=reduce, **named)


def _begun_for_log() -> Any:
    from runmanager.tracking.program.start_run import start_run

    if _started is not None and _started[0] == os.getpid():
        if isinstance(_started[1], InactiveRun):
            return _started[1]
        raise UsageError(
            f"log() must be called while a run is open, got a call after the end of {_started[1].record.name}; log "
            "before it ends, or begin another run with start_run()."
        )
    return start_run()


def end_current_run(error: BaseException | None = None) -> None:
    """End the run that this process has started, if it is open, as given by `error`."""
    own = _own()
    if own is not None and _is_open(own):
        own.end(error)


def num_current_records() -> int:
    """Return the number of records of the run that this process has started."""
    own = _own()
    return 0 if own is None else len(own.history)


def is_loader_worker() -> bool:
    """Return whether this process is a worker of a `DataLoader`, or imports the main module to become a process."""
    return torch.utils.data.get_worker_info() is not None or getattr(
        multiprocessing.process.current_process(), "_inheriting", False
    )

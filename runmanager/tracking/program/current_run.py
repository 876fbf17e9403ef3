"""The run that this process has started with `start_run`, `log`, which starts one where none is open, and its end.

A run that its program does not end is ended by how the process ends.
"""

import gc
import multiprocessing.process
import os
import sys
import threading
import traceback
from _sitebuiltins import Quitter  # the class of `exit` and `quit`
from collections.abc import Mapping
from multiprocessing.process import BaseProcess
from multiprocessing.util import Finalize
from typing import Any

import torch

from runmanager.errors import UsageError
from runmanager.records.host.standard_streams import show_line
from runmanager.text import error_line
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


_BEFORE_DROPPED_RUNS = 30  # their finalizer would record that the run was never ended


def end_at_exit() -> None:
    """End the run of this process when the process ends, if it is still open then.

    An exception that reaches the top has failed it, Ctrl-C has killed it, and so has `sys.exit`, `exit` or `quit` with
    another status than 0, unless the program caught that and recorded more. Python calls no hook for a `SystemExit`
    that the program raises itself, so that one is not seen.
    """
    global _exit
    if _exit is None:
        _exit = _ProcessExit()
        _exit.watch_hooks()
    _exit.end_run_in_this_process()


class _ProcessExit:
    """How this process ends, as far as it is known; forks share the hooks."""

    def __init__(self) -> None:
        self._process: int | None = None
        self._reached_top: BaseException | None = None
        self._left_with: SystemExit | None = None
        self._left_at = 0  # the number of records at that call

    def watch_hooks(self) -> None:
        show, leave, print_error, quit_program = sys.excepthook, sys.exit, traceback.print_exc, Quitter.__call__

        def noting_hook(kind: Any, error: BaseException, where: Any) -> Any:
            self._reached_top = error
            return show(kind, error, where)

        def noting_print(*args: Any, **options: Any) -> Any:
            # A process of `multiprocessing` calls no hook: it prints its error itself, from Python 3.13 on before it
            # runs finalizers.
            if sys._getframe(1).f_code is BaseProcess._bootstrap.__code__:  # type: ignore[attr-defined]
                self._reached_top = sys.exception()
            return print_error(*args, **options)

        def noting_exit(status: Any = None, /) -> Any:
            self._note_exit(status)
            return leave(status)

        def noting_quit(quitter: Quitter, code: Any = None) -> Any:
            self._note_exit(code)
            return quit_program(quitter, code)

        sys.excepthook, sys.exit, traceback.print_exc = noting_hook, noting_exit, noting_print
        Quitter.__call__ = noting_quit  # type: ignore[method-assign, assignment]  # both functions at once

    def _note_exit(self, status: Any) -> None:
        if status not in (None, 0):
            self._left_with, self._left_at = SystemExit(status), num_current_records()

    def end_run_in_this_process(self) -> None:
        if self._process != os.getpid():
            self._process, self._reached_top, self._left_with = os.getpid(), None, None
            Finalize(None, self._end, exitpriority=_BEFORE_DROPPED_RUNS)

    def _end(self) -> None:
        if os.getpid() != self._process:
            return
        was_caught = self._left_at != num_current_records()
        # Before Python 3.13 a process of `multiprocessing` runs this while its exception is being handled.
        error = sys.exception() or self._reached_top or (None if was_caught else self._left_with)
        try:
            end_current_run(None if isinstance(error, SystemExit) and error.code in (None, 0) else error)
        except Exception as fault:  # for example an epoch that was left open: it is in the record
            show_line(error_line(fault))


_exit: _ProcessExit | None = None

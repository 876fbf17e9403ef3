"""The end of a run whose program does not end it: by how the process ends."""

import os
import sys
from collections.abc import Callable
from multiprocessing.util import Finalize
from types import TracebackType
from typing import Any

from runmanager.records.host.standard_streams import show_line
from runmanager.text import error_line
from runmanager.tracking.program.current_run import end_current_run
from runmanager.tracking.run import ActiveRun

__all__ = ["end_at_exit"]

_BEFORE_DROPPED_RUNS = 30  # their finalizer would record that the run was never ended


def end_at_exit(run: ActiveRun) -> None:
    """End `run` when this process ends, if it is still open then.

    An exception that reaches the top has failed it, Ctrl-C has killed it, and so has `sys.exit` with another status
    than 0, unless the program caught that and went on with the run.
    """
    exit_ = _Exit(run)
    sys.excepthook = _before(sys.excepthook, exit_.note)
    sys.exit = exit_.noting(sys.exit)
    Finalize(None, exit_.end, exitpriority=_BEFORE_DROPPED_RUNS)


class _Exit:
    """How this process ends, as far as it is known."""

    def __init__(self, run: ActiveRun) -> None:
        self._run = run
        self._process = os.getpid()
        self._error: BaseException | None = None
        self._left_at: int | None = None  # the number of records when `sys.exit` was called

    def note(self, error: BaseException) -> None:
        self._error = error

    def noting(self, leave: Callable[[Any], Any]) -> Any:
        def leave_noted(status: Any = None, /) -> Any:
            if status not in (None, 0):
                self._error, self._left_at = SystemExit(status), len(self._run.history)
            return leave(status)

        return leave_noted

    def end(self) -> None:
        if os.getpid() != self._process or self._run.record.status.is_ended:
            return
        was_caught = self._left_at is not None and self._left_at != len(self._run.history)
        # A process of `multiprocessing` runs this while its exception is being handled, and calls no hook.
        error = sys.exc_info()[1] or (None if was_caught else self._error)
        try:
            end_current_run(None if isinstance(error, SystemExit) and error.code in (None, 0) else error)
        except Exception as fault:  # for example an epoch that was left open: it is in the record
            show_line(f"{self._run.record.name}: {error_line(fault)}")


_Hook = Callable[[type[BaseException], BaseException, TracebackType | None], Any]


def _before(hook: _Hook, note: Callable[[BaseException], None]) -> _Hook:
    def noting_hook(kind: type[BaseException], error: BaseException, traceback: TracebackType | None) -> Any:
        note(error)
        return hook(kind, error, traceback)

    return noting_hook

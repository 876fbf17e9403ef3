"""The end of a run whose program does not end it: by how the process ends."""

import os
import sys
import traceback
from _sitebuiltins import Quitter  # the class of `exit` and `quit`
from multiprocessing.process import BaseProcess
from multiprocessing.util import Finalize
from typing import Any

from runmanager.records.host.standard_streams import show_line
from runmanager.text import error_line
from runmanager.tracking.program.current_run import end_current_run, num_current_records

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

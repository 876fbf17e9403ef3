"""The run folder of a cell, for the program: its supervisor alone writes run.json, the program a file of its own."""

import os
import shutil
import sys
import traceback
from _sitebuiltins import Quitter  # the class of `exit` and `quit`
from multiprocessing.process import BaseProcess
from multiprocessing.util import Finalize
from pathlib import Path
from typing import Any

import msgspec

from runmanager.errors import RecordError, UsageError
from runmanager.records.files.atomic_files import replace_file
from runmanager.records.files.paths import RunPaths
from runmanager.records.host.standard_streams import show_line
from runmanager.records.run.program_report import ProgramReport
from runmanager.records.run.run_record import RunRecord
from runmanager.records.run.status import Status
from runmanager.records.storage.driven_sweep import encode_record
from runmanager.records.storage.reader import read_record, read_report
from runmanager.records.storage.run_folder import RunFolder
from runmanager.text import error_line
from runmanager.tracking.program.current_run import end_current_run, num_current_records

__all__ = ["claim_report", "end_at_exit"]

_REPORTED = tuple(set(ProgramReport.__struct_fields__) - {"schema_version", "attempt", "outcome"})


class ReportedFolder(RunFolder):
    """The folder of a cell for the one process that reports: what belongs into the record goes to reported.json.

    `record` is the run's record as this process knows it.
    """

    is_supervised = True

    @property
    def heartbeat(self) -> Path:
        """A file that changes as the program proceeds, from which its supervisor sees that it does."""
        return self.paths.program_heartbeat

    def write(self, **changes: Any) -> RunRecord:
        """Change fields of the record and replace reported.json."""
        self.refuse_others()
        self.record = msgspec.structs.replace(self.record, **changes)
        outcome = self.record.outcome if self.record.status.is_ended else None
        known = {name: getattr(self.record, name) for name in _REPORTED}
        report = ProgramReport(attempt=self.record.attempt, outcome=outcome, **known)
        replace_file(self.paths.reported, encode_record(report))
        return self.record

    def is_lost(self) -> bool:
        """Whether the supervisor has ended the run, or another attempt has begun."""
        try:
            stored = read_record(self.paths)
        except RecordError:
            return super().is_lost()
        return stored.attempt != self.record.attempt or stored.status.is_ended

    def put_earlier_aside(self) -> Path:
        """Move what an earlier attempt recorded to attempts/<its number>/, returned: this one begins from the start."""
        earlier = self.paths.attempts / str(self.record.attempt - 1)
        paths = self.paths
        for path in (paths.checkpoint, paths.best, paths.epochs, paths.events, paths.reported, paths.turns):
            if path is not None and path.exists():
                earlier.mkdir(parents=True, exist_ok=True)
                shutil.move(path, earlier / path.name)
        return earlier

    def restart(self, record: RunRecord) -> Path:
        """Begin again from the start, though a checkpoint was there; return where the earlier files are."""
        self.refuse_others()
        self.close()
        self.continues = False
        earlier = self.put_earlier_aside()
        self.write(**{name: getattr(record, name) for name in _REPORTED})
        return earlier


def claim_report(paths: RunPaths, *, can_resume: bool) -> ReportedFolder:
    """Become the one process that reports the run of a cell; with `can_resume` it continues from a checkpoint.

    Raises `UsageError` if a process has reported this attempt, or if no run in the folder is running.
    """
    record = read_record(paths)
    if record.status is not Status.RUNNING:
        raise UsageError(
            f"RUNMANAGER_RUN must name a run that is running, got {paths.root}, which is {record.status}; "
            "unset RUNMANAGER_RUN to start a run outside of a sweep."
        )
    try:
        handle = os.open(paths.reporter(record.attempt), os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o666)
    except FileExistsError:
        raise UsageError(
            f"The run of a cell must be started once, got a second start in process {os.getpid()} for {record.name}; "
            "start it in one process, and log everything there."
        ) from None
    os.write(handle, f"{os.getpid()}\n".encode())
    os.close(handle)
    folder = ReportedFolder(paths, msgspec.structs.replace(record, notes=(), deviations=(), summary=msgspec.UNSET))
    folder.continues = can_resume and record.attempt > 1 and paths.checkpoint.exists()
    if not folder.continues:
        folder.put_earlier_aside()
    elif (earlier := read_report(paths)) is not None:
        kept = {name: getattr(earlier, name) for name in ("interval", "summary", "notes", "deviations", "measurements")}
        folder.record = msgspec.structs.replace(folder.record, **kept)
    return folder


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

"""A sweep's driver while its runs run: the display, ends that no run could write itself, the tables, the status."""

import os
import shlex
import shutil
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from types import TracebackType
from typing import Self

from rich.console import Console

from runmanager.app.progress import RunDisplay
from runmanager.errors import RecordError
from runmanager.launching.child import Raised
from runmanager.launching.endings import outcome_of_ending, write_missing_end
from runmanager.launching.engine import Ending, Job, Listener
from runmanager.launching.plan import Action, PlannedRun
from runmanager.records.files import replace_file
from runmanager.records.paths import SweepPaths
from runmanager.records.states import Status
from runmanager.records.store import read_record
from runmanager.tracking.provenance import command_line

__all__ = ["SweepWatcher", "command_name", "outcome_of_ending", "write_tables_alone"]

_TABLES_SHARE = 0.05  # of the driver's time goes into tables while runs run, however many there are
_INTERRUPTED = 130  # 128 + SIGINT, as a shell counts


class SweepWatcher(Listener):
    """Is told by the engine what happens to the runs, in the order in which they were handed to the launcher."""

    def __init__(
        self,
        sweep: SweepPaths,
        plan: Sequence[PlannedRun],
        to_run: Sequence[PlannedRun],
        *,
        epochs: int,
        console: Console,
        quiet: bool,
    ) -> None:
        self._sweep = sweep
        self._plan = plan
        self._to_run = to_run
        self._epochs = epochs
        self._console = console
        self._quiet = quiet
        self._running: dict[int, PlannedRun] = {}
        self._tables_due = 0.0
        self._display = RunDisplay(console, num_runs=len(to_run), quiet=quiet)

    def __enter__(self) -> Self:
        if not self._quiet:
            kept = sum(each.action is Action.KEEP for each in self._plan)
            known = f", {kept} finished already" if kept else ""
            runs = "1 run" if len(self._to_run) == 1 else f"{len(self._to_run)} runs"
            self._display.say(f"{runs} to do{known}, in {self._sweep.root}")
            for each in self._plan:
                if each.action is Action.LEAVE or (each.action is Action.KEEP and "other versions" in each.why):
                    self._display.say(f"{each.paths.name}: {each.why}")
        self._display.__enter__()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._display.__exit__(kind, error, traceback)

    def started(self, job: Job, pid: int) -> None:
        run = self._to_run[job.key]
        self._running[job.key] = run
        self._display.started(run.paths, self._epochs)

    def tick(self) -> None:
        self._display.follow([run.paths for run in self._running.values()])

    def stopping(self, *, at_once: bool) -> None:
        self._display.say("Stopping at once." if at_once else "Stopping after this epoch; Ctrl-C again stops at once.")

    def ended(self, ending: Ending) -> None:
        run = self._running.pop(ending.job.key)
        outcome = outcome_of_ending(ending)
        write_missing_end(run, outcome)
        if isinstance(ending.answer, Raised):
            replace_file(run.paths.error, ending.answer.traceback)
        self._display.ended(run.paths)
        if time.monotonic() >= self._tables_due:
            self._write_tables(report=False)

    def _write_tables(self, *, report: bool) -> None:
        from runmanager.results.write import write_tables

        began = time.monotonic()
        write_tables(self._sweep, report=report)
        ended = time.monotonic()
        self._tables_due = ended + (ended - began) / _TABLES_SHARE

    def finish(self, *, interrupted: bool) -> int:
        """Show the tables, write them with the report, and return the command's exit status."""
        if not self._quiet:
            self._show_tables()
        self._write_tables(report=True)
        if interrupted:
            self._display.say(f"Interrupted. To go on:  {self._resuming_command()}")
            return _INTERRUPTED
        states = [_status(run) for run in self._plan if run.action is not Action.LEAVE]
        return 0 if all(status is not None and status.is_success for status in states) else 1

    def leave(self) -> None:
        """Write the tables as they stand, and say how to follow runs that go on without this driver."""
        self._write_tables(report=False)
        if not self._quiet:
            sweep = shlex.quote(str(self._sweep.root))
            self._display.say("The cells are Slurm's now. To follow them:")
            self._display.say(f"  {command_name()} watch {sweep}")
            self._display.say(f"  {command_name()} table {sweep}")

    def _resuming_command(self) -> str:
        command = shlex.join(command_line())
        return command if any(word.startswith("name=") for word in command_line()) else f"{command} name=NAME"

    def _show_tables(self) -> None:
        from runmanager.results.comparison import compare
        from runmanager.results.reading import read_results
        from runmanager.results.sentences import answers
        from runmanager.results.table import result_rows
        from runmanager.results.terminal import comparison_table, results_table

        sweep, plan = read_results(self._sweep)
        results, comparison = result_rows(sweep, plan), compare(sweep, plan)
        self._console.print()
        self._console.print(results_table(results, width=self._console.width))
        if comparison.rows:
            self._console.print()
            self._console.print(comparison_table(comparison, width=self._console.width))
        self._console.print()
        for sentence in answers(results, comparison):
            self._display.say(sentence)
        self._display.say(f"\nResults: {self._sweep.results('csv')}   Report: {self._sweep.report}")
        self._display.say(f"TensorBoard: {command_name()} tensorboard {shlex.quote(str(self._sweep.root))}")


def write_tables_alone(sweep: SweepPaths) -> None:
    """Write the tables of a sweep that has no driver."""
    from runmanager.results.write import write_tables

    write_tables(sweep, report=False)


def command_name() -> str:
    """How to call the `runmanager` command from here: by its path where it is installed and not on PATH."""
    beside = Path(sys.executable).with_name("runmanager")
    if shutil.which("runmanager") or not beside.exists():
        return "runmanager"
    return shlex.quote(os.path.relpath(beside))


def _status(run: PlannedRun) -> Status | None:
    try:
        return read_record(run.paths).observed().status
    except RecordError:
        return None

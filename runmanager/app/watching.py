"""A sweep's driver while its runs run: the display, ends that no run could write itself, the tables, the status."""

import datetime
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
from runmanager.launching.child import Raised, Returned
from runmanager.launching.engine import Ending, Job, Listener
from runmanager.launching.jobs import outcome_of_ending
from runmanager.launching.plan import Action, PlannedRun
from runmanager.records.files import replace_file
from runmanager.records.paths import SweepPaths
from runmanager.records.run import RunRecord
from runmanager.records.states import Outcome, Status
from runmanager.records.store import encode_record, read_record
from runmanager.tracking.provenance import command_line

__all__ = ["SweepWatcher", "command_name", "outcome_of_ending"]

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
        self._pids: dict[int, int] = {}
        self._went_well: dict[int, bool] = {}
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
        self._pids[job.key] = pid
        self._display.started(run.paths, self._epochs)

    def tick(self) -> None:
        self._display.follow([run.paths for run in self._running.values()])

    def stopping(self, *, at_once: bool) -> None:
        self._display.say("Stopping at once." if at_once else "Stopping after this epoch; Ctrl-C again stops at once.")

    def settled(self, ending: Ending) -> Outcome:
        return self._settle(ending)[0]

    def _settle(self, ending: Ending) -> tuple[Outcome, bool]:
        """What the end was, and whether the run's record says so."""
        run, pid = self._running[ending.job.key], self._pids[ending.job.key]
        record, is_own = _record_of(run, pid)
        if record is None:
            return outcome_of_ending(ending), False
        if record.status.is_ended and (is_own or isinstance(ending.answer, Returned)):
            return record.outcome, True  # the run's own word, or that of another that had it ended before
        outcome = outcome_of_ending(ending)
        if not is_own:
            return outcome, False
        now = datetime.datetime.now(datetime.UTC).isoformat()
        run.paths.root.mkdir(parents=True, exist_ok=True)
        replace_file(run.paths.record, encode_record(record.ended(outcome, at=now)))
        run.paths.heartbeat.unlink(missing_ok=True)
        if isinstance(ending.answer, Raised):
            replace_file(run.paths.error, ending.answer.traceback)
        return outcome, True

    def retrying(self, ending: Ending, outcome: Outcome, *, tries: int, of: int) -> None:
        run = self._running.pop(ending.job.key)
        said = f"{outcome.status} ({outcome.reason}): {outcome.message}"
        self._display.retrying(run.paths, f"{said}; tried again ({tries + 1} of {of})")

    def halted(self) -> None:
        self._display.say("on_error=stop: no further run is begun.")

    def ended(self, ending: Ending) -> None:
        outcome, is_recorded = self._settle(ending)
        run = self._running.pop(ending.job.key)
        self._went_well[ending.job.key] = outcome.status.is_success
        self._display.ended(run.paths)
        if not is_recorded:
            self._display.say(f"  this time: {outcome.status} ({outcome.reason}): {outcome.message}")
        if time.monotonic() >= self._tables_due:
            self._write_tables(report=False)

    def has_claimed(self, key: int) -> bool:
        """Whether the last try of a run has got so far as to have its folder."""
        try:
            owner = read_record(self._to_run[key].paths).owner
        except RecordError:
            return False
        return owner is not None and owner.pid == self._pids.get(key)

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
        is_good = all(status is not None and status.is_success for status in states)
        return 0 if is_good and all(self._went_well.values()) else 1

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


def command_name() -> str:
    """How to call the `runmanager` command from here: by its path where it is installed and not on PATH."""
    beside = Path(sys.executable).with_name("runmanager")
    if shutil.which("runmanager") or not beside.exists():
        return "runmanager"
    return shlex.quote(os.path.relpath(beside))


def _record_of(run: PlannedRun, pid: int) -> tuple[RunRecord | None, bool]:
    """The run's record, and whether it is for the driver to say how process `pid` left it; None: it is damaged.

    It is not where the process died before it could claim a folder that was ended before or is in another's hands.
    """
    try:
        record = read_record(run.paths)
    except RecordError:
        if run.paths.record.exists():
            return None, False  # every reader says so
        return _never_begun(run), True
    owner = record.owner
    if owner is None or owner.pid == pid:
        return record, True
    return record, not record.status.is_ended and owner.is_alive() is False


def _never_begun(run: PlannedRun) -> RunRecord:
    return RunRecord(
        name=run.paths.name,
        signature=run.cell.signature,
        status=Status.PENDING,
        config=dict(run.cell.config),
        started_at=datetime.datetime.now(datetime.UTC).isoformat(),
    )


def _status(run: PlannedRun) -> Status | None:
    try:
        return read_record(run.paths).observed().status
    except RecordError:
        return None

"""The driver's part while runs run: display, ends that runs could not record themselves, tables, exit status."""

import contextlib
import socket
from collections.abc import Callable, Container, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from msgspec.structs import replace

from runmanager.app.display.output import ConsoleOutput
from runmanager.app.display.progress import RunDisplay
from runmanager.app.display.run_line import run_label
from runmanager.app.display.run_times import RunTimes
from runmanager.app.driver.driver_faults import DriverFaults, Telling, require_sweep_folder, write_and_show_results
from runmanager.app.driver.program import Can
from runmanager.app.follow.sweep_feed import SweepFeed
from runmanager.app.follow.sweep_state import SweepReader
from runmanager.launching.job_registry import QUEUE_NAME
from runmanager.launching.local.jobs import Job, Listener, ProcessExit, outcome_of_exit
from runmanager.launching.local.worker import Raised, Returned
from runmanager.launching.plan import Action, PlannedRun, is_still_to_run, stored_record, was_cut_short
from runmanager.records.files.paths import FolderIdentity, RunPaths, SweepPaths
from runmanager.records.run.heartbeat import HeartbeatObserver
from runmanager.records.run.run_record import RunRecord
from runmanager.records.run.status import Outcome, Reason, Status
from runmanager.records.storage.run_end import RunEnd, end_gone_run, end_silent_run, find_end, note_stop, write_end
from runmanager.records.sweep.lookup import command_on
from runmanager.results.write_throttle import WriteThrottle
from runmanager.signals import INTERRUPTED_STATUS
from runmanager.text import pluralize, shell_command

_POLL_SECONDS = 0.2  # between two looks at the cells of other drivers
_AGAIN = "Ctrl-C again stops at once."


Begun = Callable[[], Iterable[tuple[int, PlannedRun, RunRecord]]]
"""Returns the runs that have begun here, with their keys and records."""

Pruner = Callable[[Begun, Callable[[str], None]], Iterable[tuple[int, bool]]]
"""Returns the keys of runs that are to end early, and whether at once, and may say something."""


@dataclass(frozen=True)
class DrivenRuns:
    """The runs of a sweep as a driver has planned them: all, and those that it starts, in this order.

    `skipped` says of cells, by their signatures, why they will be skipped: they are not counted.
    """

    sweep: SweepPaths
    plan: Sequence[PlannedRun]
    to_run: Sequence[PlannedRun]
    skipped: Mapping[str, str] = field(default_factory=dict)


class SweepListener(Listener):
    """Receives the engine's events of the runs, whose keys are their order in the calls of the launcher.

    Other drivers may run cells of the same sweep. Their cells are left to them and followed until they end; `observer`
    judges runs on other hosts. `expected` are the labels of runs that are decided later. `can`: what their program can.
    `pruning` decides which runs are to end early. `plan` has all runs, and `faults` collects errors outside of them.
    """

    when_ended = f"{__name__}:write_tables_alone"

    def __init__(
        self,
        runs: DrivenRuns,
        telling: Telling,
        *,
        observer: HeartbeatObserver | None = None,
        expected: Sequence[str] = (),
        can: Container[Can] = frozenset(Can),
        pruning: Pruner | None = None,
    ) -> None:
        self.sweep = sweep = runs.sweep
        self.plan = plan = list(runs.plan)
        self._to_run = to_run = list(runs.to_run)
        self._telling = telling
        self._elsewhere = [each for each in plan if each.action is Action.LEAVE]
        self._observer = observer or HeartbeatObserver()
        self._reader = SweepReader(sweep, observer=self._observer)
        self._feed = SweepFeed(self._reader)
        self._can = can
        self._pruning = pruning
        self._running: dict[int, PlannedRun] = {}
        self._pids: dict[int, int] = {}
        self._went_well: dict[int, bool] = {}
        self._left: set[int] = set()  # to other processes
        self._has_new_end = False
        self.is_halted = False
        self._has_next_session: Callable[[], bool] = lambda: False
        self._between: dict[str, PlannedRun] = {}
        self._pace = WriteThrottle()
        self.faults = DriverFaults()
        self._folder = FolderIdentity(sweep.root)
        self._ends: dict[int, RunEnd | None] = {}  # None: another process has the run
        self._unwritten: dict[str, tuple[RunPaths, RunRecord]] = {}
        self._skipped = {
            each.paths.name: runs.skipped[each.cell.signature] for each in to_run if each.cell.signature in runs.skipped
        }
        shown = [each for each in (*to_run, *self._elsewhere) if each.paths.name not in self._skipped]
        labels = [*(run_label(each.name) for each in shown), *expected]
        is_live = telling.console.is_interactive and not telling.quiet and bool(labels)
        times = RunTimes.of_plan(plan, sweep) if is_live else RunTimes()
        self._display = RunDisplay(
            ConsoleOutput(telling.console),
            quiet=telling.quiet,
            labels=labels,
            metric=telling.metric,
            to_come={each.paths.name: times.to_come(each, sweep) for each in shown} if is_live else {},
            times=times,
            skipped=self._skipped,
        )

    @contextlib.contextmanager
    def showing_runs(self, lines: Sequence[str] = ()) -> Iterator[None]:
        """A context in which runs are shown, after what is to be done: `lines`, or the plan in words."""
        for line in lines or self._plan_in_words():
            said = self._feed.say(line)
            self._display.show(() if self._telling.quiet else said)
        with self._display.redrawn():
            yield

    def _plan_in_words(self) -> list[str]:
        """What is to be done, and what must be known of some of the cells."""
        counts = [
            (sum(each.action is Action.RESUME for each in self._to_run), "of them resumed"),
            (sum(each.action is Action.KEEP for each in self.plan), "finished already"),
            (sum(each.action is Action.REFUSE for each in self.plan), "refused"),
        ]
        parts = [f"{pluralize(len(self._to_run) - len(self._skipped), 'run')} to do"]
        parts += [f"{number} {what}" for number, what in counts if number]
        if self._skipped:
            whys = ", ".join(dict.fromkeys(self._skipped.values()))
            parts.append(f"{pluralize(len(self._skipped), 'cell')} skipped ({whys})")
        said: dict[str, list[str]] = {}
        for each in self.plan:
            is_kept_though = each.action is Action.KEEP and (each.changes or each.is_damaged)
            is_special = each.action in (Action.LEAVE, Action.MEASURE, Action.REFUSE) or each.continuation is not None
            if is_special or is_kept_though or each.variables:
                said.setdefault(each.why, []).append(run_label(each.name))
            if each.lacks:
                said.setdefault(each.lacks, []).append(run_label(each.name))
        notes = [", ".join([*parts, f"in {self.sweep.root}"])]
        for why, labels in said.items():
            more = f" and {pluralize(len(labels) - 1, 'other')}" if len(labels) > 1 else ""
            notes.append(f"{labels[0]}{more}: {why}")
        return notes

    def wants(self, key: int) -> bool:
        require_sweep_folder(self.sweep, self._folder)
        run = self._to_run[key]
        record = stored_record(run)
        if is_still_to_run(run, record):
            return True
        if record is not None and record.status.is_ended:
            self._display.show(self._feed.end(run.paths))
        else:
            self._elsewhere.append(run)
        self._left.add(key)
        return False

    def started(self, job: Job, pid: int) -> None:
        run = self._to_run[job.key]
        self._running[job.key] = run
        self._pids[job.key] = pid
        record = replace(run.pending_record(), status=Status.RUNNING, epochs_planned=run.cell.epochs)
        self._display.show(self._feed.begin(run.paths, record))
        if self._has_new_end and self._pace.is_due:  # while a run works, so that it costs no time
            self._write_tables_meanwhile()

    def tick(self) -> None:
        require_sweep_folder(self.sweep, self._folder)
        self._display.show(())
        is_last_batch = len(self._went_well) + len(self._running) >= len(self._to_run)
        if self._has_new_end and is_last_batch and self._running and self._pace.is_due:
            self._write_tables_meanwhile()

    def unwanted(self) -> Iterable[tuple[int, bool]]:
        return () if self._pruning is None else self._pruning(self._begun_here, self.say)

    def _begun_here(self) -> Iterator[tuple[int, PlannedRun, RunRecord]]:
        """The runs that processes of this driver have claimed, with their keys and records."""
        for key, run in self._running.items():
            record = stored_record(run)
            if record is not None and record.owner is not None and record.owner.pid == self._pids[key]:
                yield key, run, record

    def stopping(self, *, at_once: bool) -> None:
        for _, run, record in self._begun_here():  # before they are asked: whatever they make of it, it is known
            note_stop(run.paths, record.attempt)
        self._display.is_stopping = True
        stops_after_epoch = not self._running or Can.STOP_AFTER_EPOCH in self._can
        line = f"Stopping{' after this epoch' if stops_after_epoch else ': the program is asked to end (SIGTERM)'}"
        self.say("Stopping at once." if at_once else f"{line}.", here="" if at_once else f"{line}; {_AGAIN}")

    def finalize(self, ending: ProcessExit) -> None:
        require_sweep_folder(self.sweep, self._folder)  # or its end would be written into a folder made for it
        key = ending.job.key
        run, pid = self._running[key], self._pids[key]
        if _is_anothers(run, ending, pid):
            self._ends[key] = None
            return
        returned = isinstance(ending.answer, Returned)
        end = find_end(run.paths, pid, outcome_of_exit(ending), pending=run.pending_record(), has_returned=returned)
        if (record := end.to_write) is not None:
            traceback = ending.answer.traceback if isinstance(ending.answer, Raised) else None
            try:
                write_end(run.paths, record, traceback=traceback)
                end = RunEnd(end.outcome, is_recorded=True)
            except OSError as error:  # a full disk must not end the other runs
                self.say(f"The end of {run.name} could not be written: {error} Tried again at the end.")
                self._unwritten[run.paths.name] = run.paths, record
        self._ends[key] = end

    def outcome(self, ending: ProcessExit) -> Outcome:
        end = self._ends[ending.job.key]
        return Outcome(Status.FINISHED) if end is None else end.outcome  # having come too late is not a failure

    def retrying(self, ending: ProcessExit, outcome: Outcome, *, tries: int, of: int) -> None:
        run = self._running.pop(ending.job.key)
        self._ends.pop(ending.job.key, None)
        self._unwritten.pop(run.paths.name, None)
        message = f"{outcome.status} ({outcome.reason}): {outcome.message}; retried ({tries + 1} of {of})"
        self.say(f"{run_label(run.name)}  {message}", retried=run.paths)

    def halted(self) -> None:
        self.is_halted = True
        self.say("on_error=stop: no further run is started.")

    def ended(self, ending: ProcessExit) -> None:
        run, end = self._running.pop(ending.job.key), self._ends.pop(ending.job.key)
        if end is None:
            self._elsewhere.append(run)
            self._left.add(ending.job.key)
            return
        outcome = end.outcome
        self._went_well[ending.job.key] = outcome.status.is_success
        if outcome.status.is_success and self._has_next_session():
            self._between[run.paths.name] = run
            return
        self._between.pop(run.paths.name, None)
        self._display.show(self._feed.end(run.paths))
        if not end.is_recorded:
            self.say(f"  this time: {outcome.status} ({outcome.reason}): {outcome.message}")
        self._has_new_end = True

    @contextlib.contextmanager
    def sessions(self, has_next: Callable[[], bool]) -> Iterator[None]:
        """A context of paired sessions: while `has_next`, a run that ended well is still shown as running."""
        self._has_next_session = has_next
        try:
            yield
        finally:
            self._has_next_session = lambda: False
            for run in self._between.values():  # no further session was started
                self._display.show(self._feed.end(run.paths))
            self._between.clear()

    def follow_other_drivers(self) -> list[PlannedRun]:
        """Follow the cells of other drivers until they end; return those that were left undone.

        Raises `KeyboardInterrupt` on Ctrl-C or SIGTERM.
        """
        # Of cells that another launcher has started nothing was said when they ended.
        silent = [run for key, run in enumerate(self._to_run) if key not in self._pids and run not in self._elsewhere]
        running = [run for run in silent if (record := stored_record(run)) and record.status is Status.RUNNING]
        followed, self._elsewhere = [*self._elsewhere, *running], []
        waited = [run.paths for run in followed]
        while waited:
            for cell in self._reader.read(waited).cells:
                if cell.is_ended:
                    end_silent_run(cell.paths, self._observer)  # if it has vanished with its host
            self._display.show(self._feed.poll(waited))
            waited = [cell.paths for cell in self._feed.state.cells if cell.is_running]
            if waited:
                self._observer.wait(_POLL_SECONDS)
        return [run for run in followed if (record := stored_record(run)) is None or was_cut_short(record)]

    def take(self, runs: Sequence[PlannedRun]) -> int:
        """Add runs; return the key of the first."""
        self._to_run += runs
        return len(self._to_run) - len(runs)

    def add(self, plan: Sequence[PlannedRun]) -> tuple[list[PlannedRun], int]:
        """Add runs that were decided late; return those that are to run, and the key of the first."""
        self.plan += plan
        self._elsewhere += [each for each in plan if each.action is Action.LEAVE]
        to_run = [each for each in plan if each.is_to_run]
        first = self.take(to_run)
        self._display.num_runs = max(self._display.num_runs, len(self._to_run))
        return to_run, first

    def is_over(self, key: int) -> bool:
        """Whether this driver has nothing more to do with a run: it has ended, or is another's."""
        return key in self._went_well or key in self._left

    def has_claimed(self, key: int) -> bool:
        """Whether the last attempt of a run has claimed its folder."""
        record = stored_record(self._to_run[key])
        return record is not None and record.owner is not None and record.owner.pid == self._pids.get(key)

    @property
    def has_begun(self) -> bool:
        """Whether any planned run has begun."""
        before = [(0 if run.stored is None else run.stored.attempt, stored_record(run)) for run in self._to_run]
        return bool(self._pids) or any(record is not None and record.attempt > attempt for attempt, record in before)

    def say(self, line: str, *, here: str = "", retried: RunPaths | None = None) -> None:
        """Say a sentence, also to those who follow the sweep; `here` is how it is put for the driver's own user."""
        self._display.show(self._feed.say(line, here=here, retried=retried))

    def _write_tables_meanwhile(self) -> None:
        self._has_new_end = False
        try:
            self._write_tables()
        except Exception as error:  # must not end the runs, whose results are in their records
            self.say(f"The tables could not be written ({type(error).__name__}: {error}); tried again later.")

    def _write_tables(self) -> None:
        from runmanager.results.result_files import write_tables

        with self._pace.writing():
            write_tables(self.sweep, report=False)

    def finish(self, *, interrupted: bool) -> int:
        """Show the tables, write them with the report, and return the command's exit status.

        Raises `KeyboardInterrupt` if the user does not want to wait for them.
        """
        with self.faults.kept("The sweep"):
            require_sweep_folder(self.sweep, self._folder)
        if self._folder.loss:
            return 1
        for name, (paths, record) in self._unwritten.items():
            with self.faults.kept(f"The end of {name} could not be written"):
                write_end(paths, record)
        if interrupted:
            self._record_skipped()
        write_and_show_results(self.sweep, self._telling, self.faults)
        if interrupted:
            return self._interrupted()
        records = [stored_record(run) for run in self.plan]
        is_good = all(record is not None and record.status.is_success for record in records)
        return 0 if is_good and all(self._went_well.values()) else 1

    def finish_at_once(self) -> int:
        """Say how many cells ended how, without the tables, and return the exit status of an interrupted command."""
        if not self._telling.quiet:
            with self.faults.kept("The results could not be shown"):
                self._display.say(self._reader.read().in_words())
        return self._interrupted()

    def _interrupted(self) -> int:
        if self._telling.resuming:
            self._display.say_commands("Interrupted. To resume:", shell_command(self._telling.resuming))
        return INTERRUPTED_STATUS

    def _record_skipped(self) -> None:
        """Record the cells without a device that an interrupt has left: they are counted as without it."""
        for run in self._to_run:
            if (why := self._skipped.get(run.paths.name)) and stored_record(run) is None:
                skipped = Outcome(Status.SKIPPED, Reason.DEVICE_UNAVAILABLE, why)
                with self.faults.kept(f"The end of {run.name} could not be written"):
                    end_gone_run(run.paths, skipped, pending=run.pending_record())

    def leave(self) -> None:
        """Write the current tables, and print how to follow the runs, which continue without this driver."""
        with self.faults.kept("The tables could not be written"):
            self._write_tables()
        if not self._telling.quiet:
            commands = [command_on(self.sweep, name) for name in ("watch", "table")]
            self._display.say_commands(f"The cells are submitted to {QUEUE_NAME}. To follow them:", *commands)


def write_tables_alone(sweep: SweepPaths) -> None:
    """Write the tables of a sweep without a driver, and its report once its last cell has ended."""
    from runmanager.results.result_files import write_tables

    write_tables(sweep, report=all(cell.is_ended for cell in SweepReader(sweep).read().cells))


def _is_anothers(run: PlannedRun, ending: ProcessExit, pid: int) -> bool:
    """Whether another process than the one that ended, `pid`, has the run: that one had come too late."""
    record = stored_record(run)
    if record is not None and isinstance(ending.answer, Raised) and ending.answer.is_busy:
        return True  # whatever has become of it since
    if record is None or record.owner is None or record.status is not Status.RUNNING:
        return False
    if record.owner.pid == pid and record.owner.host == socket.gethostname():
        return False
    lives = record.owner.is_alive()
    # A process on another host cannot be checked: then ours lost the claim, unless it died.
    return isinstance(ending.answer, Returned) if lives is None else lives

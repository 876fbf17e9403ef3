"""The driver of a sweep of any program: checks every cell, plans the sweep, and runs what is missing."""

import contextlib
import os
import signal
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from hydra.core.utils import JobReturn
from rich.console import Console

from runmanager.app.display.final_summary import announce_end, notification_faults, ring, show_duel, show_results
from runmanager.app.display.output import line_of, make_console
from runmanager.app.display.progress import ShownMetric
from runmanager.app.driver.deciding import Deciding, DecidingOptions
from runmanager.app.driver.driver_faults import Telling
from runmanager.app.driver.preflight import (
    predict_skipped,
    refuse_literal_secrets,
    require_creatable_output_root,
    require_output_root,
)
from runmanager.app.driver.program import CellGrid, Program
from runmanager.app.driver.run_listener import DrivenRuns, SweepListener
from runmanager.app.driver.search import Search, SearchOptions
from runmanager.app.driver.sweep_plan import (
    LateCells,
    end_silent_runs,
    mixing_notices,
    named_in_sweep,
    plan_sweep,
    print_plan,
    with_kept_cells,
    write_plan,
)
from runmanager.errors import ConfigurationError, SweepError, UsageError
from runmanager.launching.launcher import CellJob, CellLauncher, Trait, never_started
from runmanager.launching.plan import Action, PlannedRun, stored_record
from runmanager.launching.work import Work
from runmanager.race.pairing import Pairing, make_pairing, pairing_notices
from runmanager.records.files.paths import RunPaths, SweepPaths
from runmanager.records.host.process import ProcessIdentity
from runmanager.records.run.heartbeat import SILENT_AFTER_SECONDS, HeartbeatObserver, timeout_faults
from runmanager.records.settings.grid import Order
from runmanager.records.storage.ownership import DRIVEN_VARIABLE
from runmanager.records.sweep.sweep_record import fresh_sweep_folder, leave_sweep
from runmanager.signals import INTERRUPTED_STATUS, handle_signals
from runmanager.text import pluralize
from runmanager.tracking.environment.cell_process import runs_within, telling_sweep
from runmanager.tracking.environment.environment import command_line
from runmanager.validation import fault

_CONFIRM_FROM = 200  # cells; smaller sweeps start without confirmation


@dataclass(frozen=True)
class DriverOptions:
    """How a sweep is driven.

    `is_single`: the command is for one run, so that a missing device is an error. `heartbeat_timeout`: seconds without
    a heartbeat after which a run on another host counts as gone; `timeout_name` is its name for users. `named`: how a
    command names its sweep, given the command and the name. `notify` is where the end is announced, `notify_name` the
    option's name for users. `restore`: whether cells that were removed are run again. `metric` comes first in the live
    table, and cells are ranked by it; `without_metrics` says how to get one, given a run that recorded none. `resumes`:
    whether the command continues the sweep after an interrupt. `order` is how the new cells of a block of one seed
    start (see `Order`; None: the default, and where cells take turns their own), `order_name` the option's name for
    users. `search`: the cells are not those of a grid, but decided one by one; `deciding`: so are those of the grid.
    """

    is_single: bool = False
    dry_run: bool = False
    quiet: bool = False
    yes: bool = False
    heartbeat_timeout: float = SILENT_AFTER_SECONDS
    timeout_name: str = "hydra.sweeper.heartbeat_timeout"
    notify: str | None = None
    notify_name: str = "--notify"
    restore: bool = False
    resumes: bool = True
    order: str | None = None
    order_name: str = "--order"
    search: SearchOptions | None = None
    deciding: DecidingOptions | None = None
    metric: str | None = None
    without_metrics: Callable[[RunPaths], str] = lambda _: ""
    named: Callable[[Sequence[str], str], Sequence[str]] = lambda command, name: (*command, f"name={name}")

    def __post_init__(self) -> None:
        if faults := timeout_faults(self.timeout_name, self.heartbeat_timeout):
            raise ConfigurationError(faults)


class SweepDriver:
    """Drives one sweep of a program by a launcher.

    `run` raises `ConfigurationError` with every fault before anything runs, and `SystemExit` with the command's status
    if it is not 0.
    """

    def __init__(
        self, program: Program, launcher: CellLauncher, options: DriverOptions, *, console: Console | None = None
    ) -> None:
        self._program = program
        self._launcher = launcher
        self._options = options
        self._observer = HeartbeatObserver(limit_seconds=options.heartbeat_timeout)
        self._queued: Mapping[str, str] = {}
        self._console = console or make_console()
        self._pairing: Pairing | None = None
        self._num_ignored_signals = 0
        self._late: LateCells | None = None
        self._start_ranks: dict[str, int] = {}
        self._grid_ranks: dict[str, int] = {}

    def run(self) -> Sequence[JobReturn]:
        """Run the cells that are missing, and return their results in order; none for a dry run."""
        options, search = self._options, self._options.search
        if faults := notification_faults(options.notify, option=options.notify_name, is_detached=self._is_detached):
            raise ConfigurationError(faults)
        num_cells = self._program.count_cells() if search is None else search.trials or 1
        self._confirm(num_cells)
        if not self._options.dry_run:
            self._program.get_ready(self._launcher, num_cells=num_cells)  # while the cells are composed and checked
        if search is None:
            grid = self._program.compose()
        else:
            grid = search.corners(self._program, self._launcher, is_single=options.is_single)
        if search is None or options.restore:
            grid = with_kept_cells(grid, restore=options.restore)
        refuse_literal_secrets(self._launcher, grid.cells)
        self._pairing = make_pairing(
            grid.paired, grid.cells, self._launcher, derived=lambda: grid.derived, seed_names=grid.seed_names
        )
        if options.deciding is not None:
            options.deciding.refuse_unfit(grid, self._launcher, is_single=options.is_single)
        if self._pairing is not None and options.order is not None:
            rule, way_out = "be left out where cells take turns", "each group of them runs at once"
            raise ConfigurationError([fault(options.order_name, rule, options.order, way_out)])
        storage = grid.storage
        sweep = None if storage.name is None else SweepPaths(Path(storage.output_root) / storage.name)
        if sweep is not None and runs_within(sweep.root):
            raise UsageError(
                f"A sweep that a cell starts must have a name of its own, got that of the sweep around it, "
                f"{sweep.root}, which would wait for itself; give another name, or none."
            )
        grid = named_in_sweep(grid, sweep)
        for line in (*grid.notes, *mixing_notices(grid, sweep)):
            self._print_line(line)
        plan = self._planned(grid, sweep)
        to_run = [each for each in plan if each.is_to_run]
        batches = self._batches(to_run)
        self._program.check_capacity(self._launcher, batches, take_turns=self._pairing is not None)
        if options.dry_run:
            require_creatable_output_root(Path(storage.output_root) if sweep is None else sweep.root)
            self._launcher.check()
            self._program.check(self._launcher, to_run, needs_all=self._needs_all(grid), is_dry_run=True)
            self._print_pairing_notices(grid)
            if late := self._late_cells(sweep or SweepPaths(Path("<new>")), grid):
                for line in late.in_words(self._launcher):
                    self._console.print(line_of(line, self._console), soft_wrap=True)
            else:
                shown = self._predict_skipped(plan, needs_all=self._needs_all(grid))
                at_once = self._launcher.place.at_once
                print_plan(shown, sweep, grid, self._console, workers=at_once, order=self._order)
            return []
        if end_silent_runs(plan, self._observer, apart_from=self._queued, say=self._print_line):
            plan = self._planned(grid, sweep)
            to_run = [each for each in plan if each.is_to_run]
        self._program.check(self._launcher, to_run, needs_all=self._needs_all(grid))
        skipped = self._to_be_skipped(to_run)
        with require_output_root(Path(storage.output_root)):
            sweep = sweep or fresh_sweep_folder(Path(storage.output_root))
        self._print_pairing_notices(grid)
        if (late := self._late_cells(sweep, grid)) is not None:
            self._late, grid, plan, skipped = late, replace(grid, cells=(), axes={}), [], {}
        return self._run(grid, plan, sweep, skipped)

    def _late_cells(self, sweep: SweepPaths, grid: CellGrid) -> LateCells | None:
        given, plan, metric = self._options, self._planned, self._options.metric
        if given.search is not None:
            return Search(given.search, sweep, grid, self._program, plan, metric=metric, restore=given.restore)
        return Deciding(sweep, grid, plan, metric=metric, options=given.deciding) if given.deciding else None

    def _to_be_skipped(self, to_run: Sequence[PlannedRun]) -> dict[str, str]:
        """Why cells will be skipped, by signature: their processes record it, but there is nothing to do in them.

        Which devices other launchers find is not known.
        """
        if Trait.HERE not in self._launcher.traits:
            return {}
        found = self._predict_skipped(to_run)
        return {each.cell.signature: each.why for each in found if each.action is Action.SKIP}

    def _print_line(self, line: str) -> None:
        if not self._options.quiet:
            self._console.print(line_of(line, self._console), soft_wrap=True)

    def _print_pairing_notices(self, grid: CellGrid) -> None:
        for line in pairing_notices(self._pairing, grid.cells, in_epochs=grid.in_epochs, is_duel=bool(grid.sides)):
            self._print_line(line)

    def _planned(self, grid: CellGrid, sweep: SweepPaths | None) -> list[PlannedRun]:
        plan = self._plan_of(grid, sweep)
        if self._pairing is not None:
            plan = self._pairing.with_partners(plan, self._predict_skipped)
        return plan if sweep is None else self._with_queue(grid, plan, sweep)

    def _plan_of(self, grid: CellGrid, sweep: SweepPaths | None) -> list[PlannedRun]:
        search = self._options.search
        return plan_sweep(self._program, grid, sweep, keeps_pruned=bool(search and search.prune))

    def _predict_skipped(self, plan: Sequence[PlannedRun], *, needs_all: bool = False) -> Sequence[PlannedRun]:
        return predict_skipped(self._launcher, plan, can=self._program.can, needs_all=needs_all)

    def _with_queue(self, grid: CellGrid, plan: list[PlannedRun], sweep: SweepPaths) -> list[PlannedRun]:
        """The plan with jobs of earlier drivers: a run without its job has ended, and a queued cell is left to its job.

        A driver that waits also passes the queued cells to its launcher, which waits for them and submits none twice.
        """
        if self._launcher.settle(plan, sweep):
            plan = self._plan_of(grid, sweep)
        self._queued = queued = self._launcher.queued(sweep)
        action = Action.LEAVE if self._is_detached or self._options.dry_run else Action.RESUME
        return [
            replace(each, action=action, why=queued[each.paths.name])
            if each.paths.name in queued and each.action not in (Action.KEEP, Action.REFUSE)
            else each
            for each in plan
        ]

    def _needs_all(self, grid: CellGrid) -> bool:
        """Whether a missing device makes the other cells useless: for a duel and for a single run."""
        return bool(grid.sides) or (len(grid.cells) == 1 and self._options.is_single)

    def _confirm(self, num_cells: int) -> None:
        can_ask = sys.stdin.isatty() and self._console.is_terminal
        if self._options.dry_run or self._options.yes or num_cells < _CONFIRM_FROM or not can_ask:
            return
        answer = self._console.input(f"Run up to {pluralize(num_cells, 'cell')}? [y/N] ", markup=False)
        if answer.strip().lower() not in ("y", "yes"):
            raise UsageError("Nothing was run.")

    def _run(
        self, grid: CellGrid, plan: Sequence[PlannedRun], sweep: SweepPaths, skipped: Mapping[str, str]
    ) -> Sequence[JobReturn]:
        driver = ProcessIdentity.current()
        os.environ[DRIVEN_VARIABLE] = os.path.abspath(sweep.root)  # noqa: PTH100  # keeps links
        with require_output_root(sweep.root.parent):
            plan, record = write_plan(sweep, plan, grid, driver, metric=self._options.metric, order=self._order)
        self._start_ranks = {signature: rank for rank, signature in enumerate(record.starts)}
        self._grid_ranks = {each.cell.signature: rank for rank, each in enumerate(plan)}
        detached = self._is_detached
        try:
            to_run = [run for batch in self._batches([each for each in plan if each.is_to_run]) for run in batch]
            listener = SweepListener(
                DrivenRuns(sweep, plan, to_run, skipped),
                Telling(
                    self._console,
                    quiet=self._options.quiet,
                    metric=ShownMetric(self._options.metric, self._options.without_metrics),
                    show=show_duel if grid.sides else self._show_results,
                    resuming=self._resuming_command(grid, sweep),
                ),
                observer=self._observer,
                expected=self._late.expected() if self._late else (),
                can=self._program.can,
                pruning=self._late.unwanted if self._late else None,
            )
            with handle_signals((signal.SIGINT, signal.SIGTERM), self._on_signal), telling_sweep(sweep.root):
                returns, interrupted = self._launch(listener, to_run)
                if detached:
                    listener.leave()
                status = 0 if detached else self._finish(listener, interrupted=interrupted)
                if not detached:
                    self._announce_end(sweep, listener.plan, interrupted=status == INTERRUPTED_STATUS)
        finally:
            with contextlib.suppress(OSError):  # a full disk: readers see that this driver's process is gone
                leave_sweep(sweep, driver)
        if listener.faults.lines:
            raise SweepError("\n".join(listener.faults.lines)) from listener.faults.error
        if status:
            raise SystemExit(status)
        return returns

    def _on_signal(self) -> None:
        """Handle Ctrl-C and SIGTERM wherever nothing else does."""
        if self._num_ignored_signals == 0:
            raise KeyboardInterrupt
        self._num_ignored_signals -= 1

    def _finish(self, listener: SweepListener, *, interrupted: bool) -> int:
        try:
            return listener.finish(interrupted=interrupted)
        except KeyboardInterrupt:
            self._num_ignored_signals = sys.maxsize
            return listener.finish_at_once()

    def _announce_end(self, sweep: SweepPaths, plan: Sequence[PlannedRun], *, interrupted: bool) -> None:
        runs = [stored_record(run) for run in plan]
        if self._options.notify is not None:
            announce_end(self._options.notify, sweep, runs, interrupted=interrupted)
        elif not self._options.quiet:
            ring(self._console, sweep, runs)

    def _show_results(self, sweep: SweepPaths, console: Console, is_written: bool) -> None:
        options = self._options
        show_results(sweep, console, is_written, metric=options.metric, without_metrics=options.without_metrics)

    def _resuming_command(self, grid: CellGrid, sweep: SweepPaths) -> Sequence[str]:
        if not self._options.resumes:
            return ()
        command = command_line()
        return command if grid.storage.name is not None else self._options.named(command, sweep.name)

    def _launch(self, listener: SweepListener, to_run: Sequence[PlannedRun]) -> tuple[Sequence[JobReturn], bool]:
        """Run the cells, follow those of other drivers, and run what these leave undone.

        Returns the launcher's results, and whether the user interrupted. Once a run has begun, an error of the
        launcher is added to the listener's faults.
        """
        returns: list[JobReturn] = []
        first, late = 0, self._late
        with listener.showing_runs(late.in_words(self._launcher) if late else ()):
            try:
                if late is not None:
                    jobs = late.jobs(listener, self._launcher, lambda *runs: self._jobs(listener, *runs))
                    returns += self._launcher.run(jobs, listener).values()
                while True:
                    for batch in self._batches(to_run):
                        if not listener.is_halted:
                            returns += self._launch_batch(listener, batch, first)
                        first += len(batch)
                    to_run = [] if self._is_detached else listener.follow_other_drivers()
                    if not to_run:
                        return returns, False
                    to_run = [run for batch in self._batches(to_run) for run in batch]
                    first = listener.take(to_run)
            except KeyboardInterrupt:
                self._num_ignored_signals = 1  # a second Ctrl-C may find that all runs have ended by then
                return returns, True
            except (Exception, SystemExit) as error:
                if not listener.has_begun:
                    raise
                listener.faults.add("The launcher failed", error)
                return returns, False

    def _batches(self, runs: Sequence[PlannedRun]) -> list[list[PlannedRun]]:
        """The runs of each call of the launcher: all together, or the groups of a paired sweep one by one.

        They are in the order in which they start, as soon as that is stored.
        """
        if self._pairing is not None:
            return self._pairing.batches(runs)
        ordered = sorted(runs, key=lambda run: self._start_ranks.get(run.cell.signature, 0))
        return [ordered] if ordered else []

    @property
    def _is_detached(self) -> bool:
        return Trait.DETACHED in self._launcher.traits

    @property
    def _order(self) -> str | None:
        has_own = self._pairing is not None or self._late is not None
        return None if has_own else self._options.order or Order.RANDOM

    def _launch_batch(self, listener: SweepListener, batch: Sequence[PlannedRun], first: int) -> Sequence[JobReturn]:
        """Run a batch, whose keys count from `first`: once for each session where its runs take turns.

        Returns the results in the order of the grid, those of the first session.
        """
        run, jobs = self._launcher.run, self._jobs(listener, batch, first)
        if self._pairing is None:
            returns = run(jobs, listener)
            jobs = sorted(jobs, key=lambda job: self._grid_ranks.get(batch[job.key - first].cell.signature, 0))
        else:
            sessions = self._pairing.sessions(batch)
            with listener.sessions(lambda: sessions.has_next):
                returns = run(jobs, listener, sessions.start(batch, first))
                while not listener.is_halted and (again := sessions.next_runs()):
                    first = listener.take(again)
                    run(self._jobs(listener, again, first, is_begun=True), listener, sessions.start(again, first))
        return [returns.get(job.key) or never_started(job.overrides) for job in jobs]

    def _jobs(
        self, listener: SweepListener, batch: Sequence[PlannedRun], first: int, *, is_begun: bool = False
    ) -> list[CellJob]:
        """The jobs of a batch; `is_begun`: this command has already run it once."""

        def job_of(key: int, run: PlannedRun) -> CellJob:
            def work(number: int) -> Work:
                # A retry within this command resumes, even under resume=never.
                is_again = is_begun or (number > 1 and listener.has_claimed(key))
                return self._program.work(self._launcher, run, listener.sweep, key=key, is_again=is_again)

            return CellJob(key, self._program.hydra_overrides(run, listener.sweep), work, run.cell.device, run)

        return [job_of(key, run) for key, run in enumerate(batch, first)]

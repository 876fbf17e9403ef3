"""The sweeper `hydra/sweeper=grid`: checks every cell, plans the sweep, and runs what is missing."""

import contextlib
import os
import shlex
import sys
from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

from hydra.core.config_store import ConfigStore
from hydra.core.plugins import Plugins
from hydra.core.utils import JobReturn
from hydra.plugins.sweeper import Sweeper
from hydra.types import HydraContext, TaskFunction
from omegaconf import DictConfig, OmegaConf

from runmanager.app.compose.cell_loader import CellLoader
from runmanager.app.compose.compose_cells import Grid, parse_overrides, prepare_cells
from runmanager.app.compose.grid_size import count_cells
from runmanager.app.compose.override_quoting import quote_text
from runmanager.app.display.final_summary import show_duel, show_results
from runmanager.app.display.output_console import make_console
from runmanager.app.driver.host_capacity import check_host_capacity
from runmanager.app.driver.other_drivers import end_silent_runs
from runmanager.app.driver.paired_grouping import infer_compared_axis, make_pairing, pairing_notices
from runmanager.app.driver.preflight import check_planned_runs, predict_skipped, require_output_root, warm_up
from runmanager.app.driver.run_listener import SweepListener
from runmanager.app.driver.sweep_plan import assign_folder, overrides_of, plan_sweep, write_plan
from runmanager.app.sweeper_options import GridSweeperOptions
from runmanager.errors import ConfigurationError, SweepError, UsageError
from runmanager.launching.hydra_launcher import JobFacts, LocalLauncher, register_plugin
from runmanager.launching.local.turn_keeper import TurnKeeper
from runmanager.launching.plan import Action, PlannedCells, PlannedRun
from runmanager.launching.slurm.launcher import SlurmLauncher
from runmanager.records.files.paths import SweepPaths
from runmanager.records.host.process import ProcessIdentity
from runmanager.records.run.heartbeat import HeartbeatObserver, timeout_faults
from runmanager.records.storage.reader import SweepContents, read_sweep
from runmanager.records.sweep.sweep_record import add_cells, fresh_sweep_folder, leave_sweep, read_sweep_record
from runmanager.text import pluralize
from runmanager.tracking.environment.environment import DRIVEN_VARIABLE, command_line

__all__ = ["GridSweeper", "register_sweeper"]

_CONFIRM_FROM = 200  # cells; smaller sweeps start without confirmation
_WARM_UP_FROM = 20  # cells; fewer are composed quickly, and there may be nothing to run
_FOLDERS = ("hydra.sweep.dir", "hydra.sweep.subdir", "hydra.run.dir")


class GridSweeper(Sweeper):
    """Expands a grid and lets the launcher run the missing cells.

    Raises `ConfigurationError` with every fault before anything runs, and `SystemExit` with the command's status if it
    is not 0.
    """

    def __init__(
        self,
        params: dict[str, str],
        sides: list[str] | None,
        multirun: bool,
        dry_run: bool,
        quiet: bool,
        yes: bool,
        heartbeat_timeout: float,
    ) -> None:
        if faults := timeout_faults("hydra.sweeper.heartbeat_timeout", heartbeat_timeout):
            raise ConfigurationError(faults)
        self._params = params
        self._sides = [shlex.split(side) for side in sides or ()]
        self._multirun = multirun
        self._dry_run = dry_run
        self._quiet = quiet
        self._yes = yes
        self._observer = HeartbeatObserver(limit_seconds=heartbeat_timeout)
        self._queued: dict[str, str] = {}
        self._console = make_console()

    def setup(self, *, hydra_context: HydraContext, task_function: TaskFunction, config: DictConfig) -> None:
        """Set up the config loader and the launcher; called by Hydra."""
        self._loader = CellLoader(hydra_context.config_loader)  # type: ignore[arg-type]  # its only class
        self._master = config
        context = HydraContext(config_loader=self._loader, callbacks=hydra_context.callbacks)
        # Instantiated here, so that a wrong launcher setting is rejected first.
        self._launcher = Plugins.instance().instantiate_launcher(
            hydra_context=context, task_function=task_function, config=config
        )

    def sweep(self, arguments: list[str]) -> Any:
        """Run the grid; called by Hydra with the overrides that are not Hydra's."""
        words = [f"{key}={value}" for key, value in self._params.items()] + arguments
        self._refuse_folders()
        self._refuse_hidden_grid(words)
        self._confirm(
            num_cells := count_cells(parse_overrides(self._loader, words), num_sides=max(1, len(self._sides)))
        )
        if not self._dry_run and num_cells >= _WARM_UP_FROM:
            warm_up(self._launcher, num_jobs=num_cells)  # while the cells are composed and checked
        grid = self._grid(words)
        self._pairing = make_pairing(grid, self._launcher)
        for line in pairing_notices(grid, self._pairing):
            self._print_line(line)
        first = grid.configs[0]
        sweep = None if first.name is None else SweepPaths(Path(first.output_root) / first.name)
        plan = self._planned(grid, sweep)
        to_run = [each for each in plan if each.is_to_run]
        batches = grid.configs_of(self._batches(to_run))
        check_host_capacity(self._launcher, batches, take_turns=self._pairing is not None)
        if self._dry_run:
            self._show(predict_skipped(self._launcher, plan, needs_all=self._needs_all(grid)), sweep, grid)
            return []
        if end_silent_runs(plan, self._observer, apart_from=self._queued, say=self._print_line):
            plan = self._planned(grid, sweep)
            to_run = [each for each in plan if each.is_to_run]
        check_planned_runs(self._launcher, grid, to_run, needs_all=self._needs_all(grid))
        with require_output_root(Path(first.output_root)):
            sweep = sweep or fresh_sweep_folder(Path(first.output_root))
        return self._run(grid, plan, sweep)

    def _grid(self, words: Sequence[str]) -> Grid:
        """The cells; those of a paired sweep with `measure.axis` set, so that it is in every run's record."""
        grid = prepare_cells(self._loader, self._master, words, sides=self._sides)
        axis = infer_compared_axis(grid)
        if axis is None:
            return grid
        return prepare_cells(
            self._loader, self._master, [*words, f"measure.axis={quote_text(axis)}"], sides=self._sides
        )

    def _print_line(self, line: str) -> None:
        if not self._quiet:
            self._console.print(line, markup=False, soft_wrap=not self._console.is_terminal)

    def _planned(self, grid: Grid, sweep: SweepPaths | None) -> list[PlannedRun]:
        plan = plan_sweep(grid, sweep)
        if self._pairing is not None:
            plan = self._pairing.with_partners(plan, partial(predict_skipped, self._launcher, needs_all=False))
        if isinstance(self._launcher, SlurmLauncher) and sweep is not None:
            plan = self._with_queue(self._launcher, grid, plan, sweep)
        return plan

    def _with_queue(
        self, launcher: SlurmLauncher, grid: Grid, plan: list[PlannedRun], sweep: SweepPaths
    ) -> list[PlannedRun]:
        """The plan with Slurm's states: a run without its job has ended, and a queued cell is left to its job.

        A driver that waits also passes the queued cells to its launcher, which waits for them and submits none twice.
        """
        if launcher.settle(plan, sweep):
            plan = plan_sweep(grid, sweep)
        self._queued = queued = launcher.queued(sweep)
        action = Action.RESUME if launcher.options.wait and not self._dry_run else Action.LEAVE
        return [
            replace(each, action=action, why=f"Slurm job {queued[each.paths.name]}")
            if each.paths.name in queued and each.action is not Action.KEEP
            else each
            for each in plan
        ]

    def _show(self, plan: Sequence[PlannedRun], sweep: SweepPaths | None, grid: Grid) -> None:
        from runmanager.app.display.plan_table import plan_table
        from runmanager.results.findings.sample_size import detectable_before_running

        workers = OmegaConf.select(self._master, "hydra.launcher.workers", default=1)
        existing = [each for each in plan if each.action is not Action.SKIP]
        earlier = read_sweep_record(sweep) if sweep else None
        cells = add_cells(earlier, PlannedCells(existing), axes=grid.axes, command=command_line())
        stored = read_sweep(sweep) if sweep else SweepContents(SweepPaths(Path()), [])
        to_find = detectable_before_running(stored, cells)
        self._console.print(plan_table(plan, sweep, workers=workers, to_find=to_find))

    def _needs_all(self, grid: Grid) -> bool:
        """Whether a missing device makes the other cells useless: for a duel and for a single run."""
        return bool(grid.sides) or (len(grid.cells) == 1 and not self._multirun)

    def _refuse_folders(self) -> None:
        """Raise `ConfigurationError` for Hydra's folder settings, which other settings determine."""
        given = [each.partition("=")[0].lstrip("+") for each in self._master.hydra.overrides.hydra]
        if folders := [name for name in given if name in _FOLDERS]:
            raise ConfigurationError(
                f"`{name}` must be left to this application, got a value; `output_root` and `name` set the folder."
                for name in folders
            )

    def _refuse_hidden_grid(self, words: Sequence[str]) -> None:
        if self._multirun or self._params:
            return
        grids = [each.input_line for each in parse_overrides(self._loader, words) if each.is_sweep_override()]
        if grids:
            raise ConfigurationError(
                f"`{line}` must be one value in a single run, got a grid; add -m, or use `runmanager sweep`."
                for line in grids
            )

    def _confirm(self, num_cells: int) -> None:
        can_ask = sys.stdin.isatty() and self._console.is_terminal
        if self._dry_run or self._yes or num_cells < _CONFIRM_FROM or not can_ask:
            return
        answer = self._console.input(f"Run up to {pluralize(num_cells, 'cell')}? [y/N] ", markup=False)
        if answer.strip().lower() not in ("y", "yes"):
            raise UsageError("Nothing was run.")

    def _launch_locally(
        self,
        launcher: LocalLauncher,
        listener: SweepListener,
        sweep: SweepPaths,
        batch: Sequence[PlannedRun],
        first: int,
        turns: TurnKeeper | None = None,
        is_begun: bool = False,
    ) -> Sequence[JobReturn]:
        """Run `batch`, whose keys count from `first`; `is_begun`: this command has already run it once."""
        launcher.listener, launcher.turns = listener, turns
        launcher.facts = [
            JobFacts(launcher.gpu_request(str(each.cell.config["device"])), each.paths.heartbeat) for each in batch
        ]

        def overrides_for(key: int, number: int) -> list[str]:
            words = overrides_of(batch[key - first], sweep)
            # A retry within this command resumes, even under resume=never.
            return [*words, "resume=auto"] if is_begun or (number > 1 and listener.has_claimed(key)) else words

        launcher.overrides_for = overrides_for
        return launcher.launch([overrides_of(each, sweep) for each in batch], initial_job_idx=first)

    def _run(self, grid: Grid, plan: Sequence[PlannedRun], sweep: SweepPaths) -> Any:
        driver = ProcessIdentity.current()
        os.environ[DRIVEN_VARIABLE] = "1"
        with require_output_root(sweep.root.parent):
            names = write_plan(sweep, plan, grid, driver)
        try:
            plan = [assign_folder(each, sweep, names) for each in plan]
            to_run = [run for batch in self._batches([each for each in plan if each.is_to_run]) for run in batch]
            listener = SweepListener(
                sweep,
                plan,
                to_run,
                epochs=grid.configs[0].epochs,
                console=self._console,
                quiet=self._quiet,
                observer=self._observer,
                show=show_duel if self._sides else show_results,
            )
            returns, interrupted = self._launch(listener, to_run, sweep)
            if self._is_detached:
                listener.leave()
            status = 0 if self._is_detached else listener.finish(interrupted=interrupted)
        finally:
            with contextlib.suppress(OSError):  # a full disk: readers see that this driver's process is gone
                leave_sweep(sweep, driver)
        if listener.faults.lines:
            raise SweepError("\n".join(listener.faults.lines)) from listener.faults.error
        if status:
            raise SystemExit(status)
        return returns

    @property
    def _is_detached(self) -> bool:
        """Whether the runs continue without this driver."""
        return isinstance(self._launcher, SlurmLauncher) and not self._launcher.options.wait

    def _launch(
        self, listener: SweepListener, to_run: Sequence[PlannedRun], sweep: SweepPaths
    ) -> tuple[Sequence[JobReturn], bool]:
        """Run the cells, follow those of other drivers, and run what these leave undone.

        Returns the launcher's results, and whether the user interrupted. Once a run has begun, an error of the
        launcher is added to the listener's faults.
        """
        returns: list[JobReturn] = []
        first = 0
        with listener:
            try:
                while True:
                    for batch in self._batches(to_run):
                        if not listener.is_halted:
                            returns += self._launch_batch(listener, batch, sweep, first)
                        first += len(batch)
                    to_run = [] if self._is_detached else listener.follow_other_drivers()
                    if not to_run:
                        return returns, False
                    to_run = [run for batch in self._batches(to_run) for run in batch]
                    first = listener.take(to_run)
            except KeyboardInterrupt:
                return returns, True
            except (Exception, SystemExit) as error:
                if not listener.has_begun:
                    raise
                listener.faults.add("The launcher failed", error)
                return returns, False

    def _batches(self, runs: Sequence[PlannedRun]) -> list[list[PlannedRun]]:
        """The runs of each call of the launcher: all together, or the groups of a paired sweep one by one."""
        if self._pairing is not None:
            return self._pairing.batches(runs)
        return [list(runs)] if runs else []

    def _launch_batch(
        self, listener: SweepListener, batch: Sequence[PlannedRun], sweep: SweepPaths, first: int
    ) -> Sequence[JobReturn]:
        if isinstance(self._launcher, LocalLauncher):
            launch = partial(self._launch_locally, self._launcher, listener, sweep)
            return launch(batch, first) if self._pairing is None else self._pairing.run(batch, first, listener, launch)
        if isinstance(self._launcher, SlurmLauncher):
            self._launcher.listener, self._launcher.runs = listener, batch
            self._launcher.when_ended = "runmanager.app.driver.run_listener:write_tables_alone"
        return self._launcher.launch([overrides_of(each, sweep) for each in batch], initial_job_idx=first)


def register_sweeper() -> None:
    """Register `hydra/sweeper=grid` with Hydra."""
    register_plugin(GridSweeper)
    ConfigStore.instance().store(group="hydra/sweeper", name="grid", node=GridSweeperOptions, provider="runmanager")

"""Hydra's side of a command: `hydra/sweeper=grid` checks every cell, plans, and runs what is missing."""

import os
import sys
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from hydra.core.config_store import ConfigStore
from hydra.core.plugins import Plugins
from hydra.core.utils import JobReturn
from hydra.plugins.sweeper import Sweeper
from hydra.types import HydraContext, TaskFunction
from omegaconf import DictConfig
from rich.console import Console

from runmanager.app.cells import Grid, prepare_cells, split
from runmanager.app.composition import CellLoader
from runmanager.app.preflight import Questions, preflight
from runmanager.app.schema import Config
from runmanager.app.watching import SweepWatcher
from runmanager.errors import ConfigurationError, RunManagerError, UsageError
from runmanager.launching.child import Returned
from runmanager.launching.engine import LocalEngine, call
from runmanager.launching.hydra_launcher import LocalLauncher, register_plugin
from runmanager.launching.plan import Action, PlannedRun, Resume, plan_runs
from runmanager.launching.slurm import SlurmLauncher
from runmanager.records.paths import SweepPaths
from runmanager.records.run import Environment
from runmanager.records.store import read_sweep
from runmanager.records.sweep import fresh_sweep_folder, plan_cell, write_cells
from runmanager.tracking.provenance import DRIVEN_VARIABLE, command_line, commit_of, library_versions

__all__ = ["GridSweeper", "register_sweeper"]

_ASKED_FROM = 200  # cells; fewer are begun without a question


@dataclass
class GridSweeperOptions:
    """`params`: the axes of a preset. The others are this application's flags, and `multirun` whether -m was given."""

    _target_: str = "hydra_plugins.runmanager.GridSweeper"
    params: dict[str, str] | None = None
    multirun: bool = True
    dry_run: bool = False
    quiet: bool = False
    yes: bool = False


class GridSweeper(Sweeper):
    """Expands a grid and has its launcher run the cells that are missing.

    Raises `ConfigurationError` with every fault before anything runs, and `SystemExit` with the command's status where
    it is not 0.
    """

    def __init__(self, params: dict[str, str] | None, multirun: bool, dry_run: bool, quiet: bool, yes: bool) -> None:
        self._params = params or {}
        self._multirun = multirun
        self._dry_run = dry_run
        self._quiet = quiet
        self._yes = yes
        self._console = Console()

    def setup(self, *, hydra_context: HydraContext, task_function: TaskFunction, config: DictConfig) -> None:
        """Called by Hydra."""
        self._loader = CellLoader(hydra_context.config_loader)  # type: ignore[arg-type]  # there is no other
        self._master = config
        context = HydraContext(config_loader=self._loader, callbacks=hydra_context.callbacks)
        # Instantiated here, so that a wrong launcher setting is refused before anything else happens.
        self._launcher = Plugins.instance().instantiate_launcher(
            hydra_context=context, task_function=task_function, config=config
        )

    def sweep(self, arguments: list[str]) -> Any:
        """Called by Hydra with the overrides that are not its own."""
        words = [f"{key}={value}" for key, value in self._params.items()] + arguments
        self._refuse_hidden_grid(words)
        grid = prepare_cells(self._loader, self._master, words)
        first = grid.configs[0]
        sweep = _folder_for(first)
        plan = _plan(grid, sweep, first)
        if isinstance(self._launcher, SlurmLauncher) and sweep is not None:
            plan = self._with_queue(self._launcher, grid, plan, sweep)
        if self._dry_run:
            from runmanager.app.plan_table import plan_table

            self._console.print(plan_table(plan, sweep))
            return []
        to_run = [each for each in plan if each.is_to_run]
        self._confirm(len(to_run))
        self._preflight(grid, to_run)
        return self._run(grid, plan, to_run, sweep or fresh_sweep_folder(Path(first.output_root)))

    def _with_queue(
        self, launcher: SlurmLauncher, grid: Grid, plan: list[PlannedRun], sweep: SweepPaths
    ) -> list[PlannedRun]:
        """The plan with what Slurm knows: a run whose job is gone is over, and a queued cell is left to its job."""
        if launcher.settle(plan, sweep):
            plan = _plan(grid, sweep, grid.configs[0])
        if launcher.options.wait and not self._dry_run:
            return plan  # the launcher waits for the queued ones, and submits none twice
        queued = launcher.queued(sweep)
        return [
            replace(each, action=Action.LEAVE, why=f"Slurm job {queued[each.paths.name]}")
            if each.is_to_run and each.paths.name in queued
            else each
            for each in plan
        ]

    def _refuse_hidden_grid(self, words: Sequence[str]) -> None:
        if self._multirun or self._params:
            return
        grids = [each.input_line for each in split(self._loader, words) if each.is_sweep_override()]
        if grids:
            raise ConfigurationError(
                f"`{line}` must be one value in a single run, got a grid; add -m, or use `runmanager sweep`."
                for line in grids
            )

    def _confirm(self, num_runs: int) -> None:
        if self._yes or num_runs < _ASKED_FROM or not (sys.stdin.isatty() and self._console.is_terminal):
            return
        answer = self._console.input(f"Run {num_runs:,} cells? [y/N] ", markup=False)
        if answer.strip().lower() not in ("y", "yes"):
            raise UsageError("Nothing was run.")

    def _preflight(self, grid: Grid, to_run: Sequence[PlannedRun]) -> None:
        """Ask in a process of its own what needs torch. Raises `ConfigurationError`."""
        signatures = {each.cell.signature for each in to_run}
        configs = [
            config for cell, config in zip(grid.cells, grid.configs, strict=True) if cell.signature in signatures
        ]
        if not configs:
            return
        # Slurm's nodes have other devices than the host that hands the cells over.
        is_single = len(grid.cells) == 1 and not self._multirun and not isinstance(self._launcher, SlurmLauncher)
        questions = Questions(
            datasets=_distinct([config.dataset for config in configs]),
            models=_distinct([config.model for config in configs]),
            devices=[configs[0].device] if is_single else [],
            data_root=Path(configs[0].data_root),
        )
        ending = call(self._engine(), preflight, questions)
        if isinstance(ending.answer, Returned):
            if ending.answer.value:
                raise ConfigurationError(ending.answer.value)
            return
        said = ending.answer.message if ending.answer else f"the process ended with exit code {ending.exit_code}"
        raise RunManagerError(f"The checks before the first run could not be made: {said}")

    def _engine(self) -> LocalEngine:
        if isinstance(self._launcher, LocalLauncher):
            return self._launcher.engine
        return LocalEngine(preload=["torch"])

    def _run(self, grid: Grid, plan: Sequence[PlannedRun], to_run: Sequence[PlannedRun], sweep: SweepPaths) -> Any:
        to_run = [each if each.paths.root.is_relative_to(sweep.root) else _moved(each, sweep) for each in to_run]
        cells = {each.cell.signature: each for each in [*plan, *to_run]}
        planned = [plan_cell(each.cell.signature, each.paths.name, each.cell.config) for each in cells.values()]
        os.environ[DRIVEN_VARIABLE] = "1"
        write_cells(sweep, planned, axes=grid.axes, command=command_line())
        watcher = SweepWatcher(
            sweep, list(cells.values()), to_run, epochs=grid.configs[0].epochs, console=self._console, quiet=self._quiet
        )
        if isinstance(self._launcher, LocalLauncher | SlurmLauncher):
            self._launcher.listener = watcher
        if isinstance(self._launcher, SlurmLauncher):
            self._launcher.runs = to_run
            self._launcher.when_ended = "runmanager.app.watching:write_tables_alone"
        returns: Sequence[JobReturn] = []
        interrupted = False
        with watcher:
            try:
                if to_run:
                    returns = self._launcher.launch([_words(each, sweep) for each in to_run], initial_job_idx=0)
            except KeyboardInterrupt:
                interrupted = True
        if isinstance(self._launcher, SlurmLauncher) and not self._launcher.options.wait:
            watcher.leave()
            return returns
        status = watcher.finish(interrupted=interrupted)
        if status:
            raise SystemExit(status)
        return returns


def _distinct(values: Sequence[Any]) -> list[Any]:
    return [value for index, value in enumerate(values) if value not in values[:index]]


def _folder_for(config: Config) -> SweepPaths | None:
    """The named sweep's folder; None where a fresh one is to be made."""
    return None if config.name is None else SweepPaths(Path(config.output_root) / config.name)


def _plan(grid: Grid, sweep: SweepPaths | None, config: Config) -> list[PlannedRun]:
    commit, clean = commit_of(Path.cwd())
    now = Environment(commit=commit, commit_clean=clean, libraries=library_versions())
    stored = read_sweep(sweep).runs if sweep else []
    if config.resume == Resume.MUST and not stored:
        where = sweep.root if sweep else "a fresh folder"
        raise UsageError(f"`resume=must` must find runs in {where}, got none; leave it out to start.")
    return plan_runs(
        grid.cells,
        stored,
        sweep or SweepPaths(Path(config.output_root) / "<new>"),
        resume=Resume(config.resume),
        rerun_changed=config.rerun_changed,
        now=now,
    )


def _moved(run: PlannedRun, sweep: SweepPaths) -> PlannedRun:
    return PlannedRun(run.cell, run.action, run.why, sweep.run(run.cell.name))


def _words(run: PlannedRun, sweep: SweepPaths) -> list[str]:
    """The overrides with which the launcher is to compose the cell, its run's folder among them."""
    words = [*run.cell.overrides, f"hydra.sweep.dir={_quoted(str(sweep.root))}"]
    words.append(f"hydra.sweep.subdir={_quoted(f'runs/{run.paths.name}')}")
    if run.action is Action.START_ANEW:
        words.append("resume=never")
    return words


def _quoted(text: str) -> str:
    escaped = text.replace("\\", "\\\\").replace("'", "\\'")
    return f"'{escaped}'"


def register_sweeper() -> None:
    """Make `hydra/sweeper=grid` known to Hydra."""
    register_plugin(GridSweeper)
    ConfigStore.instance().store(group="hydra/sweeper", name="grid", node=GridSweeperOptions, provider="runmanager")

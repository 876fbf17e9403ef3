"""Commands under other sweepers: cells are checked before they run, ends are shown, and the exit status is set."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

from hydra.core.plugins import Plugins
from hydra.core.utils import JobReturn, JobStatus
from hydra.plugins.launcher import Launcher
from hydra.types import HydraContext, TaskFunction
from omegaconf import DictConfig, open_dict

from runmanager.app.compose.cell_loader import CellLoader
from runmanager.app.compose.compose_cells import prepare_job_cells
from runmanager.app.compose.override_grid import count_cells, parse_overrides
from runmanager.app.display.output import ConsoleOutput, make_console
from runmanager.app.display.progress import RunDisplay
from runmanager.app.driver.driver_faults import DriverFaults, Telling, require_sweep_folder, write_and_show_results
from runmanager.app.driver.preflight import (
    check_cells,
    check_host_capacity,
    refuse_literal_secrets,
    require_output_root,
)
from runmanager.app.follow.sweep_feed import SweepFeed
from runmanager.app.follow.sweep_state import SweepReader
from runmanager.errors import ConfigurationError, RecordError, RunFailedError, SweepError, UsageError
from runmanager.launching.hydra_internals import job_exception
from runmanager.launching.launcher import BatchLauncher, CellLauncher, with_traits
from runmanager.launching.plan import derived_settings
from runmanager.records.files.paths import FolderIdentity, SweepPaths
from runmanager.records.run.run_record import RunRecord
from runmanager.records.settings.values import differing_settings
from runmanager.records.storage.reader import read_record, run_names
from runmanager.records.sweep.sweep_record import PlannedCell, SweepCommand, plan_cell, write_cells
from runmanager.signals import INTERRUPTED_STATUS
from runmanager.tracking.environment.environment import command_line

_GRID = "grid"
_BASIC = "basic"


class OtherSweeper:
    """Stands between another sweeper and its launcher.

    Each batch of cells is checked before it is launched. Results are read from the run folders. `is_single`: whether
    the command is a single run.
    """

    def __init__(self, *, is_single: bool, quiet: bool) -> None:
        self._is_single = is_single
        self._quiet = quiet
        self._name = ""
        self._sweep: SweepPaths | None = None
        self._folder: FolderIdentity | None = None
        self._before: dict[str, int] = {}
        self._cells: list[PlannedCell] = []
        self._shown: set[str] = set()
        self._num_jobs = 0
        self._job_faults: list[str] = []

    @contextmanager
    def watched(self) -> Iterator[None]:
        """A context that observes a sweep if another sweeper runs it.

        Once a run has begun, raises `SystemExit` with the command's status if it is not 0, and `SweepError` if the
        sweep failed or its tables could not be written.
        """
        try:
            with self._wrap_launcher():
                yield
        except BaseException as error:
            if self._folder is None or not (self._folder.loss or self._begun()):
                raise
            self._finish(error)
        else:
            self._finish(None)

    @contextmanager
    def _wrap_launcher(self) -> Iterator[None]:
        plugins: Any = Plugins.instance()
        own = plugins.instantiate_launcher

        def instantiate(*, hydra_context: HydraContext, task_function: TaskFunction, config: DictConfig) -> Launcher:
            launcher: Launcher = own(hydra_context=hydra_context, task_function=task_function, config=config)
            name = str(config.hydra.runtime.choices["hydra/sweeper"])
            if name == _GRID:
                return launcher
            self._name = f"hydra/sweeper={name}"
            loader = CellLoader(hydra_context.config_loader)
            if name == _BASIC:  # it lists all cells; for other sweepers an axis may be a search space
                params = config.hydra.sweeper.params or {}
                words = [*(f"{key}={value}" for key, value in params.items()), *config.hydra.overrides.task]
                count_cells(parse_overrides(loader, words))
            return _CheckingLauncher(with_traits(launcher), self, loader, config)

        plugins.instantiate_launcher = instantiate
        try:
            yield
        finally:
            del plugins.instantiate_launcher  # restores the class's method

    def prepare(
        self, launcher: CellLauncher, loader: CellLoader, master: DictConfig, jobs: Sequence[Sequence[str]], first: int
    ) -> None:
        """Check the cells of jobs, which count from `first`, and add them to sweep.json.

        Raises `ConfigurationError` with every fault of the cells.
        """
        grid = prepare_job_cells(loader, master, jobs)
        if names := {config.name for config in grid.configs} - {None}:
            raise ConfigurationError(
                f"`name` must be left out under `{self._name}`, got {name}; without it the runs are in a dated folder "
                "under `output_root`. Only `hydra/sweeper=grid` resumes sweeps by name."
                for name in names
            )
        self._num_jobs += len(jobs)
        if self._is_single and self._num_jobs > 1:
            raise UsageError(f"A single run must be one cell, got {self._num_jobs} from `{self._name}`; add -m.")
        refuse_literal_secrets(launcher, grid.cells)
        check_host_capacity(launcher, [grid.configs])
        check_cells(launcher, grid.configs, given=grid.given, needs_all=self._is_single)
        folder = Path(str(master.hydra.sweep.dir))  # resolved once, so that all jobs get the same date
        runs = [_run_name(loader, master, words, first + index) for index, words in enumerate(jobs)]
        if self._sweep is None:
            self._sweep = SweepPaths(folder)
            self._before = {name: self._attempt(name) for name in run_names(self._sweep)}
            self._display = RunDisplay(ConsoleOutput(make_console()), quiet=self._quiet)
            self._feed = SweepFeed(SweepReader(self._sweep))
        self._cells += [plan_cell(cell.signature, run, cell.config) for cell, run in zip(grid.cells, runs, strict=True)]
        settings = [cell.settings for cell in self._cells]
        axes = {name: [each[name] for each in settings if name in each] for name in differing_settings(settings)}
        with require_output_root(folder.parent):
            derived = derived_settings(grid.cells)
            write_cells(self._sweep, self._cells, SweepCommand(command_line(), axes=axes, derived=derived))
        self._folder = self._folder or FolderIdentity(folder)

    def launched(self, returns: Sequence[JobReturn], first: int) -> None:
        """Show how the runs of a launch ended, and collect the errors of jobs that began no run."""
        for number, result in enumerate(returns, first):
            if result.status is JobStatus.FAILED and not _is_in_record(job_exception(result)):
                self._job_faults.append(f"Job {number}: {job_exception(result)}".partition("\n")[0])
        self._show_ended()

    def _show_ended(self) -> None:
        self._display.num_runs = self._num_jobs
        for name in self._begun():
            if name not in self._shown:
                self._shown.add(name)
                self._display.show(self._feed.end(self._paths.run(name)))

    @property
    def _paths(self) -> SweepPaths:
        assert self._sweep is not None
        return self._sweep

    def _attempt(self, name: str) -> int:
        record = self._record(name)
        return 0 if record is None else record.attempt

    def _record(self, name: str) -> RunRecord | None:
        try:
            return read_record(self._paths.run(name)).observed()
        except RecordError:
            return None  # damaged

    def _begun(self) -> list[str]:
        """The names of the runs that this command has begun."""
        if self._sweep is None:
            return []
        return [name for name in run_names(self._sweep) if self._attempt(name) != self._before.get(name)]

    def _finish(self, error: BaseException | None) -> None:
        if self._folder is not None:
            require_sweep_folder(self._paths, self._folder)
        begun = self._begun()
        if not begun:
            if self._job_faults:  # not raised by the sweeper
                raise UsageError("\n".join(dict.fromkeys(self._job_faults)))
            return
        self._show_ended()
        for line in self._job_faults:
            self._display.say(line)
        faults = DriverFaults()
        write_and_show_results(self._paths, Telling(make_console(), quiet=self._quiet), faults)
        if isinstance(error, KeyboardInterrupt):
            self._display.say("Interrupted.")
            raise SystemExit(INTERRUPTED_STATUS) from error
        if error is not None:
            faults.add(f"`{self._name}` ended with", error)
        if faults.lines:
            raise SweepError("\n".join(faults.lines)) from faults.error
        records = [self._record(name) for name in begun]
        if self._job_faults or not all(record is not None and record.status.is_success for record in records):
            raise SystemExit(1)


def _run_name(loader: CellLoader, master: DictConfig, words: Sequence[str], number: int) -> str:
    """The name of a job's run folder."""
    config = loader.load_sweep_config(master, list(words))
    with open_dict(config):
        config.hydra.job.id, config.hydra.job.num = str(number), number
    subdir = str(config.hydra.sweep.subdir)
    runs, _, name = subdir.partition("/")
    if runs != "runs" or not name or "/" in name:
        raise ConfigurationError([f"`hydra.sweep.subdir` must be runs/NAME, got {subdir}; leave it out."])
    return name


def _is_in_record(error: object) -> bool:
    """Whether a job's error is the end of its run, which is in its record; the local launcher sends errors as text."""
    return isinstance(error, RunFailedError) or str(error).startswith(RunFailedError.__name__)


class _CheckingLauncher(BatchLauncher):
    """Another sweeper's launcher, with the checks before each launch."""

    def __init__(self, launcher: CellLauncher, watched: OtherSweeper, loader: CellLoader, master: DictConfig) -> None:
        super().__init__(launcher)
        self._checks = partial(watched.prepare, launcher, loader, master)
        self._watched = watched

    def launch(self, job_overrides: Sequence[Sequence[str]], initial_job_idx: int) -> Sequence[JobReturn]:
        """Check the jobs' cells, and launch them."""
        self._checks(job_overrides, initial_job_idx)
        returns = super().launch(job_overrides, initial_job_idx)
        self._watched.launched(returns, initial_job_idx)
        return returns

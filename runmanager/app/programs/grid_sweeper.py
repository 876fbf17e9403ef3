"""The sweeper `hydra/sweeper=grid`: sweeps of the built-in job."""

import shlex
from collections.abc import Sequence
from typing import Any

from hydra.core.config_store import ConfigStore
from hydra.core.plugins import Plugins
from hydra.plugins.sweeper import Sweeper
from hydra.types import HydraContext, TaskFunction
from omegaconf import DictConfig

from runmanager.app.compose.cell_loader import CellLoader
from runmanager.app.compose.compose_cells import parse_overrides
from runmanager.app.driver.sweep_driver import DriverOptions, SweepDriver
from runmanager.app.programs.built_in_job import BuiltInJob
from runmanager.app.sweeper_options import GridSweeperOptions
from runmanager.errors import ConfigurationError
from runmanager.launching.hydra_internals import hydra_words
from runmanager.launching.hydra_launcher import register_plugin

__all__ = ["GridSweeper", "register_sweeper"]

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
        self._params = params
        self._sides = [shlex.split(side) for side in sides or ()]
        self._multirun = multirun
        self._options = DriverOptions(
            is_single=not multirun, dry_run=dry_run, quiet=quiet, yes=yes, heartbeat_timeout=heartbeat_timeout
        )

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
        program = BuiltInJob(self._loader, self._master, words, sides=self._sides)
        return SweepDriver(program, self._launcher, self._options).run()

    def _refuse_folders(self) -> None:
        """Raise `ConfigurationError` for Hydra's folder settings, which other settings determine."""
        given = [each.partition("=")[0].lstrip("+") for each in hydra_words(self._master)]
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


def register_sweeper() -> None:
    """Register `hydra/sweeper=grid` with Hydra."""
    register_plugin(GridSweeper)
    ConfigStore.instance().store(group="hydra/sweeper", name="grid", node=GridSweeperOptions, provider="runmanager")

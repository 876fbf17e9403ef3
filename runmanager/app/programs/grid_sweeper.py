"""The sweeper `hydra/sweeper=grid`: sweeps of the built-in job."""

import shlex
from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from typing import Any

from hydra.core.plugins import Plugins
from hydra.plugins.sweeper import Sweeper
from hydra.types import HydraContext, TaskFunction
from omegaconf import DictConfig

from runmanager.app.compose.cell_loader import CellLoader, forget_notification
from runmanager.app.compose.grid_rules import GridRules
from runmanager.app.compose.override_grid import read_override_grid, values_of_word
from runmanager.app.compose.saved_preset import save_preset
from runmanager.app.driver.sweep_driver import SweepDriver
from runmanager.app.programs.built_in_job import BuiltInJob
from runmanager.app.programs.sweep_settings import driver_options, request_faults, search_of
from runmanager.app.request.command import unknown_names
from runmanager.app.request.grid_sweeper_options import GridSweeperOptions
from runmanager.app.request.sweep_request import CONTINUES, RUN_NAME, flag_of, options, read_node
from runmanager.errors import ConfigurationError
from runmanager.launching.hydra_internals import hydra_words, store_config
from runmanager.launching.hydra_launcher import register_plugin
from runmanager.launching.launcher import with_traits
from runmanager.records.settings.secrets import declare_secrets
from runmanager.validation import fault

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
        heartbeat_timeout: float,
        continues: str | None = None,
        run_name: str | None = None,
        tune: Any = None,
        **settings: Any,
    ) -> None:
        rule = "be left to the sweeper"
        if continues is not None:
            way_out = "a cell with more `epochs` continues a finished one by itself"
            raise ConfigurationError([fault(CONTINUES, rule, continues, way_out)])
        if run_name is not None:
            raise ConfigurationError([fault(RUN_NAME, rule, run_name, "`name` names the sweep")])
        self._request = request = read_node(settings)
        if faults := [*unknown_names(settings, "sweeper", options()), *request_faults(request, flag_of)]:
            raise ConfigurationError(faults)
        declare_secrets(request.secrets)
        self._params = params
        self._sides = [shlex.split(side) for side in sides or ()]
        self._multirun = multirun
        self._tune = tune
        self._options = driver_options(
            request,
            is_single=not multirun,
            heartbeat_timeout=heartbeat_timeout,
            named=lambda command, name: (*command, f"name={name}"),
        )

    def setup(self, *, hydra_context: HydraContext, task_function: TaskFunction, config: DictConfig) -> None:
        """Set up the config loader and the launcher; called by Hydra."""
        self._loader = CellLoader(hydra_context.config_loader)
        self._master = config
        context = HydraContext(config_loader=self._loader, callbacks=hydra_context.callbacks)
        # Instantiated here, so that a wrong launcher setting is rejected first.
        plugins = Plugins.instance()
        self._launcher = with_traits(
            plugins.instantiate_launcher(hydra_context=context, task_function=task_function, config=config)
        )

    def sweep(self, arguments: list[str]) -> Any:
        """Run the grid; called by Hydra with the overrides that are not Hydra's."""
        words = [f"{key}={value}" for key, value in self._params.items()] + arguments
        self._refuse_folders()
        if self._tune is not None:
            from runmanager.app.programs.built_in_tuning import tune_built_in

            return tune_built_in(
                self._loader, self._master, words, self._launcher, {str(key): each for key, each in self._tune.items()}
            )
        rules = GridRules.read(self._request, flag_of)
        search = search_of(self._request, words, partial(values_of_word, self._loader), flag_of)
        if search is not None:
            rules, words = rules.of_search(search.space.keys), search.space.corners()[0]
            self._options = replace(self._options, search=search)
        else:
            self._refuse_hidden_grid(words, rules)
        program = BuiltInJob(self._loader, self._master, words, sides=self._sides, rules=rules)
        if self._request.save is not None:
            program.compose()  # reports every fault
            save_preset(self._request.save, words, hydra_words(self._master), overwrites=self._options.yes)
            return []
        forget_notification(self._master)
        self._loader.remember(self._master)
        return SweepDriver(program, self._launcher, self._options).run()

    def _refuse_folders(self) -> None:
        """Raise `ConfigurationError` for Hydra's folder settings, which other settings determine."""
        given = [each.partition("=")[0].lstrip("+") for each in hydra_words(self._master)]
        if folders := [name for name in given if name in _FOLDERS]:
            raise ConfigurationError(
                f"`{name}` must be left to this application, got a value; `output_root` and `name` set the folder."
                for name in folders
            )

    def _refuse_hidden_grid(self, words: Sequence[str], rules: GridRules) -> None:
        if self._multirun or self._params:
            return
        given = read_override_grid(self._loader, words, rules)
        grids = [each.input_line for each in given.overrides if each.is_sweep_override()]
        grids += [f"--points {self._request.points}"] if len(given.points) > 1 else []
        if grids:
            raise ConfigurationError(
                f"`{line}` must be one value in a single run, got a grid; use `runmanager sweep`." for line in grids
            )


def register_sweeper() -> None:
    """Register `hydra/sweeper=grid` with Hydra."""
    register_plugin(GridSweeper)
    store_config("grid", GridSweeperOptions, group="hydra/sweeper")

"""The sweeper `hydra/sweeper=runmanager`, in Hydra applications that know nothing of this package."""

import copy
import os
import sys
import traceback
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from hydra.core.plugins import Plugins
from hydra.plugins.sweeper import Sweeper
from hydra.types import HydraContext, TaskFunction
from omegaconf import DictConfig, OmegaConf, open_dict, read_write

from runmanager.app.compose.cell_loader import CellLoader, forget_notification
from runmanager.app.compose.grid_rules import GridRules
from runmanager.app.compose.override_grid import read_override_grid
from runmanager.app.display.error_line import print_error
from runmanager.app.request.command import unknown_names
from runmanager.app.request.sweep_request import FLAGS_VARIABLE, flag_of, options, read_node, setting_of
from runmanager.errors import ConfigurationError, RunManagerError, SweepError, error_chain
from runmanager.launching.hydra_internals import hydra_words
from runmanager.launching.hydra_launcher import default_preload
from runmanager.launching.launcher import CellLauncher, Trait, with_traits
from runmanager.launching.launchers import LAUNCHERS
from runmanager.records.files.paths import dated_name
from runmanager.records.host.standard_streams import repaired_streams, report_lost_output
from runmanager.records.run.heartbeat import SILENT_AFTER_SECONDS
from runmanager.records.settings.secrets import declare_secrets, masked_words, refuse_masks
from runmanager.signals import INTERRUPTED_STATUS
from runmanager.tracking.environment.cell_process import refuse_several_ranks

_BROKEN_STATUS = 1
_USAGE_STATUS = 2
_PRELOAD = ("runmanager.app.programs.cell_imports", "runmanager.app.programs.application.ranked_task")
_FOLDERS = ("hydra.sweep.dir", "hydra.sweep.subdir", "hydra.run.dir")


class ApplicationSweeper(Sweeper):
    """Runs a grid of an application's cells, each recorded in a run folder.

    The command ends with our exit status; errors are single lines on stderr.
    """

    def __init__(
        self, params: Any = None, heartbeat_timeout: float = SILENT_AFTER_SECONDS, tune: Any = None, **settings: Any
    ) -> None:
        self._params = {str(key): str(value) for key, value in (params or {}).items()}
        self._heartbeat_timeout = heartbeat_timeout
        self._race: Any = OmegaConf.to_container(tune) if OmegaConf.is_config(tune) else tune
        self._unknown = [name for name in settings if name not in options()]
        self._request = read_node(settings)
        self._key = flag_of if os.environ.pop(FLAGS_VARIABLE, None) else setting_of

    def setup(self, *, hydra_context: HydraContext, task_function: TaskFunction, config: DictConfig) -> None:
        """Keep what Hydra passes; nothing is created before `sweep`, which reports all errors alike."""
        self._context = hydra_context
        self._task = task_function
        self._master = config

    def sweep(self, arguments: list[str]) -> Any:
        """Run the grid; called by Hydra with the overrides that are not Hydra's."""
        words = [f"{key}={value}" for key, value in self._params.items()] + arguments
        with repaired_streams(lambda error: report_lost_output(error, is_sweep=True)):
            try:
                return self._run(words)
            except KeyboardInterrupt:
                print("Interrupted before anything was run.", file=sys.stderr)
                raise SystemExit(INTERRUPTED_STATUS) from None
            except Exception as error:
                if (known := _known_cause(error)) is None:
                    raise
                raise SystemExit(_report(known)) from None

    def _run(self, words: Sequence[str]) -> Any:
        request = self._request
        declare_secrets(map(str, request.secrets or ()))
        masked_words(words)  # from here on no message shows what they hold
        refuse_masks(words)
        refuse_several_ranks(of_sweep=True)
        self._refuse_folders()
        if faults := unknown_names(self._unknown, "sweeper", options()):
            raise ConfigurationError(faults)  # Hydra lets `+` add any name
        rules = GridRules.read(request, self._key)
        forget_notification(self._master)
        loader = CellLoader(self._context.config_loader, is_built_in=False)
        loader.remember(self._master)
        task, launcher = self._task, self._own_launcher(loader)
        if launcher is None:
            from runmanager.app.programs.application.ranked_task import SupervisedTask

            task = SupervisedTask(self._task)
            launcher = self._other_launcher(loader, task)
        elif Trait.HERE in launcher.traits and not request.dry_run:
            grid_size = 1 if request.search else read_override_grid(loader, words, rules).num_cells
            launcher.engine.get_ready(num_jobs=grid_size)
        # Most of the driver is imported here: while the server, which the first cell waits for, imports what it needs.
        from runmanager.app.programs.application.sweep_application import AskedSweep, sweep_application

        return sweep_application(
            AskedSweep(self._request, self._key, self._heartbeat_timeout, self._race),
            loader=loader,
            master=self._master,
            words=words,
            rules=rules,
            task=task,
            launcher=launcher,
        )

    def _own_launcher(self, loader: CellLoader) -> CellLauncher | None:
        """Create the chosen launcher if it is one of ours, which ship the task by its name."""
        choice = str(self._master.hydra.runtime.choices["hydra/launcher"])
        if not any(choice in (name, each.hydra_name) for name, each in LAUNCHERS.items()):
            return None
        master = self._master
        if choice == LAUNCHERS["local"].hydra_name and master.hydra.launcher.preload is None:
            master = copy.deepcopy(master)
            with read_write(master.hydra), open_dict(master.hydra):
                master.hydra.launcher.preload = [*default_preload(), *_PRELOAD]
        return self._created(loader, self._task, master)

    def _other_launcher(self, loader: CellLoader, task: TaskFunction) -> CellLauncher:
        """Create a launcher of Hydra's; it gets the sweep's folder before that exists, for files of its own."""
        if self._request.name is None:
            self._request = replace(self._request, name=f"{dated_name()}_{os.getpid()}")
        master = copy.deepcopy(self._master)
        with read_write(master.hydra), open_dict(master.hydra):
            master.hydra.sweep.dir = f"{self._request.output_root}/{self._request.name}"
        return self._created(loader, task, master)

    def _created(self, loader: CellLoader, task: TaskFunction, master: DictConfig) -> CellLauncher:
        context, plugins = replace(self._context, config_loader=loader), Plugins.instance()
        return with_traits(plugins.instantiate_launcher(hydra_context=context, task_function=task, config=master))

    def _refuse_folders(self) -> None:
        given = [each.partition("=")[0].lstrip("+") for each in hydra_words(self._master)]
        if folders := [name for name in given if name in _FOLDERS]:
            raise ConfigurationError(
                f"`{name}` must be left to `hydra/sweeper=runmanager`, got a value; `{self._key('output_root')}` and "
                f"`{self._key('name')}` set the folder."
                for name in folders
            )


def _known_cause(error: BaseException) -> RunManagerError | None:
    """Return the error of ours that an error comes from: Hydra wraps what a launcher raises when it is created."""
    return next((each for each in error_chain(error) if isinstance(each, RunManagerError)), None)


def _report(error: RunManagerError) -> int:
    """Print the lines of an error; return the exit status."""
    if os.environ.get("HYDRA_FULL_ERROR") == "1":
        traceback.print_exception(error)
    lines = error.faults if isinstance(error, ConfigurationError) else str(error).splitlines()
    for line in lines:
        print_error(line)
    return _BROKEN_STATUS if isinstance(error, SweepError) else _USAGE_STATUS

"""The sweeper `hydra/sweeper=runmanager`, in Hydra applications that know nothing of this package."""

import copy
import datetime
import os
import sys
import traceback
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from hydra.core.plugins import Plugins
from hydra.plugins.launcher import Launcher
from hydra.plugins.sweeper import Sweeper
from hydra.types import HydraContext, TaskFunction
from omegaconf import DictConfig, OmegaConf, open_dict, read_write

from runmanager.app.compose.cell_loader import CellLoader
from runmanager.app.compose.grid_rules import GridRules
from runmanager.app.display.error_line import print_error
from runmanager.app.driver.program import Storage
from runmanager.app.driver.sweep_driver import DriverOptions, SweepDriver
from runmanager.app.programs.application.application import ApplicationOptions, HydraApplication
from runmanager.app.programs.application.supervised_task import SupervisedTask
from runmanager.app.programs.notification_setting import forget_notification
from runmanager.errors import ConfigurationError, RunManagerError, SweepError
from runmanager.launching.hydra_internals import hydra_words
from runmanager.launching.hydra_launcher import default_preload
from runmanager.launching.plan import Resume
from runmanager.records.host.standard_streams import repaired_streams, report_lost_output
from runmanager.records.run.metric_direction import parse_better
from runmanager.records.settings.secrets import declare_secrets, masked_words, refuse_masks
from runmanager.tracking.environment.environment import environment_for_children
from runmanager.tracking.environment.rank_check import refuse_several_ranks
from runmanager.validation import fault

__all__ = ["ApplicationSweeper"]

_BROKEN_STATUS = 1
_USAGE_STATUS = 2
_INTERRUPTED = 130
_PRELOAD = "runmanager.app.programs.application.cell_imports"
_OUR_LAUNCHERS = ("runmanager", "runmanager_slurm", "local", "slurm")
_WITHOUT_METRICS = (
    "No metric was found: the task may return numbers by name, or log them with runmanager.log(NAME=value)."
)
_FOLDERS = ("hydra.sweep.dir", "hydra.sweep.subdir", "hydra.run.dir")


@dataclass(frozen=True)
class _Settings:
    """The settings `hydra.sweeper.*`, checked."""

    storage: Storage
    driver: DriverOptions
    application: ApplicationOptions

    @classmethod
    def of(cls, given: dict[str, Any]) -> "_Settings":
        faults = _faults(given)
        if faults:
            raise ConfigurationError(faults)
        return cls(
            Storage(given["name"], given["output_root"], Resume(given["resume"]), given["rerun_changed"]),
            DriverOptions(
                dry_run=given["dry_run"],
                quiet=given["quiet"],
                yes=given["yes"],
                restore=given["restore"],
                heartbeat_timeout=given["heartbeat_timeout"],
                notify=given["notify"],
                notify_name=_key("notify"),
                named=lambda command, name: (*command, f"{_key('name')}={name}"),
                metric=given["metric"],
                without_metrics=_WITHOUT_METRICS,
            ),
            ApplicationOptions(
                unsigned=tuple(given["unsigned"]),
                device=given["device"],
                metric=given["metric"],
                better=None if given["better"] is None else parse_better(given["better"]),
                resume_with=given["resume_with"],
                heartbeat_timeout=given["heartbeat_timeout"],
                rules=GridRules.read(zip_=given["zip"], points=given["points"], exclude=given["exclude"], key=_key),
            ),
        )


def _faults(given: dict[str, Any]) -> list[str]:
    resume = given["resume"]
    if resume not in list(Resume):
        faults = [fault(_key("resume"), f"be one of {', '.join(Resume)}", resume)]
    else:
        faults = Storage(given["name"], given["output_root"], Resume(resume), given["rerun_changed"]).faults(_key)
    if given["better"] is not None and given["metric"] is None:
        faults.append(
            fault(_key("better"), f"be given with `{_key('metric')}`, whose direction it is", given["better"])
        )
    if given["better"] not in (None, "min", "max", "smaller", "larger"):
        faults.append(fault(_key("better"), "be min or max", given["better"]))
    if given["resume_with"] is not None and "=" not in given["resume_with"]:
        faults.append(fault(_key("resume_with"), "be an override NAME=FILE", repr(given["resume_with"])))
    return faults


def _key(name: str) -> str:
    return f"hydra.sweeper.{name}"


class ApplicationSweeper(Sweeper):
    """Runs a grid of an application's cells, each recorded in a run folder.

    The command ends with our exit status; errors are single lines on stderr.
    """

    def __init__(self, params: Any, **settings: Any) -> None:
        self._params = {str(key): str(value) for key, value in (params or {}).items()}
        self._given = {
            key: OmegaConf.to_container(value) if OmegaConf.is_config(value) else value
            for key, value in settings.items()
        }

    def setup(self, *, hydra_context: HydraContext, task_function: TaskFunction, config: DictConfig) -> None:
        """Keep what Hydra passes; nothing is created before `sweep`, which reports all errors alike."""
        self._context = hydra_context
        self._task = task_function
        self._master = config

    def sweep(self, arguments: list[str]) -> Any:
        """Run the grid; called by Hydra with the overrides that are not Hydra's."""
        words = [f"{key}={value}" for key, value in self._params.items()] + arguments
        command = list(sys.argv)
        with (
            repaired_streams(lambda error: report_lost_output(error, is_sweep=True)),
            environment_for_children(command),
        ):
            try:
                return self._run(words)
            except KeyboardInterrupt:
                print("Interrupted before anything was run.", file=sys.stderr)
                raise SystemExit(_INTERRUPTED) from None
            except Exception as error:
                if (known := _known_cause(error)) is None:
                    raise
                raise SystemExit(_report(known)) from None

    def _run(self, words: Sequence[str]) -> Any:
        declare_secrets(map(str, self._given.pop("secrets", None) or ()))
        masked_words(words)  # from here on no message shows what they hold
        refuse_masks(words)
        refuse_several_ranks()
        self._refuse_folders()
        settings = _Settings.of(self._given)
        forget_notification(self._master)
        loader = CellLoader(self._context.config_loader)  # type: ignore[arg-type]  # its only class
        task = SupervisedTask(self._task)
        launcher, storage = self._launcher(loader, task, settings.storage)
        program = HydraApplication(loader, self._master, words, task, storage, settings.application)
        return SweepDriver(program, launcher, settings.driver).run()

    def _launcher(self, loader: CellLoader, task: TaskFunction, storage: Storage) -> tuple[Launcher, Storage]:
        """Create the chosen launcher; one of Hydra's gets the sweep's folder before it exists, for files of its own."""
        context = replace(self._context, config_loader=loader)
        choice = str(self._master.hydra.runtime.choices["hydra/launcher"])
        master = self._master
        if choice == _OUR_LAUNCHERS[0] and master.hydra.launcher.preload is None:
            master = copy.deepcopy(master)
            with read_write(master.hydra), open_dict(master.hydra):
                master.hydra.launcher.preload = [*default_preload(), _PRELOAD]
        if choice not in _OUR_LAUNCHERS:
            if storage.name is None:
                stamp = datetime.datetime.now().strftime("%Y-%m-%d_%H-%M-%S")
                storage = replace(storage, name=f"{stamp}_{os.getpid()}")
            master = copy.deepcopy(master)
            with read_write(master.hydra), open_dict(master.hydra):
                master.hydra.sweep.dir = f"{storage.output_root}/{storage.name}"
        launcher = Plugins.instance().instantiate_launcher(hydra_context=context, task_function=task, config=master)
        return launcher, storage

    def _refuse_folders(self) -> None:
        given = [each.partition("=")[0].lstrip("+") for each in hydra_words(self._master)]
        if folders := [name for name in given if name in _FOLDERS]:
            raise ConfigurationError(
                f"`{name}` must be left to `hydra/sweeper=runmanager`, got a value; `{_key('output_root')}` and "
                f"`{_key('name')}` set the folder."
                for name in folders
            )


def _known_cause(error: BaseException | None) -> RunManagerError | None:
    """Return the error of ours that an error comes from: Hydra wraps what a launcher raises when it is created."""
    while error is not None and not isinstance(error, RunManagerError):
        error = error.__cause__ or error.__context__
    return error


def _report(error: RunManagerError) -> int:
    """Print the lines of an error; return the exit status."""
    if os.environ.get("HYDRA_FULL_ERROR") == "1":
        traceback.print_exception(error)
    lines = error.faults if isinstance(error, ConfigurationError) else str(error).splitlines()
    for line in lines:
        print_error(line)
    return _BROKEN_STATUS if isinstance(error, SweepError) else _USAGE_STATUS

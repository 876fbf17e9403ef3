"""A sweep of a Hydra application: its request, checked, and the driver that it asks for.

Imported while the server of the cells' processes starts: it needs most of what a driver consists of.
"""

import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

from hydra.types import TaskFunction
from omegaconf import DictConfig

from runmanager.app.compose.cell_loader import CellLoader
from runmanager.app.compose.grid_rules import GridRules
from runmanager.app.compose.override_grid import OverrideGrid, read_override_grid, values_of_word
from runmanager.app.driver.sweep_driver import SweepDriver
from runmanager.app.programs.application.application import ApplicationOptions, HydraApplication
from runmanager.app.programs.application.ranked_task import SupervisedTask
from runmanager.app.programs.resume_setting import ResumeSetting
from runmanager.app.programs.sweep_settings import driver_options, request_faults, search_of, storage_of
from runmanager.app.request.sweep_request import SweepRequest, setting_of
from runmanager.errors import ConfigurationError
from runmanager.launching.launcher import CellLauncher
from runmanager.records.run.metric_names import parse_better
from runmanager.tracking.environment.environment import environment_for_children


@dataclass(frozen=True)
class AskedSweep:
    """What a user has asked of a sweep; `key` is how they name an option.

    `heartbeat_timeout` is in seconds; with a `race`, it is as `runmanager tune` asks for it.
    """

    request: SweepRequest
    key: Callable[[str], str]
    heartbeat_timeout: float
    race: Mapping[str, Any] | None


def sweep_application(
    asked: AskedSweep,
    *,
    loader: CellLoader,
    master: DictConfig,
    words: Sequence[str],
    rules: GridRules,
    task: TaskFunction,
    launcher: CellLauncher,
) -> Any:
    """Run the grid of the overrides `words` by `launcher`, or the race that was asked for.

    `task` is the application's, or the supervised one that another launcher
    calls. Raises `ConfigurationError` with every fault before anything runs.
    """
    request, key, race = asked.request, asked.key, asked.race
    if faults := request_faults(request, key, needs_direction=False):
        raise ConfigurationError(faults)
    if race is not None:  # every cell is a value that races
        request, rules = replace(request, unsigned=[]), GridRules()
    search = search_of(request, words, partial(values_of_word, loader), key)
    if search is not None:
        rules, words = rules.of_search(search.space.keys), search.space.corners()[0]
    options = driver_options(
        request,
        search=search,
        heartbeat_timeout=asked.heartbeat_timeout,
        key=key,
        named=lambda command, name: (*command, f"{setting_of('name')}={name}"),
    )
    storage = storage_of(request, key)
    with environment_for_children(list(sys.argv)):
        supervised = task if isinstance(task, SupervisedTask) else SupervisedTask(task)
        application = _application_options(request, asked.heartbeat_timeout, rules)
        program = HydraApplication(loader, master, words, supervised, storage, application)
        if race is None:
            return SweepDriver(program, launcher, options).run()
        return _race(program, read_override_grid(loader, words, rules), launcher, asked=race)


def _race(program: HydraApplication, grid: OverrideGrid, launcher: CellLauncher, *, asked: Mapping[str, Any]) -> None:
    """Race the lists of values as `runmanager tune` has `asked`: with its `call` of one run, and what was `typed`."""
    from runmanager.app.programs.whole_run_race import RacedValues, race_whole_runs

    words = {name: [(value, f"{name}={value}") for value in values] for name, values in grid.values.items()}
    settings = {each.input_line for each in grid.overrides}
    others = [word for word in asked["typed"] if word not in settings]  # such as --config-name and hydra.launcher
    status = race_whole_runs(
        program,
        RacedValues(words, [each.get_key_element() for each in grid.overrides if each.is_sweep_override()]),
        launcher,
        call=asked["call"],
        fixed=["--", *others] if others else [],
        seconds=asked["seconds"],
        began=asked["began"],
    )
    if status:
        raise SystemExit(status)


def _application_options(request: SweepRequest, heartbeat_timeout: float, rules: GridRules) -> ApplicationOptions:
    return ApplicationOptions(
        unsigned=tuple(request.unsigned),
        device=request.device,
        metric=request.metric,
        better=None if request.better is None else parse_better(request.better),
        resume_with=ResumeSetting.read(request.resume_with),
        heartbeat_timeout=heartbeat_timeout,
        rules=rules,
    )

"""A sweep of a Hydra application: the checked settings `hydra.sweeper.*`, and the driver that they ask for.

Imported while the server of the cells' processes starts: it needs most of what a driver consists of.
"""

import sys
from collections.abc import Mapping, Sequence
from typing import Any

from hydra.plugins.launcher import Launcher
from hydra.types import TaskFunction
from omegaconf import DictConfig

from runmanager.app.compose.cell_loader import CellLoader
from runmanager.app.compose.grid_rules import GridRules
from runmanager.app.compose.override_grid import OverrideGrid, read_override_grid
from runmanager.app.driver.program import Storage
from runmanager.app.driver.sweep_driver import DriverOptions, SweepDriver
from runmanager.app.programs.application.application import ApplicationOptions, HydraApplication
from runmanager.app.programs.application.supervised_task import SupervisedTask
from runmanager.app.programs.metric_advice import metric_advice
from runmanager.errors import ConfigurationError
from runmanager.launching.plan import Resume
from runmanager.records.run.metric_direction import parse_better
from runmanager.tracking.environment.environment import environment_for_children
from runmanager.validation import fault

__all__ = ["sweep_application"]


def sweep_application(
    given: Mapping[str, Any],
    *,
    loader: CellLoader,
    master: DictConfig,
    words: Sequence[str],
    rules: GridRules,
    task: TaskFunction,
    launcher: Launcher,
) -> Any:
    """Run the grid of the overrides `words` by `launcher`, with the sweeper's settings as they were `given`.

    `task` is the application's, or the supervised one that another launcher calls. Raises `ConfigurationError` with
    every fault before anything runs.
    """
    if faults := _faults(given):
        raise ConfigurationError(faults)
    race = given["tune"]
    if race is not None:  # every cell is a value that races
        given, rules = {**given, "unsigned": []}, GridRules()
    options = _driver_options(given)
    storage = Storage(
        given["name"],
        given["output_root"],
        Resume(given["resume"]),
        given["rerun_changed"],
        rerun_with=f"{_key('rerun_changed')}=true",
        restore_with=f"{_key('restore')}=true",
    )
    with environment_for_children(list(sys.argv)):
        supervised = task if isinstance(task, SupervisedTask) else SupervisedTask(task)
        program = HydraApplication(loader, master, words, supervised, storage, _application_options(given, rules))
        if race is None:
            return SweepDriver(program, launcher, options).run()
        return _race(program, read_override_grid(loader, words, rules), launcher, asked=race)


def _race(program: HydraApplication, grid: OverrideGrid, launcher: Launcher, *, asked: Mapping[str, Any]) -> None:
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


def _driver_options(given: Mapping[str, Any]) -> DriverOptions:
    return DriverOptions(
        dry_run=given["dry_run"],
        quiet=given["quiet"],
        yes=given["yes"],
        restore=given["restore"],
        heartbeat_timeout=given["heartbeat_timeout"],
        notify=given["notify"],
        notify_name=_key("notify"),
        named=lambda command, name: (*command, f"{_key('name')}={name}"),
        metric=given["metric"],
        without_metrics=metric_advice,
    )


def _application_options(given: Mapping[str, Any], rules: GridRules) -> ApplicationOptions:
    return ApplicationOptions(
        unsigned=tuple(given["unsigned"]),
        device=given["device"],
        metric=given["metric"],
        better=None if given["better"] is None else parse_better(given["better"]),
        resume_with=given["resume_with"],
        heartbeat_timeout=given["heartbeat_timeout"],
        rules=rules,
    )


def _faults(given: Mapping[str, Any]) -> list[str]:
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

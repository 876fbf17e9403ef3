"""`runmanager sweep`, `run` and `tune` of a script, or of a Hydra application, which becomes its own command."""

import os
import re
import sys
import traceback
from collections.abc import Collection, Sequence
from dataclasses import fields, replace
from functools import partial
from pkgutil import resolve_name
from typing import Any

import yaml

from runmanager.app.compose.grid_rules import GridRules
from runmanager.app.display.error_line import print_error
from runmanager.app.driver.search import SearchOptions
from runmanager.app.driver.sweep_driver import SweepDriver
from runmanager.app.programs.resume_setting import ResumeSetting
from runmanager.app.programs.script.arguments.setting_words import (
    SettingGrid,
    parse_settings,
    setting_word,
    texts_of_word,
)
from runmanager.app.programs.script.flag_check import flags_of
from runmanager.app.programs.script.output.scalar_pattern import parse_scalars
from runmanager.app.programs.script.script import Script, find_script
from runmanager.app.programs.script.script_program import ScriptOptions, ScriptProgram
from runmanager.app.programs.sweep_settings import driver_options, request_faults, search_of, storage_of
from runmanager.app.programs.whole_run_race import RacedValues, race_whole_runs
from runmanager.app.request.command import (
    HYDRA_FLAGS,
    HYDRA_OPTIONS,
    MULTIRUN,
    Command,
    after_separator,
    format_override,
    option_words,
    unknown_names,
)
from runmanager.app.request.sweep_request import FLAGS_VARIABLE, Kind, SweepRequest, flag_of, options
from runmanager.errors import ConfigurationError, SweepError, UsageError
from runmanager.launching.launcher import CellLauncher
from runmanager.launching.launchers import LAUNCHERS
from runmanager.records.host.standard_streams import print_line
from runmanager.records.run.metric_names import MAX, MIN, parse_better, prefers_larger
from runmanager.records.settings.secrets import declare_secrets, masked_words, refuse_masks
from runmanager.tracking.environment.cell_process import refuse_several_ranks
from runmanager.tracking.environment.environment import environment_for_children
from runmanager.validation import fault, suggestion

_BROKEN_STATUS = 1
_OF_EACH_CELL = (
    *("python", "scalar", "metric", "better", "argument", "unchecked", "unsigned", "device", "resume_with"),
    *("chdir", "secrets", "seed_name"),
)
_NO_SETTINGS = ("_target_", "preload", "processes_per_run", "timeout", "stall_timeout")
_OWN_SETTINGS = ("params", "heartbeat_timeout", "tune")  # of the sweeper, apart from the options
_NUMBERS = re.compile(r"[1-9]\d*(,[1-9]\d*)*")
_PRELOAD = (
    "runmanager.app.programs.cell_imports",
    "runmanager.app.programs.script.script_cell",
    "runmanager.tracking.tensorboard.event_writer",
)


def main(command: Command, *, is_single: bool) -> int:
    """Run the cells of a script and return the exit status: 0, 1 or 130, as for the built-in job.

    A script that is a Hydra application replaces this process, as its own command with `hydra/sweeper=runmanager`.
    Raises `RunManagerError` where nothing has been run.
    """
    request = command.request
    declare_secrets(request.secrets)
    masked_words(command.words)  # from here on no message shows what they hold
    refuse_several_ranks(of_sweep=True)
    script = _script_of(command)
    if script.is_hydra_application:
        return _become_application(script, command)
    _refuse_faults(command, script)
    refuse_masks(command.settings)
    settings = _settings_of(command)
    search = search_of(request, settings, texts_of_word, flag_of)
    program = _program_of(command, script, search)
    if is_single and search is None and program.count_cells() > 1:
        raise UsageError("A single run must have one value of each setting, got a grid; use `runmanager sweep`.")
    driver = driver_options(
        replace(request, metric=_metric(request)),
        search=search,
        is_single=is_single,
        named=lambda words, name: (*words[:2], "--name", name, *words[2:]),
    )
    with environment_for_children(command.words, code_folder=script.code_folder):
        return _drive(SweepDriver(program, _launcher_of(command), driver), debug=request.debug)


def _script_of(command: Command) -> Script:
    """Return the script that a command names. Raises `UsageError` if it does not exist."""
    assert command.program is not None, "commands without a program are those of the built-in job"
    return find_script(command.program, is_module=command.is_module, python=command.request.python)


def _refuse_faults(command: Command, script: Script) -> None:
    """Raise `ConfigurationError` with every fault of a command's options for a script."""
    request = command.request
    faults = command.refusals(Kind.SCRIPT, flags_of_program=partial(flags_of, script, command.fixed))
    faults += request_faults(request, flag_of)
    if request.processes is not None and not _NUMBERS.fullmatch(request.processes):
        faults.append(fault("--processes", "be numbers of at least 1, such as 2 or 1,2", request.processes))
    if faults:
        raise ConfigurationError(faults)


def _settings_of(command: Command) -> list[str]:
    return [word for word in command.settings if word not in MULTIRUN]


def _program_of(command: Command, script: Script, search: SearchOptions | None = None) -> ScriptProgram:
    """Return the script of a command as a program of sweeps; that of a search has the corners of its space."""
    settings, options = _settings_of(command), _options(command, script)
    if search is not None:
        settings, rules = search.space.corners()[0], options.rules.of_search(search.space.keys)
        options = replace(options, rules=rules)
    return ScriptProgram(script, settings, options, storage_of(command.request))


def _drive(driver: SweepDriver, *, debug: bool) -> int:
    try:
        driver.run()
    except SystemExit as end:
        return end.code if isinstance(end.code, int) else _BROKEN_STATUS
    except SweepError as error:
        if debug:
            print_line("".join(traceback.format_exception(error)), sys.stderr)
        for text in str(error).splitlines():
            print_error(text)
        return _BROKEN_STATUS
    return 0


def _become_application(script: Script, command: Command, words: Sequence[str] = ()) -> int:
    """Replace this process by the application's own command, with further `words`. Does not return.

    Raises `ConfigurationError` for options that it has no use for.
    """
    called = _hydra_command(script, command)
    start = len(script.command) + 1  # after -m: to Hydra, overrides on both sides of an option are unknown ones
    called[start:start] = words
    sys.stdout.flush()
    sys.stderr.flush()
    variables = os.environ | {FLAGS_VARIABLE: "1"} | ({"HYDRA_FULL_ERROR": "1"} if command.request.debug else {})
    os.execve(called[0], called, variables)  # noqa: S606  # the words of the command


def _hydra_command(script: Script, command: Command) -> list[str]:
    """Return the application's own command with `hydra/sweeper=runmanager` and the options as Hydra's settings.

    Raises `ConfigurationError` for options that such a program has no use for, and for unknown settings of ours.
    """
    processes, name = command.request.processes, script.word
    faults = command.refusals(Kind.APPLICATION)
    if processes is not None and not (processes.isdecimal() and int(processes) >= 1):
        # Hydra sweeps over no settings of its own.
        rule = f"be one number of at least 1 for {name}, which is a Hydra application"
        faults.append(fault("--processes", rule, processes))
    faults += [
        f"`{word}` must be a setting or an option of Hydra, as {name} is a Hydra application, got it after `--`."
        for word in command.fixed
        if word.startswith("-") and word.partition("=")[0] not in (*HYDRA_FLAGS, *HYDRA_OPTIONS)
    ]
    if faults:
        raise ConfigurationError(faults)
    if command.only_shows:
        return [*script.command, *(word for word in command.settings if word not in MULTIRUN)]
    words = ["hydra/sweeper=runmanager", *command.hydra_words(Kind.APPLICATION)]
    words += [word for word in command.settings if word not in MULTIRUN] + list(command.fixed)
    launcher = LAUNCHERS[command.request.launcher].options
    taken = [each.name for each in options().values() if Kind.APPLICATION in each.takes]
    if faults := _unknown_settings("sweeper", words, [*taken, *_OWN_SETTINGS]) + _unknown_settings(
        "launcher", words, [each.name for each in fields(launcher)]
    ):
        raise ConfigurationError(faults)
    return [*script.command, "-m", *words]


def _unknown_settings(part: str, words: Sequence[str], known: Sequence[str]) -> list[str]:
    """Faults of settings that our sweeper or launcher lacks; Hydra would stop at the first."""
    chosen = {word for word in words if word.startswith(f"hydra/{part}=")}
    ours = (f"hydra/launcher={each.hydra_name}" for each in LAUNCHERS.values())
    if not chosen <= {"hydra/sweeper=runmanager", *ours}:
        return []  # the command chooses another
    keys = [word.lstrip("+~").partition("=")[0] for word in words]
    return unknown_names([key.split(".")[2] for key in keys if key.startswith(f"hydra.{part}.")], part, known)


def _options(command: Command, script: Script) -> ScriptOptions:
    request = command.request
    metric, better = _metric(request), request.better
    if better is None and request.metric is not None:
        better = MAX if prefers_larger(request.metric) else MIN
    call = ("runmanager", "run", *option_words(request, _OF_EACH_CELL), *(("-m",) if script.is_module else ()))
    return ScriptOptions(
        fixed=command.fixed,
        form=request.argument,
        unchecked=request.unchecked,
        scalars=tuple(parse_scalars(request.scalar)),
        unsigned=tuple(request.unsigned),
        device=request.device,
        better={metric: parse_better(better)} if metric is not None and better is not None else {},
        resume_with=ResumeSetting.read(request.resume_with),
        chdir=request.chdir,
        call=(*call, script.word),
        rules=GridRules.read(request, flag_of),
        processes=() if request.processes is None else tuple(dict.fromkeys(map(int, request.processes.split(",")))),
    )


def _metric(request: SweepRequest) -> str | None:
    """The metric by which cells are ranked, if the command names one: a single printed one needs no `--metric`."""
    scalars = parse_scalars(request.scalar)
    return request.metric or (scalars[0].name if len(scalars) == 1 else None)


def _launcher_of(command: Command) -> CellLauncher:
    """Return the launcher that the options describe. Raises `ConfigurationError` with their faults."""
    request, launcher = command.request, LAUNCHERS[command.request.launcher]
    known = {each.name for each in fields(launcher.options)}
    taken = ((option, name) for option, name in launcher.takes.items() if option in command.given)
    given: dict[str, Any] = {name: getattr(request, option) for option, name in taken}
    given |= {"timeout": request.timeout, "stall_timeout": request.stall_timeout}
    given |= {"preload": [*_PRELOAD]} if "preload" in known else {}
    settings = _launcher_settings(command, known.difference(_NO_SETTINGS, launcher.takes))
    try:
        created: CellLauncher = resolve_name(launcher.launcher)(**given | settings)
        return created
    except ConfigurationError as error:
        ours = {f"`{each.hydra_name(Kind.JOB)}`": f"`{each.flag}`" for each in options().values()}
        names = re.compile(r"`hydra\.launcher\.\w+`")
        raise ConfigurationError(
            names.sub(lambda name: ours.get(name[0], name[0]), each) for each in error.faults
        ) from None


def _launcher_settings(command: Command, known: Collection[str]) -> dict[str, Any]:
    """The settings that only the launcher has. Raises `ConfigurationError` for those that it lacks."""
    settings: dict[str, Any] = {}
    faults = []
    for option, word in command.launcher_settings:
        name, given, value = word.partition("=")
        if not given or name not in known:
            rule = f"be NAME=VALUE of a setting that only `--launcher {command.request.launcher}` has"
            faults.append(fault(option, rule, word, suggestion(name, sorted(known))))
        settings[name] = yaml.safe_load(value)
    if faults:
        raise ConfigurationError(faults)
    return settings


def tune_script(command: Command, *, seconds: float, began: float) -> int:
    """Race the lists of values among a program's settings; return the exit status. See `race_whole_runs`.

    A Hydra application replaces this process. Raises `RunManagerError` where nothing has been run.
    """
    refuse_several_ranks(of_sweep=True)
    script = _script_of(command)
    options = option_words(command.request, ("python", "argument"))
    call = ("runmanager", "run", *options, *(("-m",) if command.is_module else ()), script.word)
    if script.is_hydra_application:
        typed = [*command.settings, *command.fixed]
        asked = {"seconds": seconds, "began": began, "call": list(call), "typed": typed}
        return _become_application(script, command, [format_override("hydra.sweeper.tune", asked)])
    _refuse_faults(command, script)
    values = _raced_values(parse_settings(command.settings))
    fixed = after_separator(command.fixed)
    with environment_for_children(command.words, code_folder=script.code_folder):
        program, launcher = _program_of(command, script), _launcher_of(command)
        return race_whole_runs(program, values, launcher, call=call, fixed=fixed, seconds=seconds, began=began)


def _raced_values(grid: SettingGrid) -> RacedValues:
    words = {each.name: [(value.text, setting_word(each.name, value)) for value in each.values] for each in grid.sets}
    return RacedValues(words, [each.name for each in grid.sets if each.is_axis])

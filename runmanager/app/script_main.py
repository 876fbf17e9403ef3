"""`runmanager sweep SCRIPT` and `runmanager run SCRIPT`: a script's cells, planned and run."""

import os
import re
import sys
import traceback
from collections.abc import Collection, Sequence
from dataclasses import fields, replace
from functools import partial
from typing import Any

import yaml
from hydra.plugins.launcher import Launcher

from runmanager.app.compose.grid_rules import GridRules
from runmanager.app.display.error_line import print_error
from runmanager.app.driver.sweep_driver import SweepDriver
from runmanager.app.programs.script.flag_check import flags_of
from runmanager.app.programs.script.hydra_call import hydra_command
from runmanager.app.programs.script.output.scalar_pattern import parse_scalars
from runmanager.app.programs.script.script import Script, find_script
from runmanager.app.programs.script.script_cell import ResumeSetting
from runmanager.app.programs.script.script_program import ScriptOptions, ScriptProgram
from runmanager.app.programs.sweep_settings import driver_options, request_faults, storage_of
from runmanager.app.request.command import MULTIRUN, Command, option_words
from runmanager.app.request.sweep_request import Kind, SweepRequest, flag_of, options
from runmanager.errors import ConfigurationError, SweepError, UsageError
from runmanager.launching.hydra_launcher import LocalLauncher
from runmanager.launching.options import LocalOptions
from runmanager.launching.slurm.launcher import SlurmLauncher
from runmanager.launching.slurm.options import SlurmOptions
from runmanager.records.host.standard_streams import print_line
from runmanager.records.run.metric_direction import MAX, MIN, parse_better, prefers_larger
from runmanager.records.settings.secrets import declare_secrets, masked_words, refuse_masks
from runmanager.tracking.environment.environment import environment_for_children
from runmanager.tracking.environment.rank_check import refuse_several_ranks
from runmanager.validation import fault, suggestion

__all__ = ["become_application", "launcher_of", "main", "program_of", "refuse_faults", "script_of"]

_BROKEN_STATUS = 1
_OF_EACH_CELL = (
    *("python", "scalar", "metric", "better", "argument", "unchecked", "unsigned", "device", "resume_with"),
    *("secrets", "seed_name"),
)
_OF_LOCAL = ("workers", "gpus", "gpus_per_run", "retries")
_NO_SETTINGS = ("_target_", "preload", "processes_per_run", "timeout", "stall_timeout")
_NUMBERS = re.compile(r"[1-9]\d*(,[1-9]\d*)*")
_PRELOAD = "runmanager.app.programs.script.script_cell"


def main(command: Command, *, is_single: bool) -> int:
    """Run the cells of a script and return the exit status: 0, 1 or 130, as for the built-in job.

    A script that is a Hydra application replaces this process, as its own command with `hydra/sweeper=runmanager`.
    Raises `RunManagerError` where nothing has been run.
    """
    request = command.request
    declare_secrets(request.secrets)
    masked_words(command.words)  # from here on no message shows what they hold
    refuse_several_ranks(of_sweep=True)
    script = script_of(command)
    if script.is_hydra_application:
        return become_application(script, command)
    refuse_faults(command, script)
    refuse_masks(command.settings)
    program = program_of(command, script)
    if is_single and program.count_cells() > 1:
        raise UsageError("A single run must have one value of each setting, got a grid; use `runmanager sweep`.")
    driver = driver_options(
        replace(request, metric=_metric(request)),
        is_single=is_single,
        named=lambda words, name: (*words[:2], "--name", name, *words[2:]),
    )
    with environment_for_children(command.words, code_folder=script.code_folder):
        return _drive(SweepDriver(program, launcher_of(command), driver), debug=request.debug)


def script_of(command: Command) -> Script:
    """Return the script that a command names. Raises `UsageError` if it does not exist."""
    assert command.program is not None, "commands without a program are those of the built-in job"
    return find_script(command.program, is_module=command.is_module, python=command.request.python)


def refuse_faults(command: Command, script: Script) -> None:
    """Raise `ConfigurationError` with every fault of a command's options for a script."""
    request = command.request
    faults = command.refusals(Kind.SCRIPT, flags_of_program=partial(flags_of, script))
    faults += request_faults(request, flag_of)
    metric = request.metric
    if metric is not None and request.better is None and prefers_larger(metric) is None:
        faults.append(f"`--better` must be given for {metric}, got none; its name does not show which is better.")
    if request.processes is not None and not _NUMBERS.fullmatch(request.processes):
        faults.append(fault("--processes", "be numbers of at least 1, such as 2 or 1,2", request.processes))
    if faults:
        raise ConfigurationError(faults)


def program_of(command: Command, script: Script) -> ScriptProgram:
    """Return the script of a command as a program of sweeps."""
    settings = [word for word in command.settings if word not in MULTIRUN]
    return ScriptProgram(script, settings, _options(command, script), storage_of(command.request))


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


def become_application(script: Script, command: Command, words: Sequence[str] = ()) -> int:
    """Replace this process by the application's own command, with further `words`. Does not return.

    Raises `ConfigurationError` for options that it has no use for.
    """
    called = hydra_command(script, command)
    start = len(script.command) + 1  # after -m: to Hydra, overrides on both sides of an option are unknown ones
    called[start:start] = words
    sys.stdout.flush()
    sys.stderr.flush()
    variables = os.environ | ({"HYDRA_FULL_ERROR": "1"} if command.request.debug else {})
    os.execve(called[0], called, variables)  # noqa: S606  # the words of the command


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
        resume_with=None if request.resume_with is None else ResumeSetting(*request.resume_with.split("=", 1)),
        call=(*call, script.word),
        rules=GridRules.read(request, flag_of),
        processes=() if request.processes is None else tuple(dict.fromkeys(map(int, request.processes.split(",")))),
    )


def _metric(request: SweepRequest) -> str | None:
    """The metric by which cells are ranked, if the command names one: a single printed one needs no `--metric`."""
    scalars = parse_scalars(request.scalar)
    return request.metric or (scalars[0].name if len(scalars) == 1 else None)


def launcher_of(command: Command) -> Launcher:
    """Return the launcher that the options describe. Raises `ConfigurationError` with their faults."""
    request = command.request
    create, known, own = (
        (SlurmLauncher, SlurmOptions, {"gpus_per_node": request.gpus_per_run})
        if request.launcher == "slurm"
        else (_local_launcher, LocalOptions, {name: getattr(request, name) for name in _OF_LOCAL})
    )
    given = {name: value for name, value in own.items() if value is not None}
    settings = _launcher_settings(command, {each.name for each in fields(known)} - {*_NO_SETTINGS, *_OF_LOCAL})
    try:
        return create(timeout=request.timeout, stall_timeout=request.stall_timeout, **given | settings)
    except ConfigurationError as error:
        ours = {f"`{each.hydra_name(Kind.JOB)}`": f"`{each.flag}`" for each in options().values()}
        names = re.compile(r"`hydra\.launcher\.\w+`")
        raise ConfigurationError(
            names.sub(lambda name: ours.get(name[0], name[0]), each) for each in error.faults
        ) from None


def _local_launcher(**settings: Any) -> LocalLauncher:
    return LocalLauncher(preload=[_PRELOAD], **settings)


def _launcher_settings(command: Command, known: Collection[str]) -> dict[str, Any]:
    """The settings that only the launcher has. Raises `ConfigurationError` for those that it lacks."""
    settings: dict[str, Any] = {}
    faults = []
    for word in command.launcher_settings:
        name, given, value = word.partition("=")
        if not given or name not in known:
            option = "--slurm" if word in command.request.slurm else "--launcher-option"
            rule = f"be NAME=VALUE of a setting that only `--launcher {command.request.launcher}` has"
            faults.append(fault(option, rule, word, suggestion(name, sorted(known))))
        settings[name] = yaml.safe_load(value)
    if faults:
        raise ConfigurationError(faults)
    return settings

"""`runmanager sweep SCRIPT` and `runmanager run SCRIPT`: a script's cells, planned and run."""

import os
import re
import sys
import traceback
from collections.abc import Sequence
from dataclasses import fields
from typing import Any

import yaml
from hydra.plugins.launcher import Launcher

from runmanager.app.compose.grid_rules import GridRules
from runmanager.app.display.error_line import print_error
from runmanager.app.driver.program import Storage
from runmanager.app.driver.sweep_driver import DriverOptions, SweepDriver
from runmanager.app.programs.metric_advice import metric_advice
from runmanager.app.programs.script.hydra_call import hydra_command
from runmanager.app.programs.script.output.scalar_pattern import parse_scalars
from runmanager.app.programs.script.script import Script, find_script
from runmanager.app.programs.script.script_cell import ResumeSetting
from runmanager.app.programs.script.script_program import ScriptOptions, ScriptProgram
from runmanager.app.script_command_line import ScriptCommandLine, ScriptFlags
from runmanager.errors import ConfigurationError, SweepError, UsageError
from runmanager.launching.hydra_launcher import LocalLauncher
from runmanager.launching.plan import Resume
from runmanager.launching.slurm.launcher import SlurmLauncher
from runmanager.launching.slurm.options import SlurmOptions
from runmanager.records.host.standard_streams import print_line
from runmanager.records.run.metric_direction import BETTER, MAX, MIN, parse_better, prefers_larger
from runmanager.records.settings.secrets import declare_secrets, masked_words, refuse_masks
from runmanager.tracking.environment.environment import environment_for_children
from runmanager.tracking.environment.rank_check import refuse_several_ranks
from runmanager.validation import fault, suggestion

__all__ = ["become_application", "launcher_of", "main", "program_of"]

_BROKEN_STATUS = 1
_OF_EACH_CELL = (
    *("python", "scalar", "metric", "better", "argument", "unchecked", "unsigned", "device", "resume_with"),
    "secrets",
)
_NUMBERS = re.compile(r"[1-9]\d*(,[1-9]\d*)*")
_PRELOAD = "runmanager.app.programs.script.script_cell"


def main(line: ScriptCommandLine) -> int:
    """Run the cells of a script and return the exit status: 0, 1 or 130, as for the built-in job.

    A script that is a Hydra application replaces this process, as its own command with `hydra/sweeper=runmanager`.
    Raises `RunManagerError` where nothing has been run.
    """
    flags = line.flags
    declare_secrets(flags.secret_names)
    masked_words(line.words)  # from here on no message shows what they hold
    refuse_several_ranks(of_sweep=True)
    script = find_script(line.program, is_module=line.is_module, python=flags.python)
    if script.is_hydra_application:
        return become_application(script, line)
    if faults := _faults(flags):
        raise ConfigurationError(faults)
    refuse_masks(line.settings)
    program = program_of(line, script)
    if line.is_single and program.count_cells() > 1:
        raise UsageError("A single run must have one value of each setting, got a grid; use `runmanager sweep`.")
    driver = DriverOptions(
        is_single=line.is_single,
        dry_run=flags.dry_run,
        quiet=flags.quiet,
        yes=flags.yes,
        notify=flags.notify,
        restore=flags.restore,
        named=lambda command, name: (*command[:2], "--name", name, *command[2:]),
        metric=_metric(flags),
        without_metrics=metric_advice,
    )
    with environment_for_children(line.words, code_folder=script.code_folder):
        return _drive(SweepDriver(program, launcher_of(flags), driver), debug=line.debug)


def program_of(line: ScriptCommandLine, script: Script) -> ScriptProgram:
    """Return the script of a command as a program of sweeps."""
    return ScriptProgram(script, line.settings, _options(line, script), _storage(line.flags))


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


def become_application(script: Script, line: ScriptCommandLine, words: Sequence[str] = ()) -> int:
    """Replace this process by the application's own command, with further `words`. Does not return.

    Raises `ConfigurationError` for options that it has no use for.
    """
    command = hydra_command(script, line)
    start = len(script.command) + 1  # after -m: to Hydra, overrides on both sides of an option are unknown ones
    command[start:start] = words
    sys.stdout.flush()
    sys.stderr.flush()
    os.execve(command[0], command, os.environ | ({"HYDRA_FULL_ERROR": "1"} if line.debug else {}))  # noqa: S606  # the words of the command


def _options(line: ScriptCommandLine, script: Script) -> ScriptOptions:
    flags = line.flags
    scalars = parse_scalars(flags.scalar)
    resume = None if flags.resume_with is None else ResumeSetting(*flags.resume_with.split("=", 1))
    metric, better = _metric(flags), flags.better
    if better is None and flags.metric is not None:
        better = MAX if prefers_larger(flags.metric) else MIN
    return ScriptOptions(
        fixed=line.fixed,
        form=flags.argument,
        unchecked=flags.unchecked,
        scalars=tuple(scalars),
        unsigned=tuple(flags.unsigned),
        device=flags.device,
        better={metric: parse_better(better)} if metric is not None and better is not None else {},
        resume_with=resume,
        call=_single_call(flags, script),
        rules=GridRules.read(zip_=flags.zips, points=flags.points, exclude=flags.exclude, key=_flag),
        processes=_processes(flags),
    )


def _metric(flags: ScriptFlags) -> str | None:
    """The metric by which cells are ranked, if the command names one: a single printed one needs no `--metric`."""
    scalars = parse_scalars(flags.scalar)
    return flags.metric or (scalars[0].name if len(scalars) == 1 else None)


def _single_call(flags: ScriptFlags, script: Script) -> tuple[str, ...]:
    """The command that runs one cell, up to its settings."""
    words = ["runmanager", "run"]
    defaults = ScriptFlags()
    for name in _OF_EACH_CELL:
        value, option = getattr(flags, name), _flag(name)
        if value is True:
            words.append(option)
        elif value != getattr(defaults, name):
            words += [word for each in (value if isinstance(value, list) else [value]) for word in (option, each)]
    return (*words, *(("-m",) if script.is_module else ()), script.word)


def _faults(flags: ScriptFlags) -> list[str]:
    """Faults of options that stand alone or exclude each other."""
    faults = _storage(flags).faults(_flag)
    if flags.better is not None and flags.better not in BETTER:
        faults.append(fault("--better", "be max or min", flags.better))
    elif flags.better is not None and flags.metric is None and len(flags.scalar) != 1:
        faults.append("`--better` must be given with `--metric`, whose direction it is, got it alone.")
    if flags.metric is not None and flags.better is None and prefers_larger(flags.metric) is None:
        faults.append(f"`--better` must be given for {flags.metric}, got none; its name does not show which is better.")
    if flags.save is not None:
        faults.append(fault("--save", "be left out for a script", "it", "it writes a preset of the built-in job"))
    resume = flags.resume_with
    if resume is not None and not all(resume.partition("=")[::2]):
        faults.append(fault("--resume-with", "be NAME=FILE", repr(resume)))
    if flags.processes is not None and not _NUMBERS.fullmatch(flags.processes):
        faults.append(fault("--processes", "be numbers of at least 1, such as 2 or 1,2", flags.processes))
    return faults


def _processes(flags: ScriptFlags) -> tuple[int, ...]:
    return () if flags.processes is None else tuple(dict.fromkeys(map(int, flags.processes.split(","))))


def _storage(flags: ScriptFlags) -> Storage:
    resume = Resume(flags.resume)
    return Storage(flags.name, flags.output_root, resume, flags.rerun_changed, rerun_with="--rerun-changed")


def launcher_of(flags: ScriptFlags) -> Launcher:
    """Return the launcher that the options describe. Raises `ConfigurationError` with their faults."""
    try:
        return _slurm_launcher(flags) if flags.launcher == "slurm" else _local_launcher(flags)
    except ConfigurationError as error:
        names = re.compile(r"`hydra\.launcher\.(\w+)`")
        raise ConfigurationError(names.sub(lambda name: f"`{_flag(name[1])}`", each) for each in error.faults) from None


def _local_launcher(flags: ScriptFlags) -> LocalLauncher:
    if flags.slurm:
        raise ConfigurationError([fault("--slurm", "be given with `--launcher slurm`", flags.slurm[0])])
    return LocalLauncher(
        workers=flags.workers,
        gpus=None if flags.gpus is None else flags.gpus.split(","),
        gpus_per_run=flags.gpus_per_run,
        timeout=flags.timeout,
        retries=flags.retries,
        preload=[_PRELOAD],
    )


def _slurm_launcher(flags: ScriptFlags) -> SlurmLauncher:
    unused = [name for name in ("gpus", "retries", "workers") if getattr(flags, name) != getattr(ScriptFlags(), name)]
    instead = {"gpus": "gpus_per_node", "retries": "resubmissions", "workers": "array_parallelism"}
    faults = [
        f"`{_flag(name)}` must be left out with `--launcher slurm`, got it; use --slurm {instead[name]}=…."
        for name in unused
    ]
    known = [each.name for each in fields(SlurmOptions) if each.name not in ("_target_", "processes_per_run")]
    settings: dict[str, Any] = {}
    for word in flags.slurm:
        name, given, value = word.partition("=")
        if not given or name not in known:
            faults.append(f"`--slurm {word}` must be NAME=VALUE of a Slurm setting; {suggestion(name, known)}")
        settings[name] = yaml.safe_load(value)
    if faults:
        raise ConfigurationError(faults)
    if flags.gpus_per_run is not None:
        settings.setdefault("gpus_per_node", flags.gpus_per_run)
    return SlurmLauncher(timeout=flags.timeout, **settings)


def _flag(name: str) -> str:
    return f"--{name.replace('_', '-')}"

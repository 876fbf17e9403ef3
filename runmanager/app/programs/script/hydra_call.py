"""The command of a script that is a Hydra application: its own, with our sweeper."""

from collections.abc import Sequence
from dataclasses import fields

from runmanager.app.compose.override_quoting import format_override
from runmanager.app.programs.plugin_settings import unknown_names
from runmanager.app.programs.script.script import Script
from runmanager.app.script_command_line import ScriptCommandLine, ScriptFlags
from runmanager.errors import ConfigurationError
from runmanager.validation import fault

__all__ = ["hydra_command"]

_SWEEPER = ("name", "output_root", "resume", "rerun_changed", "dry_run", "quiet", "yes", "unsigned", "device")
_SWEEPER_TOO = ("metric", "better", "resume_with", "points", "exclude", "notify", "restore")
_LAUNCHER = ("workers", "gpus_per_run", "timeout", "retries")
_HERE = ("module", "python", "launcher", "gpus", "slurm", "zip", "processes")
_LAUNCHERS = {"local": "runmanager", "slurm": "runmanager_slurm"}
_CONFIGS = {"local": "LocalLauncherConfig", "slurm": "SlurmLauncherConfig"}


def hydra_command(script: Script, line: ScriptCommandLine) -> list[str]:
    """Return the application's own command with `hydra/sweeper=runmanager` and the options as Hydra's settings.

    Raises `ConfigurationError` for options that such a program has no use for, and for unknown settings of ours.
    """
    flags, defaults = line.flags, ScriptFlags()
    given = {each.name for each in fields(flags) if getattr(flags, each.name) != getattr(defaults, each.name)}
    known = {*_SWEEPER, *_SWEEPER_TOO, *_LAUNCHER, *_HERE}
    if faults := [
        f"`--{name.replace('_', '-')}` must be left out for {script.word}, which is a Hydra application, got it; its "
        "settings are its configuration."
        for name in sorted(given - known)
    ]:
        raise ConfigurationError(faults)
    if faults := _process_faults(flags, script):
        raise ConfigurationError(faults)
    words = ["hydra/sweeper=runmanager", f"hydra/launcher={_LAUNCHERS[flags.launcher]}"]
    words += [
        format_override(f"hydra.sweeper.{name}", getattr(flags, name))
        for name in (*_SWEEPER, *_SWEEPER_TOO)
        if name in given
    ]
    words += [format_override(f"hydra.launcher.{name}", getattr(flags, name)) for name in _LAUNCHER if name in given]
    if flags.zip:
        words.append(format_override("hydra.sweeper.zip", flags.zips))
    if flags.processes is not None:
        words.append(f"hydra.launcher.processes_per_run={flags.processes}")
    if flags.gpus is not None:
        words.append(f"hydra.launcher.gpus=[{flags.gpus}]")
    words += [f"hydra.launcher.{word}" for word in flags.slurm]
    words += [*line.settings, *line.fixed]
    if faults := _unknown_settings("sweeper", words, "SweeperConfig") + _unknown_settings(
        "launcher", words, _CONFIGS[flags.launcher]
    ):
        raise ConfigurationError(faults)
    return [*script.command, "-m", *words]


def _unknown_settings(part: str, words: Sequence[str], config: str) -> list[str]:
    """Faults of settings that our sweeper or launcher lacks; Hydra would stop at the first."""
    if sum(word.startswith(f"hydra/{part}=") for word in words) > 1:
        return []  # the command chooses another
    keys = [word.lstrip("+~").partition("=")[0] for word in words]
    names = [key.split(".")[2] for key in keys if key.startswith(f"hydra.{part}.")]
    return unknown_names(names, part=part, config=config)


def _process_faults(flags: ScriptFlags, script: Script) -> list[str]:
    """Hydra sweeps over no settings of its own."""
    if flags.processes is None or (flags.processes.isdecimal() and int(flags.processes) >= 1):
        return []
    rule = f"be one number of at least 1 for {script.word}, which is a Hydra application"
    return [fault("--processes", rule, flags.processes)]

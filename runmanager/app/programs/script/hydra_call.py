"""The command of a script that is a Hydra application: its own, with our sweeper."""

from collections.abc import Sequence
from dataclasses import fields

from runmanager.app.programs.plugin_settings import unknown_names
from runmanager.app.programs.script.script import Script
from runmanager.app.request.command import MULTIRUN, Command
from runmanager.app.request.sweep_request import Kind, options
from runmanager.errors import ConfigurationError
from runmanager.launching.options import LocalOptions
from runmanager.launching.slurm.options import SlurmOptions
from runmanager.validation import fault

__all__ = ["hydra_command"]

_OWN = ("params", "heartbeat_timeout", "tune")  # of the sweeper, apart from the options


def hydra_command(script: Script, command: Command) -> list[str]:
    """Return the application's own command with `hydra/sweeper=runmanager` and the options as Hydra's settings.

    Raises `ConfigurationError` for options that such a program has no use for, and for unknown settings of ours.
    """
    processes, name = command.request.processes, script.word
    faults = command.refusals(Kind.APPLICATION)
    if processes is not None and not (processes.isdecimal() and int(processes) >= 1):
        # Hydra sweeps over no settings of its own.
        rule = f"be one number of at least 1 for {name}, which is a Hydra application"
        faults.append(fault("--processes", rule, processes))
    if faults:
        raise ConfigurationError(faults)
    words = ["hydra/sweeper=runmanager", *command.hydra_words(Kind.APPLICATION)]
    words += [word for word in command.settings if word not in MULTIRUN] + list(command.fixed)
    launcher = SlurmOptions if command.request.launcher == "slurm" else LocalOptions
    taken = [each.name for each in options().values() if Kind.APPLICATION in each.takes]
    if faults := _unknown_settings("sweeper", words, [*taken, *_OWN]) + _unknown_settings(
        "launcher", words, [each.name for each in fields(launcher)]
    ):
        raise ConfigurationError(faults)
    return [*script.command, "-m", *words]


def _unknown_settings(part: str, words: Sequence[str], known: Sequence[str]) -> list[str]:
    """Faults of settings that our sweeper or launcher lacks; Hydra would stop at the first."""
    chosen = {word for word in words if word.startswith(f"hydra/{part}=")}
    if not chosen <= {"hydra/sweeper=runmanager", "hydra/launcher=runmanager", "hydra/launcher=runmanager_slurm"}:
        return []  # the command chooses another
    keys = [word.lstrip("+~").partition("=")[0] for word in words]
    return unknown_names([key.split(".")[2] for key in keys if key.startswith(f"hydra.{part}.")], part, known)

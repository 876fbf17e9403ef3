"""The command that makes a stored run again, proved by its signature, and what of the machine is another today."""

import platform
import re
import shlex
import socket
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

from runmanager.app.compose.override_quoting import format_override
from runmanager.errors import ConfigurationError
from runmanager.launching.local.gpu_discovery import gpu_names
from runmanager.records.host.process import usable_cores
from runmanager.records.run.record import Environment, RunRecord
from runmanager.records.settings.grid import flatten, plain_settings
from runmanager.records.settings.signature import signature
from runmanager.text import format_value, full_command
from runmanager.tracking.device.processor import cpu_model
from runmanager.tracking.environment.code_hashes import current_code
from runmanager.tracking.environment.provenance import commit_of, library_versions
from runmanager.training.stored_targets import refuse_foreign_targets
from runmanager.validation import fault

if TYPE_CHECKING:
    from omegaconf import DictConfig

__all__ = ["Reproduction", "current_environment", "reproduce"]

_PROGRAM = ("python", "-m", "runmanager")
_GROUPS = ("dataset", "model", "optimizer", "scheduler", "loader", "measure")
_OF_THE_FOLDER = frozenset({"name", "output_root", "resume", "rerun_changed", "hydra"})
"""Settings that say where the old run lies, and how it was launched: the new one gets a folder of its own."""

_NAME = re.compile(r"\w+(\.\w+)*", re.ASCII)

_TRUST = "if you trust whoever made the run, add --trust"

_ANOTHER_CELL = "With today's code these settings are another cell: there are settings that the run did not know."

# The settings of a cell do not depend on these, and without our own launcher they are read sooner.
_PLAIN_HYDRA = ("hydra/launcher=basic", "hydra/sweeper=basic")


@dataclass(frozen=True)
class Reproduction:
    """How to make a run again: the words of the command, and lines about what stands in its way.

    `is_proved` says that the command gives the run's signature with today's code.
    """

    command: tuple[str, ...]
    is_proved: bool
    remarks: tuple[str, ...] = ()

    @property
    def line(self) -> str:
        """The command for a shell."""
        return shlex.join(self.command)


def reproduce(
    record: RunRecord, *, seeds: Sequence[Any] = (), told: Collection[str] = (), trust: bool = False
) -> Reproduction:
    """The command for one run; with several `seeds` for it and its repetitions.

    Every setting in which the run differs from today's defaults is in it, and each of those that the reader is `told`
    of, by its dotted name; where the command cannot have them, a remark does. Raises `UsageError` where it would call a
    stored `_target_` that is not a network of a known package, unless the run is to be trusted.
    """
    if not _is_ours(record.config):
        said = (
            "It was made by a loop of its own, so the command is the one that was given; its settings are the loop's."
        )
        return _as_given(record, said, told)
    if not trust:
        refuse_foreign_targets(record.config, way_out=_TRUST)
    if record.session is not None:
        said = "It took turns with other runs (measure=paired), so the command is that of all of them."
        return _as_given(record, said, told)
    try:
        words = _overrides(record.config, told)
        settings = _checked(words)
    except ConfigurationError as error:
        said = f"Today's settings refuse it, so the command is the one that was given: {error}"
        return _as_given(record, said, told)
    if not trust:
        refuse_foreign_targets(settings, way_out=_TRUST)  # what Hydra reads in the words may be more than was stored
    is_proved = signature(settings) == record.signature
    grid = list(dict.fromkeys(seeds))
    if len(grid) > 1:
        words = ["-m", *(word for word in words if not word.startswith("seed=")), f"seed={','.join(map(str, grid))}"]
    return Reproduction((*_PROGRAM, *words), is_proved, () if is_proved else (_ANOTHER_CELL,))


def _as_given(record: RunRecord, why: str, told: Collection[str]) -> Reproduction:
    """The command that made the run, and what of the run it may not say."""
    known = {name.removesuffix(".name"): value for name, value in record.settings.items() if name in told}
    cell = (
        [f"This cell has {', '.join(f'{name}={format_value(value)}' for name, value in known.items())}."]
        if known
        else []
    )
    return Reproduction(full_command(record.environment.command), False, (why, *cell))


def _is_ours(config: Mapping[str, Any]) -> bool:
    """Whether the application made it: each group has the name of its choice."""
    return all(isinstance(config.get(group), Mapping) and "name" in config[group] for group in _GROUPS)


def _overrides(config: Mapping[str, Any], told: Collection[str]) -> list[str]:
    """The words that turn today's defaults into `config`, and those of `told` settings that are the defaults.

    Raises `ConfigurationError` for what today refuses.
    """
    wanted = flatten({key: value for key, value in config.items() if key not in _OF_THE_FOLDER})
    usual = _flat([])
    kinds = {group: f"{group}.name" for group in _GROUPS}
    _refuse_other_words(wanted, usual, kinds)
    choices = [
        f"{group}={wanted[kind]}" for group, kind in kinds.items() if wanted[kind] != usual[kind] or kind in told
    ]
    choices += [format_override(name, value) for name, value in wanted.items() if name.endswith("._target_")]
    base = _flat(choices)
    words = [
        format_override(name if name in base else f"+{name}", value)
        for name, value in wanted.items()
        if name not in base or base[name] != value or (name in told and not name.endswith((".name", "._target_")))
    ]
    return [*choices, *words]


def _refuse_other_words(wanted: Mapping[str, Any], usual: Mapping[str, Any], kinds: Mapping[str, str]) -> None:
    """Raise `ConfigurationError` where a stored name, as part of a word, could say more to Hydra than a setting.

    A name may lead Hydra to its own settings, whose callbacks and search path run code, or to a file anywhere.
    """
    from runmanager.app.compose.schema import group_choices

    tops = {name.partition(".")[0] for name in usual}
    faults = [
        fault(repr(name), "be a setting of today", "an unknown name")
        for name in wanted
        if name.partition(".")[0] not in tops or not _NAME.fullmatch(name)
    ]
    faults += [
        fault(group, f"be one of {', '.join(group_choices(group))}", repr(wanted.get(kind)))
        for group, kind in kinds.items()
        if wanted.get(kind) not in group_choices(group)
    ]
    if faults:
        raise ConfigurationError(faults)


def _checked(words: Sequence[str]) -> dict[str, Any]:
    """The settings of the cell that the words give. Raises `ConfigurationError` for whatever a run of it would."""
    from runmanager.app.compose.schema import read_config, unknown_settings

    cfg, plain = _composed(words)
    if faults := unknown_settings(cfg) or read_config(cfg).faults():
        raise ConfigurationError(faults)
    return plain


def _flat(words: Sequence[str]) -> dict[str, Any]:
    """What the words compose to today, under dotted names."""
    return flatten(_composed(words)[1])


def _composed(words: Sequence[str]) -> "tuple[DictConfig, dict[str, Any]]":
    """What the words compose to today, and the same as a run would store it.

    Raises `ConfigurationError` where Hydra objects.
    """
    from hydra import compose, initialize_config_dir
    from hydra.errors import HydraException
    from omegaconf.errors import OmegaConfBaseException

    from runmanager.app.compose.schema import conf_folder, plain_config, register_schema

    register_schema()
    try:
        with initialize_config_dir(str(conf_folder()), version_base="1.3"):
            cfg = compose("config", overrides=[*_PLAIN_HYDRA, *words])
            return cfg, plain_settings(plain_config(cfg))
    except (HydraException, OmegaConfBaseException) as error:
        raise ConfigurationError([str(error).splitlines()[0]]) from error


def current_environment(then: Environment) -> Environment:
    """The environment of a run as it would be here and now; what only a run finds out is as it was `then`."""
    commit, clean = commit_of(Path.cwd())
    on_cpu = then.device_name in (then.cpu_model, "cpu")
    return msgspec.structs.replace(
        then,
        host=socket.gethostname(),
        cpu_model=cpu_model(),
        num_cores=usable_cores(),
        device_name=cpu_model() if on_cpu else _accelerator(then.device_name),
        python=platform.python_version(),
        libraries=library_versions(),
        commit=commit,
        commit_clean=clean,
        code=current_code(then.code, then.command),
    )


def _accelerator(wanted: str | None) -> str | None:
    """That accelerator if this machine has one of the name, else those that it has."""
    found = gpu_names()
    return wanted if wanted is None or wanted in found else ", ".join(dict.fromkeys(found)) or "no NVIDIA GPU found"

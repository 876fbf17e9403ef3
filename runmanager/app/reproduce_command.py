"""The command that reproduces a stored run, verified by its signature, and the environment of today."""

import platform
import re
import socket
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

from runmanager.app.request.command import format_override
from runmanager.app.request.command_reader import split_fixed
from runmanager.errors import ConfigurationError, UsageError
from runmanager.records.host.gpus import gpu_names
from runmanager.records.host.process import usable_core_time, usable_cores
from runmanager.records.run.program_report import GROUPS, ProgramKind, kind_of_program
from runmanager.records.run.run_record import Environment, RunRecord
from runmanager.records.settings.grid import seed_grid, with_seeds
from runmanager.records.settings.secrets import MASK, masked_names
from runmanager.records.settings.signature import short_signature, signature, with_later_settings
from runmanager.records.settings.values import flatten, plain_settings
from runmanager.text import format_value, full_command, shell_command
from runmanager.tracking.environment.code_hashes import rehash_code
from runmanager.tracking.environment.environment import cpu_model, library_versions
from runmanager.tracking.environment.program_code import commit_of
from runmanager.training.custom_targets import refuse_foreign_targets
from runmanager.validation import fault

if TYPE_CHECKING:
    from omegaconf import DictConfig

_PROGRAM = ("python", "-m", "runmanager")
_LOCATION_SETTINGS = frozenset({"name", "output_root", "resume", "rerun_changed", "hydra"})
"""Settings that say where the old run is and how it was launched; the new run gets a new folder."""

_FOLLOWED = ("dataset.size", "dataset.holdout")
"""Settings that the default of another one depends on."""

_NAME = re.compile(r"\w+(\.\w+)*", re.ASCII)

_TRUST = "if you trust the author of the run, add --trust"

_OTHER_CELL = "With today's code these settings are another cell: the run did not know some of them."

_OTHER_PROGRAM = (
    "Only its program can tell whether this command still gives the same cell. A dry run of it, with {dry_run}, runs "
    "nothing and names the run: the name ends in {short} if it does."
)

# A cell's settings do not depend on launcher and sweeper, and Hydra's own load faster.
_PLAIN_HYDRA = ("hydra/launcher=basic", "hydra/sweeper=basic")


@dataclass(frozen=True)
class Reproduction:
    """How to reproduce a run: the command's arguments, and remarks on its limits.

    `is_proved`: whether the command gives the run's signature with today's code.
    """

    command: tuple[str, ...]
    is_proved: bool
    remarks: tuple[str, ...] = ()

    @property
    def line(self) -> str:
        """The command for a shell."""
        return shell_command(self.command)


def reproduce(
    record: RunRecord, *, seeds: Sequence[Mapping[str, Any]] = (), shown: Collection[str] = (), trust: bool = False
) -> Reproduction:
    """Return the command for one run, or for the run and its repetitions, given the `seeds` of each.

    It has every setting in which the run differs from today's defaults, and the settings in `shown`, by their dotted
    names; a remark lists those that the command cannot have. Raises `UsageError` if the command would call a stored
    `_target_` that is not a network of a known package, unless `trust` is set, and for a secret that was not recorded.
    """
    _refuse_masked(record)
    kind, grid = kind_of_program(record), seed_grid(seeds)
    if kind is ProgramKind.ADOPTED:
        raise UsageError(
            f"Run {record.name} must be one of runmanager's to be reproduced, got one adopted from {record.adopted}, "
            "whose command was not recorded."
        )
    if record.cell_command:
        dry_run = "hydra.sweeper.dry_run=true" if kind is ProgramKind.APPLICATION else "--dry-run"
        remark = _OTHER_PROGRAM.format(dry_run=dry_run, short=short_signature(record.signature))
        return Reproduction(_with_seeds(record.cell_command, grid), False, (remark,))
    if kind is ProgramKind.LOOP:
        reason = "It was made by a custom loop, so the command is the original one; its settings are the loop's."
        return _original_command(record, reason, shown)
    if not trust:
        refuse_foreign_targets(record.config, way_out=_TRUST)
    if record.session is not None:
        reason = "It took turns with other runs (measure=paired), so the command is that of all of them."
        return _original_command(record, reason, shown)
    try:
        words = _overrides(record.config, {*shown, *grid})
        settings = _checked(words)
    except ConfigurationError as error:
        reason = f"Today's settings reject it, so the command is the original one: {error}"
        return _original_command(record, reason, shown)
    if not trust:
        refuse_foreign_targets(settings, way_out=_TRUST)  # Hydra may resolve the words to more than was stored
    is_proved = signature(settings) == record.signature
    if grid:
        words = ["-m", *sorted(with_seeds(words, grid), key=lambda word: word not in words)]  # the seeds last
    return Reproduction((*_PROGRAM, *words), is_proved, () if is_proved else (_OTHER_CELL,))


def job_overrides(record: RunRecord, *, shown: Collection[str] = ()) -> list[str] | None:
    """Return the overrides that give a cell of the built-in job today, with `shown` settings even at their defaults.

    None for a run of another program, for settings that are rejected today, and for secrets, which were not recorded.
    """
    if kind_of_program(record) is not ProgramKind.BUILT_IN or masked_names(record.config):
        return None
    try:
        return _overrides(record.config, shown)
    except ConfigurationError:
        return None


def _with_seeds(cell_command: tuple[str, ...], grid: Mapping[str, Sequence[Any]]) -> tuple[str, ...]:
    """The command of another program's cell with all values of its seeds, where it gives each of these."""
    own, _ = split_fixed(cell_command)
    words = with_seeds(own, grid)
    if not grid or sum(now != then for now, then in zip(words, own, strict=True)) < len(grid):
        return cell_command
    if words[:2] == ["runmanager", "run"]:
        words[1] = "sweep"
    return (*words, *cell_command[len(own) :])


def _refuse_masked(record: RunRecord) -> None:
    words = (*(record.cell_command or ()), *record.environment.command)
    masked = masked_names(record.config) or [word.partition("=")[0] for word in words if MASK in word]
    if masked:
        raise UsageError(
            f"`{masked[0]}` of run {record.name} must come from the environment to be reproduced, got a secret whose "
            f"text was not recorded; run it with {masked[0]}='${{oc.env:NAME}}'."
        )


def _original_command(record: RunRecord, why: str, shown: Collection[str]) -> Reproduction:
    """The command that made the run, with remarks: `why`, and the run's `shown` settings."""
    known = {name.removesuffix(".name"): value for name, value in record.settings.items() if name in shown}
    cell = (
        [f"This cell has {', '.join(f'{name}={format_value(value)}' for name, value in known.items())}."]
        if known
        else []
    )
    return Reproduction(full_command(record.environment.command), False, (why, *cell))


def _overrides(config: Mapping[str, Any], shown: Collection[str]) -> list[str]:
    """The overrides that turn today's defaults into `config`, and `shown` settings even at their defaults.

    Raises `ConfigurationError` for settings that are rejected today.
    """
    wanted = flatten({key: value for key, value in config.items() if key not in _LOCATION_SETTINGS})
    defaults = _flat([])
    # A setting that the run did not know may have another default today.
    wanted |= {name: value for name, value in with_later_settings(wanted).items() if name in defaults}
    kinds = {group: f"{group}.name" for group in GROUPS}
    _refuse_unsafe_names(wanted, defaults, kinds)
    choices = [
        f"{group}={wanted[kind]}" for group, kind in kinds.items() if wanted[kind] != defaults[kind] or kind in shown
    ]
    choices += [
        format_override(name, value)
        for name, value in wanted.items()
        if name.endswith("._target_") and (defaults.get(name) != value or name in shown)
    ]
    words = _differing(wanted, _flat(choices), shown)
    if followed := {name: word for name, word in words.items() if name in _FOLLOWED}:
        words = _differing(wanted, _flat([*choices, *followed.values()]), shown) | followed
    return [*choices, *(words[name] for name in wanted if name in words)]


def _differing(wanted: Mapping[str, Any], base: Mapping[str, Any], shown: Collection[str]) -> dict[str, str]:
    """The overrides that turn `base` into the `wanted` settings, and those that are `shown` even if they are equal."""
    return {
        name: format_override(name if name in base else f"+{name}", value)
        for name, value in wanted.items()
        if name not in base or base[name] != value or (name in shown and not name.endswith((".name", "._target_")))
    }


def _refuse_unsafe_names(wanted: Mapping[str, Any], defaults: Mapping[str, Any], kinds: Mapping[str, str]) -> None:
    """Raise `ConfigurationError` if a stored name, as part of an override, could be more to Hydra than a setting.

    Names may reach Hydra's own settings, whose callbacks and search path run code, or arbitrary files.
    """
    from runmanager.app.compose.schema import group_choices

    tops = {name.partition(".")[0] for name in defaults}
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
    """The settings of the cell that the overrides give. Raises `ConfigurationError` as a run of it would."""
    from runmanager.app.compose.schema import read_config, unknown_settings

    cfg, plain = _composed(words)
    if faults := unknown_settings(cfg) or read_config(cfg).faults():
        raise ConfigurationError(faults)
    return plain


def _flat(words: Sequence[str]) -> dict[str, Any]:
    """The settings that the overrides give today, by dotted names."""
    return flatten(_composed(words)[1])


def _composed(words: Sequence[str]) -> "tuple[DictConfig, dict[str, Any]]":
    """The configuration that the overrides give today, and the same as a run would store it.

    Raises `ConfigurationError` for Hydra's errors.
    """
    from hydra import compose, initialize_config_dir
    from hydra.errors import HydraException
    from omegaconf.errors import OmegaConfBaseException

    from runmanager.app.compose.schema import conf_folder, plain_config, register_schema
    from runmanager.launching.hydra_internals import version_base

    register_schema()
    try:
        with initialize_config_dir(str(conf_folder()), **version_base()):
            cfg = compose("config", overrides=[*_PLAIN_HYDRA, *words])
            return cfg, plain_settings(plain_config(cfg))
    except (HydraException, OmegaConfBaseException) as error:
        raise ConfigurationError([str(error).splitlines()[0]]) from error


def current_environment(then: Environment) -> Environment:
    """Return the environment that the run would have here and now; what only a run can find out is as `then`."""
    on_cpu = then.device_name in (then.cpu_model, "cpu")
    return msgspec.structs.replace(
        then,
        host=socket.gethostname(),
        cpu_model=cpu_model(),
        num_cores=usable_cores(),
        usable_cores=usable_core_time(),
        device_name=cpu_model() if on_cpu else _accelerator(then.device_name),
        python=platform.python_version(),
        libraries=library_versions(),
        **commit_of(Path.cwd())._asdict(),
        code=rehash_code(then.code, then.command),
    )


def _accelerator(wanted: str | None) -> str | None:
    """`wanted` if this machine has such an accelerator, else the names of those it has."""
    found = gpu_names()
    return wanted if wanted is None or wanted in found else ", ".join(dict.fromkeys(found)) or "no NVIDIA GPU found"

"""The settings of a cell with types and defaults, registered with Hydra, and read from its configurations."""

import dataclasses
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any

from omegaconf import MISSING, DictConfig, OmegaConf

import runmanager
from runmanager.launching.hydra_internals import (
    get_node,
    interpolated_names,
    raw_value,
    register_resolver,
    store_config,
)
from runmanager.launching.plan import Resume
from runmanager.records.files.paths import storage_faults
from runmanager.records.settings.secrets import is_secret
from runmanager.records.settings.values import plain_settings
from runmanager.training.options.dataset import default_val_size, fake_val_size
from runmanager.training.options.groups import OPTION_TYPES
from runmanager.training.options.job import TrainingOptions
from runmanager.validation import fault, limits, suggestion


@dataclass(frozen=True)
class Config(TrainingOptions):
    """The settings of one cell: its training, its name and folder, and how it is resumed."""

    name: str | None = None
    """The sweep's folder below `output_root`; null is a new dated folder, which cannot be resumed."""
    output_root: str = "outputs"
    """The folder in which sweeps are stored."""
    resume: str = field(default="auto", metadata=limits(choices=list(Resume)))
    """`auto` runs what is missing, `never` runs every cell again, `must` requires stored runs."""
    rerun_changed: bool = False
    """Run finished cells again whose code, commit or library versions have changed."""

    def faults(self) -> list[str]:
        """Return every fault as a message."""
        faults = [*super().faults(), *storage_faults(self.name, self.output_root)]
        if self.resume == Resume.MUST and self.name is None:
            faults.append(fault("name", "be given with `resume=must`", None, "only named sweeps can be resumed"))
        if self.rerun_changed and self.name is None:
            faults.append(fault("name", "be given with `rerun_changed=true`", None, "an unnamed sweep is always new"))
        if self.rerun_changed and self.resume == Resume.NEVER:
            way_out = "that runs every cell again; leave one of the two out"
            faults.append(fault("rerun_changed", "be false with `resume=never`", "true", way_out))
        return faults


def register_schema() -> None:
    """Register every setting's type with Hydra, which then rejects values of other types."""
    register_resolvers()
    top = _writable(Config)
    for group in (*OPTION_TYPES, "loss"):
        top[group] = MISSING
    OmegaConf.set_struct(top.metrics, False)  # any name, without a plus sign
    store_config("schema", top)
    for group, choices in OPTION_TYPES.items():
        for name, options in choices.items():
            store_config(f"schema_{name}", _writable(options), group=group)


def register_resolvers() -> None:
    """Register what the configuration files refer to; needed in each process that reads a composed cell."""
    register_resolver("runmanager.choices", _choices)
    register_resolver("runmanager.val_size", default_val_size)
    register_resolver("runmanager.fake_val_size", fake_val_size)


def group_choices(group: str) -> list[str]:
    """Return the choices of a group that have a configuration file."""
    return sorted(each.stem for each in (conf_folder() / group).glob("*.yaml"))


def choices_with_setting(key: str) -> list[str]:
    """Return the choices of a group that have the setting `key`: `measure=paired` for `measure.max_seconds`."""
    group, _, name = key.partition(".")
    return [f"{group}={choice}" for choice, options in OPTION_TYPES.get(group, {}).items() if name in _names(options)]


def settings_of_choices() -> list[str]:
    """Return the settings that any choice of any group has."""
    keys = (
        f"{group}.{name}" for group, types in OPTION_TYPES.items() for each in types.values() for name in _names(each)
    )
    return list(dict.fromkeys(keys))


def _choices() -> str:
    """Every group with its choices, without the schemas, for Hydra's help."""
    choices = {path.name: group_choices(path.name) for path in sorted(conf_folder().iterdir()) if path.is_dir()}
    return "\n".join(f"{group}: {', '.join(names)}" for group, names in choices.items())


def _writable(options: type[Any]) -> DictConfig:
    """Convert a frozen dataclass to a structured config that overrides may change."""
    node: DictConfig = OmegaConf.structured(options)
    _unlock(node)
    return node


def _unlock(node: Any) -> None:
    if OmegaConf.is_config(node):
        OmegaConf.set_readonly(node, None)
        if isinstance(node, DictConfig):
            for key in node:
                if not OmegaConf.is_missing(node, key):
                    _unlock(get_node(node, key))


def read_config(cfg: DictConfig) -> Config:
    """Convert a composed cell to options: each group a dataclass, or a dict for `custom`."""
    known = {each.name for each in fields(Config)}
    values: dict[str, Any] = {
        key: OmegaConf.to_object(cfg[key]) if OmegaConf.is_config(cfg[key]) else cfg[key] for key in known
    }
    return Config(**values)


class CellReader:
    """Reads the cells of a grid. Equal values are shared between cells, and equal groups are read once."""

    def __init__(self) -> None:
        self._scalars: dict[tuple[type[Any], str], Any] = {}
        self._plain: dict[tuple[str, Any, str], Any] = {}
        self._options: dict[tuple[str, Any, str], Any] = {}
        self._derived: dict[frozenset[str], frozenset[str]] = {}

    def read(self, cfg: DictConfig) -> tuple[dict[str, Any], Config, frozenset[str]]:
        """Return a composed cell as its run stores it (`plain_settings`), and as `read_config` returns it.

        Also the names of its settings whose values are interpolations.

        Raises OmegaConf's errors.
        """
        plain = plain_config(cfg)
        values: dict[str, Any] = {}
        for name, value in plain.items():
            if not isinstance(value, dict | list):
                # Each cell has copies of equal values: sharing them saves memory with many cells.
                plain[name] = values[name] = self._scalars.setdefault((type(value), repr(value)), value)
                continue
            identity = (name, OmegaConf.get_type(cfg, name), repr(value))
            if identity not in self._plain:
                # In stored form: the signature is computed from it, and JSON would turn an infinity into null.
                self._plain[identity] = plain_settings({name: value})[name]
                self._options[identity] = OmegaConf.to_object(cfg[name])
            plain[name], values[name] = self._plain[identity], self._options[identity]
        config = Config(**{name: values[name] if name in values else cfg[name] for name in _names(Config)})
        derived = frozenset(interpolated_names(cfg))
        return plain, config, self._derived.setdefault(derived, derived)


def unknown_settings(cfg: DictConfig) -> list[str]:
    """Return a fault for each setting that `+name=value` added to a composed cell without effect."""
    faults = []
    top = _names(Config)
    for key in (str(key) for key in cfg if key != "hydra"):
        if key not in top:
            faults.append(fault(f"+{key}", "be a setting", "an unknown name", suggestion(key, top)))
        node: Any = get_node(cfg, key)
        options = OmegaConf.get_type(node) if isinstance(node, DictConfig) else None
        if options is not None and dataclasses.is_dataclass(options):
            known = _names(options)
            unknown = [str(name) for name in node if name not in known]
            faults += [
                fault(f"+{key}.{name}", "be a setting", "an unknown name", suggestion(name, known)) for name in unknown
            ]
    return faults


def _names(options: type[Any]) -> list[str]:
    return [each.name for each in fields(options)]


def plain_config(cfg: DictConfig) -> dict[str, Any]:
    """Convert a composed cell to nested plain values with resolved interpolations, without `hydra`.

    A secret's interpolation stays as its text. Raises OmegaConf's errors for a value that is missing or cannot be
    resolved.
    """
    plain = {str(key): _plain(cfg[key]) for key in cfg if key != "hydra"}  # without a copy, which would double the time
    for key, value in plain.items():
        if isinstance(value, dict):
            _restore_interpolations(value, cfg[key], key)
    return plain


def _restore_interpolations(plain: dict[str, Any], node: DictConfig, name: str) -> None:
    """Put back the texts of the interpolations that give secrets."""
    for key, value in plain.items():
        inner = f"{name}.{key}"
        if isinstance(value, dict):
            _restore_interpolations(value, node[key], inner)
        elif isinstance(value, str) and is_secret(inner) and OmegaConf.is_interpolation(node, key):
            plain[key] = raw_value(get_node(node, key))


def _plain(value: Any) -> Any:
    return OmegaConf.to_container(value, resolve=True, throw_on_missing=True) if OmegaConf.is_config(value) else value


def conf_folder() -> Path:
    """Return the folder of the configuration files: in the installed package, or next to it in a checkout."""
    package = Path(runmanager.__file__).resolve().parent
    inside = package / "conf"
    return inside if inside.is_dir() else package.parent / "conf"

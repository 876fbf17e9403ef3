"""Every setting of a cell with its type and default, as Hydra is told of them, and back from Hydra's configuration."""

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

from hydra.core.config_store import ConfigStore
from omegaconf import MISSING, DictConfig, OmegaConf

import runmanager
from runmanager.launching.plan import Resume
from runmanager.records.settings.grid import plain_settings
from runmanager.training.options.groups import OPTION_TYPES
from runmanager.training.options.job import TrainingOptions
from runmanager.training.options.measure import MEASURE_TYPES
from runmanager.validation import did_you_mean, fault, suggestion

__all__ = [
    "CellReader",
    "Config",
    "choices_with_setting",
    "conf_folder",
    "group_choices",
    "plain_config",
    "read_config",
    "register_schema",
    "unknown_settings",
]

_OPTIONS: dict[str, Mapping[str, type[Any]]] = {**OPTION_TYPES, "measure": MEASURE_TYPES}


@dataclass(frozen=True)
class Config(TrainingOptions):
    """The settings of one cell: what it computes, and where and how its run is kept."""

    name: str | None = None
    output_root: str = "outputs"
    resume: str = "auto"
    rerun_changed: bool = False

    def faults(self) -> list[str]:
        """Every fault, as readable lines."""
        faults = super().faults()
        if self.resume not in list(Resume):
            way_out = did_you_mean(self.resume, Resume)
            faults.append(fault("resume", f"be one of {', '.join(Resume)}", self.resume, way_out))
        if self.name is not None and (not self.name.strip() or "/" in self.name or self.name in (".", "..")):
            way_out = "`output_root` says where it lies"
            faults.append(fault("name", "be the name of one folder", repr(self.name), way_out))
        if self.resume == Resume.MUST and self.name is None:
            faults.append(fault("name", "be given with `resume=must`", None, "only named sweeps can be resumed"))
        if self.rerun_changed and self.name is None:
            faults.append(fault("name", "be given with `rerun_changed=true`", None, "an unnamed sweep is always new"))
        if self.rerun_changed and self.resume == Resume.NEVER:
            way_out = "it runs every cell anew; leave one of the two out"
            faults.append(fault("rerun_changed", "be false with `resume=never`", "true", way_out))
        return faults


def register_schema() -> None:
    """Tell Hydra of every setting's type, so that a wrong one is refused."""
    OmegaConf.register_new_resolver("runmanager.choices", _choices, replace=True)
    store = ConfigStore.instance()
    top = _writable(Config)
    for group in _OPTIONS:
        top[group] = MISSING
    store.store(name="schema", node=top)
    for group, choices in _OPTIONS.items():
        for name, options in choices.items():
            store.store(group=group, name=f"schema_{name}", node=_writable(options))


def group_choices(group: str) -> list[str]:
    """The choices of a group that there is a configuration file of."""
    return sorted(each.stem for each in (conf_folder() / group).glob("*.yaml"))


def choices_with_setting(key: str) -> list[str]:
    """The choices of a key's group that have it: `measure=paired` for `measure.max_seconds`."""
    group, _, name = key.partition(".")
    return [f"{group}={choice}" for choice, options in _OPTIONS.get(group, {}).items() if name in _names(options)]


def _choices() -> str:
    """Every group with its choices, for the help: as Hydra lists them, without the schemas."""
    choices = {path.name: group_choices(path.name) for path in sorted(conf_folder().iterdir()) if path.is_dir()}
    return "\n".join(f"{group}: {', '.join(names)}" for group, names in choices.items())


def _writable(options: type[Any]) -> DictConfig:
    """A frozen dataclass as a structured config that overrides may still change."""
    node: DictConfig = OmegaConf.structured(options)
    _unlock(node)
    return node


def _unlock(node: Any) -> None:
    if OmegaConf.is_config(node):
        OmegaConf.set_readonly(node, None)
        if isinstance(node, DictConfig):
            for key in node:
                if not OmegaConf.is_missing(node, key):
                    _unlock(node._get_node(key))


def read_config(cfg: DictConfig) -> Config:
    """A composed cell as plain options: each group an options dataclass, or a dict for `custom`."""
    known = {each.name for each in fields(Config)}
    values: dict[str, Any] = {
        key: OmegaConf.to_object(cfg[key]) if OmegaConf.is_config(cfg[key]) else cfg[key] for key in known
    }
    return Config(**values)


class CellReader:
    """Reads the cells of a grid. What is the same in several is shared, as most settings are; a group is read once."""

    def __init__(self) -> None:
        self._scalars: dict[tuple[type[Any], str], Any] = {}
        self._plain: dict[tuple[str, Any, str], Any] = {}
        self._options: dict[tuple[str, Any, str], Any] = {}

    def read(self, cfg: DictConfig) -> tuple[dict[str, Any], Config]:
        """A composed cell as its run will store it (`plain_settings`), and as `read_config` has it.

        Raises OmegaConf's errors.
        """
        plain = plain_config(cfg)
        values: dict[str, Any] = {}
        for name, value in plain.items():
            if not isinstance(value, dict | list):
                # Each cell is composed of copies: of many cells these would be as many equal texts and numbers.
                plain[name] = values[name] = self._scalars.setdefault((type(value), repr(value)), value)
                continue
            identity = (name, OmegaConf.get_type(cfg, name), repr(value))
            if identity not in self._plain:
                # As a run stores it: its signature is of that, and JSON would make null of an infinity.
                self._plain[identity] = plain_settings({name: value})[name]
                self._options[identity] = OmegaConf.to_object(cfg[name])
            plain[name], values[name] = self._plain[identity], self._options[identity]
        return plain, Config(**{name: values[name] if name in values else cfg[name] for name in _names(Config)})


def unknown_settings(cfg: DictConfig) -> list[str]:
    """What `+name=value` added to a composed cell and nothing would heed, as readable faults."""
    faults = []
    top = _names(Config)
    for key in (str(key) for key in cfg if key != "hydra"):
        if key not in top:
            faults.append(fault(f"+{key}", "be a setting", "an unknown name", suggestion(key, top)))
        node: Any = cfg._get_node(key)
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
    """A composed cell as nested plain values, interpolations resolved, without Hydra's own settings.

    Raises OmegaConf's errors for a value that is missing or cannot be resolved.
    """
    return {str(key): _plain(cfg[key]) for key in cfg if key != "hydra"}  # no copy: it would take twice the time


def _plain(value: Any) -> Any:
    return OmegaConf.to_container(value, resolve=True, throw_on_missing=True) if OmegaConf.is_config(value) else value


def conf_folder() -> Path:
    """Where the configuration files are: in the installed package, or beside it in a checkout."""
    package = Path(runmanager.__file__).resolve().parent
    inside = package / "conf"
    return inside if inside.is_dir() else package.parent / "conf"

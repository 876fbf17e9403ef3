"""A faster Hydra config loader for the cells of a sweep, which can also collect every fault of a cell."""

import copy
import pickle
from collections.abc import Callable, Container, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, get_origin

from hydra.core.config_loader import ConfigLoader
from hydra.core.override_parser.overrides_parser import OverridesParser
from hydra.core.override_parser.types import Override, OverrideType
from hydra.errors import ConfigCompositionException, HydraException
from hydra.types import RunMode
from omegaconf import DictConfig, OmegaConf, open_dict, read_write
from omegaconf.errors import OmegaConfBaseException, ValidationError

from runmanager.launching.hydra_internals import (
    OWN_CALLBACK,
    BaseConfigLoader,
    declared_type,
    get_node,
    hydra_words,
    overrides_dirname,
)
from runmanager.records.settings.values import flatten, package_of
from runmanager.text import format_value, message_line
from runmanager.validation import did_you_mean, fault, nearest_names, suggestion

# These change the composition itself, so a copy of a configuration composed without them would be wrong.
_SLOW_KEYS = ("hydra.searchpath", "hydra.job.env_copy", "hydra.job.config", "hydra.job.name")

_MAX_PARSED_OVERRIDES = 256  # the values of a grid's axes recur, and Hydra takes a millisecond to parse one

_MISSING = "???"  # a choice that a run must make
_CHECKED_GROUPS = ("dataset", "model", "loss", "optimizer", "scheduler", "loader")


@dataclass(frozen=True)
class _Known:
    """A composed configuration: its choices of groups, the keys whose values were given, and how to copy it."""

    choices: tuple[str, ...]
    keys: frozenset[str]
    copy: Callable[[], DictConfig]


class CellLoader(BaseConfigLoader):
    """Hydra's loader for the cells of one sweep.

    Each distinct choice of groups is composed once and copied; values are then applied to the copy. A test compares the
    result with Hydra's own. Faults of a configuration that `is_built_in` name what its groups offer.
    """

    def __init__(self, loader: ConfigLoader, *, is_built_in: bool = True) -> None:
        super().__init__(loader)
        self._is_built_in = is_built_in
        self._bases: dict[tuple[str, ...], Callable[[], DictConfig]] = {}
        self._choices: dict[str, bool] = {}
        self._words: dict[str, Override] = {}
        self._known: _Known | None = None

    def __getstate__(self) -> dict[str, Any]:
        """The state without caches: other launchers pickle the loader with each job."""
        return {**self.__dict__, "_bases": {}, "_choices": {}, "_words": {}, "_known": None}

    def remember(self, master: DictConfig) -> None:
        """Compose cells from a copy of `master`, as Hydra has just composed it, where that saves a composition.

        These are the cells of the same choices, which set each value again that the master has from the command.
        """
        self.search_as(master)
        task: Any = OmegaConf.to_container(master.hydra.overrides.task, resolve=False)
        given = [each for each in self._parsed([*hydra_words(master), *task]) if not each.is_sweep_override()]
        values = [each for each in given if not self._is_choice(each)]
        changes_itself = any(
            each is None or each.get("_target_") != OWN_CALLBACK for each in master.hydra.callbacks.values()
        )
        choices: Any = OmegaConf.to_container(master.hydra.runtime.choices, resolve=False)
        if changes_itself or _MISSING in choices.values():
            return
        if all(each.type is OverrideType.CHANGE and not each.key_or_group.startswith(_SLOW_KEYS) for each in values):
            choices = tuple(each.input_line or "" for each in given if self._is_choice(each))
            self._known = _Known(choices, frozenset(each.key_or_group for each in values), _copier_of(master))

    def load_sweep_config(
        self, master_config: DictConfig, sweep_overrides: list[str], *, notes_overrides: bool = True
    ) -> DictConfig:
        """Compose one cell, with the same result as Hydra. Raises Hydra's errors.

        Without `notes_overrides`, `hydra.overrides` is not that of the cell, which saves a third of the time.
        """
        given = [*hydra_words(master_config), *sweep_overrides]
        parsed = self._parsed(given)
        if any(each.key_or_group.startswith(_SLOW_KEYS) for each in parsed):
            return super().load_sweep_config(master_config, sweep_overrides)
        config = self._base(master_config, parsed)
        self.apply_overrides([each for each in parsed if not self._is_choice(each)], config)
        if notes_overrides:
            _note_overrides(config, parsed)
        OmegaConf.copy_cache(from_config=master_config, to_config=config)
        return config

    def _parsed(self, words: Sequence[str]) -> list[Override]:
        if len(self._words) > _MAX_PARSED_OVERRIDES:
            self._words.clear()
        for word in words:
            if word not in self._words:
                self._words[word] = OverridesParser.create(config_loader=self).parse_overrides([word])[0]
        return [self._words[word] for word in words]

    def chosen(self, words: Sequence[str]) -> dict[str, Any]:
        """Return the choices among overrides, by their groups."""
        return {_key_of(each): each.value() for each in self._parsed(words) if self._is_choice(each)}

    def _is_choice(self, override: Override) -> bool:
        key = override.key_or_group
        if key not in self._choices:  # Hydra searches the file system each time
            self._choices[key] = self.has_group(key)
        return self._choices[key] and not isinstance(override.value(), dict)  # a mapping changes settings of the group

    def _base(self, master: DictConfig, parsed: Sequence[Override]) -> DictConfig:
        chosen = [each for each in parsed if self._is_choice(each)]
        if not all(isinstance(each.value(), str | None if each.is_delete() else str | list) for each in chosen):
            raise ConfigCompositionException("a choice of a group is not a name")  # Hydra raises a ValueError
        choices = tuple(each.input_line or "" for each in chosen)
        if self._known is not None and self._known.choices == choices and self._known.keys <= _changed_keys(parsed):
            known = self._known.copy()
            if OmegaConf.is_readonly(known.hydra):  # Hydra 1.4 has closed that of the command
                OmegaConf.set_readonly(known.hydra, None)
            return known
        if choices not in self._bases:
            name = master.hydra.job.config_name
            self._bases[choices] = _copier_of(self.load_configuration(name, list(choices), RunMode.RUN))
        return self._bases[choices]()

    def diagnose(self, master: DictConfig, sweep_overrides: Sequence[str]) -> tuple[list[str], DictConfig | None]:
        """Return every fault of a cell's overrides, and the cell composed from the valid ones.

        A group without a valid choice is None in that cell. With an invalid preset, None is returned for the cell.
        """
        given = [*hydra_words(master), *sweep_overrides]
        parsed = self._parsed(given)
        bad = {_key_of(each): self._bad_choice(each) for each in parsed if self._is_choice(each)}
        bad = {group: lines for group, lines in bad.items() if lines}
        faults = [line for lines in bad.values() for line in lines]
        if "experiment" in bad:  # a preset could add any group and key
            return faults + [line for each in parsed for line in self._unknown(each, master)], None
        # The settings of a group are not known without a valid choice.
        inner = (*(f"{group}/" for group in bad), *(f"{package_of(group)}.".lstrip(".") for group in bad))
        known = [each for each in parsed if _key_of(each) not in bad and not each.key_or_group.startswith(inner)]
        try:
            config = self._base(master, known)
        except (HydraException, OmegaConfBaseException) as error:
            return [*faults, *self._uncomposed(master, known, bad, error)], None
        for each in known:
            if not self._is_choice(each):
                faults += self._bad_value(each, config)
        for group in bad:
            if group in _CHECKED_GROUPS:
                config[group] = None
        return faults, config

    def _uncomposed(
        self, master: DictConfig, known: Sequence[Override], bad: Container[str], error: Exception
    ) -> list[str]:
        """Why the choices among the `known` overrides compose nothing: the groups without a choice, or the error."""
        chosen = [each.input_line or "" for each in known if self._is_choice(each)]
        try:  # a sweep leaves such groups out
            config = self.load_configuration(master.hydra.job.config_name, chosen, RunMode.MULTIRUN)
        except (HydraException, OmegaConfBaseException):
            return [message_line(error)]
        choices: Any = OmegaConf.to_container(config.hydra.runtime.choices, resolve=False)
        missing = [name for name, choice in choices.items() if choice == _MISSING]
        if not missing:
            return [message_line(error)]
        return [
            fault(name, f"be one of {', '.join(self._options(name.partition('@')[0]))}", "nothing", f"add `{name}=…`")
            for name in missing
            if name not in bad
        ]

    def _bad_choice(self, override: Override) -> list[str]:
        group, value = override.key_or_group, override.value()
        options = self._options(group)
        if override.is_delete() or isinstance(value, list) or value in options or self.has_config(f"{group}/{value}"):
            return []
        value = format_value(value)
        way_out = did_you_mean(value, options)
        if self._is_built_in and group == "model" and not way_out:
            way_out = "torchvision's classifiers are `model=torchvision model.architecture=NAME`"
        return [fault(group, f"be one of {', '.join(options)}", value, way_out)]

    def _options(self, group: str) -> list[str]:
        """The choices of a group; of one that has groups only, theirs."""
        options = [name for name in self.get_group_options(group) if not name.startswith("schema_")]
        inner = [] if options else self.list_groups(group)
        return options or [f"{name}/{each}" for name in inner for each in self._options(f"{group}/{name}")]

    def _unknown(self, override: Override, master: DictConfig) -> list[str]:
        """Check only the first part of the key: with an invalid choice, the keys of the groups are not known."""
        if self._is_choice(override):
            return []
        first = override.key_or_group.split(".")[0]
        known = [str(key) for key in master]
        if first in known or override.is_add():
            return []
        return [_unknown_key(override, known, is_built_in=self._is_built_in)]

    def _bad_value(self, override: Override, config: DictConfig) -> list[str]:
        try:
            self.apply_overrides([override], config)
        except (ConfigCompositionException, OmegaConfBaseException) as error:
            return [_explained(override, config, error, self._groups(), is_built_in=self._is_built_in)]
        return []

    def _groups(self) -> list[str]:
        return [name for name in self.list_groups("") if name != "hydra"]


def _changed_keys(parsed: Iterable[Override]) -> set[str]:
    return {each.key_or_group for each in parsed if each.type is OverrideType.CHANGE}


def _copier_of(config: DictConfig) -> Callable[[], DictConfig]:
    """Return a function that copies `config`. Pickle takes a fifth of the time of a deep copy."""
    try:
        return partial(pickle.loads, pickle.dumps(config))
    except Exception:  # not everything can be pickled, for example a class of a plugin that Hydra imported twice
        return partial(copy.deepcopy, config)


def _key_of(override: Override) -> str:
    key: str = override.get_key_element().lstrip("+~")
    return key


def _note_overrides(config: DictConfig, parsed: Sequence[Override]) -> None:
    task = [each for each in parsed if not each.is_hydra_override()]
    config.hydra.overrides.hydra = [each.input_line for each in parsed if each.is_hydra_override()]
    config.hydra.overrides.task = [each.input_line for each in task]
    dirname = overrides_dirname(task, config.hydra.job.config.override_dirname)
    if dirname is not None:
        with open_dict(config.hydra.job):
            config.hydra.job.override_dirname = dirname


def _explained(
    override: Override, config: DictConfig, error: Exception, groups: Sequence[str], *, is_built_in: bool
) -> str:
    key = override.key_or_group
    if isinstance(error, ValidationError) or isinstance(error.__cause__, ValidationError):
        text = override.get_value_element_as_str()
        is_list = isinstance(override.value(), list)
        return fault(key, _type_rule(config, key), repr(text), f"an axis is written {key}={text[1:-1]}" * is_list)
    if "Could not override" in str(error) or "looks like" in str(error):
        known = flatten({str(name): _plain(get_node(config, name)) for name in config if name != "hydra"})
        of_hydra = _settings_of_hydra(config)
        return _unknown_key(override, [*known, *groups], of_hydra=of_hydra, is_built_in=is_built_in)
    return f"`{override.input_line}` cannot be applied: {message_line(error)}"


def _plain(node: Any) -> Any:
    return OmegaConf.to_container(node, resolve=False) if OmegaConf.is_config(node) else node


def _settings_of_hydra(config: DictConfig) -> list[str]:
    """The settings of the launcher and the sweeper."""
    parts = {name: _plain(config.hydra[name]) for name in ("launcher", "sweeper")} if "hydra" in config else {}
    return [f"hydra.{name}" for name in flatten(parts) if not name.endswith("._target_")]


def _unknown_key(override: Override, known: Sequence[str], *, of_hydra: Sequence[str] = (), is_built_in: bool) -> str:
    key = override.key_or_group
    if key.startswith("hydra."):
        way_out = did_you_mean(key, of_hydra, cutoff=0.8) or "see --hydra-help."
        return f"`{key}` must be a setting of Hydra, got an unknown name; {way_out}"
    if not is_built_in:
        way_out = did_you_mean(key, known) or f"+{key}=… adds it."
        return f"`{key}` must be a setting, got an unknown name; {way_out}"
    from runmanager.app.compose.schema import choices_with_setting, settings_of_choices  # late: only faults need it

    if choices := choices_with_setting(key):
        return fault(key, f"be given with {_alternatives(choices)}", "another choice")
    of_launcher = [each for each in of_hydra if each == f"hydra.launcher.{key}"]
    near = nearest_names(key, [*known, *settings_of_choices(), *of_launcher])
    shown = [f"{name!r}{_with_choice(name, choices_with_setting(name), known)}" for name in near]
    way_out = f"did you mean {' or '.join(shown)}?" if near else suggestion(key, known)
    if "custom" in key or key.split(".")[0] in ("model", "dataset"):
        way_out += f" To add an argument of a custom part, write +{override.input_line}."
    return f"`{key}` must be a setting, got an unknown name; {way_out}"


def _with_choice(name: str, choices: Sequence[str], known: Sequence[str]) -> str:
    return f" (with {_alternatives(choices)})" if choices and name not in known else ""


def _alternatives(choices: Sequence[str]) -> str:
    return " or ".join(f"`{each}`" for each in choices)


_TYPE_WORDS: Mapping[Any, Sequence[str]] = {
    int: ("a whole number",),
    float: ("a number",),
    bool: ("true", "false"),
    str: ("a text",),
    int | str: ("a whole number", "a word"),
    bool | str: ("true", "false", "a word"),
}


def _type_rule(config: DictConfig, key: str) -> str:
    parent, _, last = key.rpartition(".")
    owner = OmegaConf.select(config, parent) if parent else config
    declared = declared_type(owner, last) if isinstance(owner, DictConfig) else None
    if declared is None:
        return "be of the right type"
    if get_origin(declared.type) is list:
        return "be a list, as [1,2]"
    if declared.type not in _TYPE_WORDS:  # settings of its own
        return f"be given by its parts, as {key}.NAME=value"
    words = list(_TYPE_WORDS[declared.type])
    if declared.is_optional:
        words.append("null")
    first, last = ", ".join(words[:-1]), words[-1]
    return f"be {first} or {last}" if first else f"be {last}"


def forget_notification(master: DictConfig) -> None:
    """Remove the notification's address from the configuration of the cells, so that none stores it."""
    given = hydra_words(master)
    kept = [word for word in given if word.partition("=")[0].lstrip("+") != "hydra.sweeper.notify"]
    with read_write(master.hydra), open_dict(master.hydra):
        master.hydra.overrides.hydra = kept
        master.hydra.sweeper.notify = None

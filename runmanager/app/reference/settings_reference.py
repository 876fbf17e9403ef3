"""Every setting of a command, in the sections of its reference, and the section or settings that a name means."""

import re
from collections.abc import Iterable
from dataclasses import dataclass, replace
from importlib import import_module
from pathlib import Path

from omegaconf import OmegaConf

from runmanager.app.compose.schema import Config, conf_folder, group_choices
from runmanager.app.reference.option_fields import Setting, field_sentences, settings_of
from runmanager.app.request.grid_sweeper_options import GridSweeperOptions
from runmanager.errors import UsageError
from runmanager.launching.launchers import LAUNCHERS
from runmanager.tracking.options import EarlyStopOptions, TensorBoardOptions
from runmanager.training.options.groups import OPTION_TYPES
from runmanager.training.options.job import CheckpointOptions
from runmanager.validation import suggestion

__all__ = ["Section", "find", "sections"]

_GROUPS = ("dataset", "model", "loss", "metrics", "optimizer", "scheduler", "loader", "measure")
_PARTS = {"checkpoint": CheckpointOptions, "early_stop": EarlyStopOptions, "tensorboard": TensorBoardOptions}
_PRESETS = "experiment"
_PLUGINS = "hydra_plugins.runmanager"
_HIDDEN = frozenset({"name", "_target_", "defaults"})
_OWN_ARGUMENTS = ("loss", "metrics")
"""Groups whose settings are the arguments of a class, so that any name below them is known."""


@dataclass(frozen=True)
class Section:
    """Settings that belong together: `name` begins their names, and is empty for those of every run.

    `choices` are those of the group, as in `hydra/launcher=local`, each with its sentence; `default` is the one that a
    command without it takes.
    """

    name: str
    group: str
    sentence: str
    settings: tuple[Setting, ...]
    choices: dict[str, str]
    default: str = ""


def sections() -> list[Section]:
    """Return the settings of every run, of each group, of the launchers and of the sweepers."""
    return [_of_every_run(), *map(_group, _GROUPS), _presets(), *map(_part, _PARTS), *_launchers(), *_sweepers()]


def _of_every_run() -> Section:
    groups = frozenset({*_GROUPS, *_PARTS})
    return Section("", "", "The settings of every run.", tuple(settings_of(Config, without=groups)), {})


def _group(name: str) -> Section:
    types = OPTION_TYPES.get(name, {})
    settings = [
        setting
        for choice, options in types.items()
        for setting in settings_of(options, prefix=f"{name}.", choice=choice, without=_HIDDEN)
    ]
    choices = _choice_sentences(name)
    if "custom" in choices:
        settings += _settings_of_file(name, "custom")
    if name == "metrics":
        settings.append(
            Setting("metrics.NAME._target_", "A class, as torchmetrics.F1Score; its arguments follow.", "str", "none")
        )
    return Section(name, name, _sentence_of(name), _merged(settings), choices, _default_choices().get(name, ""))


def _part(name: str) -> Section:
    return Section(name, name, _sentence_of(name), tuple(settings_of(_PARTS[name], prefix=f"{name}.")), {})


def _sentence_of(group: str) -> str:
    return field_sentences(Config)[group]


def _presets() -> Section:
    sentence = "A preset: settings, and mostly axes, that each can be overridden."
    return Section(_PRESETS, _PRESETS, sentence, (), _choice_sentences(_PRESETS), _default_choices()[_PRESETS])


def _launchers() -> list[Section]:
    prefix, group = "hydra.launcher", "hydra/launcher"
    settings = [
        setting
        for name, each in LAUNCHERS.items()
        for setting in settings_of(each.options, prefix=f"{prefix}.", choice=name, without=_HIDDEN)
    ]
    choices = {name: each.sentence for name, each in LAUNCHERS.items()}
    *names, last = (each.hydra_name for each in LAUNCHERS.values())
    sentence = f"Where and how runs are started; other Hydra applications call them {', '.join(names)} and {last}."
    return [Section(prefix, group, sentence, _merged(settings), choices, "local")]


def _sweepers() -> list[Section]:
    hidden = frozenset({"_target_", "defaults", "sides", "multirun"})
    settings = [
        setting
        for options, choice in ((GridSweeperOptions, "grid"), (import_module(_PLUGINS).SweeperConfig, "runmanager"))
        for setting in settings_of(options, prefix="hydra.sweeper.", choice=choice, without=hidden)
    ]
    choices = {"grid": "The grid of the built-in job.", "runmanager": "A grid of any other Hydra application."}
    sentence = "How the cells of a command are found, and run only where something is missing."
    return [Section("hydra.sweeper", "hydra/sweeper", sentence, _merged(settings), choices, "grid")]


def _merged(settings: Iterable[Setting]) -> tuple[Setting, ...]:
    """Join the choices of settings that are otherwise equal, and order equal names next to each other."""
    choices: dict[Setting, list[str]] = {}
    for each in settings:
        choices.setdefault(replace(each, choice=""), []).append(each.choice)
    joined = [replace(each, choice=", ".join(filter(None, names))) for each, names in choices.items()]
    first = {each.key: index for index, each in reversed(list(enumerate(joined)))}
    return tuple(sorted(joined, key=lambda each: first[each.key]))


def find(name: str) -> tuple[Section, tuple[Setting, ...]]:
    """Return the section of a setting and its descriptions, or a group's section and no setting.

    Raises `UsageError` for an unknown name.
    """
    known = sections()
    plain = name.lstrip("+~").partition("=")[0].replace("/", ".").partition("@")[0]
    for section in known:
        found = tuple(each for each in section.settings if each.key == plain)
        if found or (section.name and section.name == plain):
            return section, found
        if section.name in _OWN_ARGUMENTS and plain.startswith(f"{section.name}."):
            return section, ()
    names = [key for each in known for key in (each.name, *(setting.key for setting in each.settings)) if key]
    raise UsageError(f"`help` must name a setting or a command, got {plain!r}; {suggestion(plain, names, cutoff=0.6)}")


_COMMENT = re.compile(r"# (?!@package|python -m|runmanager )(.+)")
_SETTING = re.compile(r"(\w+): (.+?) # (.+)")
_REQUIRED = "???"
_TYPES = {"holdout": "int or float or null"}


def _choice_sentences(group: str) -> dict[str, str]:
    """Return what the first comment of each choice's file says, without the command in it."""
    return {name: _first_comment(conf_folder() / group / f"{name}.yaml") for name in group_choices(group)}


def _first_comment(path: Path) -> str:
    lines: list[str] = []
    for line in path.read_text(encoding="utf-8").splitlines():
        if not line.startswith("#"):
            break
        if found := _COMMENT.fullmatch(line):
            lines.append(found[1])
    return " ".join(lines)


def _default_choices() -> dict[str, str]:
    """Return the choice of each group without a command, `null` for a group that has none."""
    defaults = OmegaConf.to_container(OmegaConf.load(conf_folder() / "config.yaml"))
    assert isinstance(defaults, dict)
    chosen = [each for each in defaults["defaults"] if isinstance(each, dict)]
    return {str(group): str(choice or "null") for each in chosen for group, choice in each.items()}


def _settings_of_file(group: str, choice: str) -> list[Setting]:
    """Describe the settings that a choice without an options class has in its file, by the comment of each line."""
    text = (conf_folder() / group / f"{choice}.yaml").read_text(encoding="utf-8")
    return [
        Setting(
            key=f"{group}.{found[1]}",
            sentence=_sentence(found[3]),
            type="str" if found[2] == _REQUIRED else _TYPES.get(found[1], "int or null"),
            default="required" if found[2] == _REQUIRED else found[2],
            choice=choice,
        )
        for line in text.splitlines()
        if (found := _SETTING.fullmatch(line))
    ]


def _sentence(comment: str) -> str:
    return f"{comment[0].upper()}{comment[1:]}."

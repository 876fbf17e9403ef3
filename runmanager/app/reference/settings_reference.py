"""Every setting of a command, in the sections of its reference, and the section or settings that a name means."""

import ast
import dataclasses
import inspect
import re
import textwrap
import types
from collections.abc import Iterable
from dataclasses import dataclass, replace
from importlib import import_module
from pathlib import Path
from typing import Any, get_args, get_origin, get_type_hints

from omegaconf import OmegaConf

from runmanager.app.compose.schema import Config, conf_folder, group_choices
from runmanager.app.request.grid_sweeper_options import GridSweeperOptions
from runmanager.errors import UsageError
from runmanager.launching.launchers import LAUNCHERS
from runmanager.text import format_value
from runmanager.tracking.options import EarlyStopOptions, TensorBoardOptions
from runmanager.training.options.groups import OPTION_TYPES
from runmanager.training.options.job import CheckpointOptions, InferOptions
from runmanager.validation import allowed_values, default_words, suggestion


@dataclasses.dataclass(frozen=True)
class Setting:
    """One setting as it is described: all fields are text for people; `choice` is the one that has it, or empty."""

    key: str
    sentence: str
    type: str
    default: str
    values: str = ""
    choice: str = ""


def settings_of(
    options: type[Any], *, prefix: str = "", choice: str = "", without: frozenset[str] = frozenset()
) -> list[Setting]:
    """Describe the fields of an options dataclass, but for `name` of a group and those in `without`.

    Names begin with `prefix`. The sentence of a field is its `help`, or the docstring below it; else it is empty.
    """
    hints, sentences = get_type_hints(options), field_sentences(options)
    return [
        Setting(
            key=f"{prefix}{each.name}",
            sentence=each.metadata.get("help") or sentences.get(each.name, ""),
            type=_type_name(hints[each.name]),
            default=default_words(each) or format_value(_default(each)),
            values=allowed_values(each) or ("true, false" if hints[each.name] is bool else ""),
            choice=choice,
        )
        for each in dataclasses.fields(options)
        if each.name not in without
    ]


def field_sentences(options: type[Any]) -> dict[str, str]:
    """Return the docstring below each field of a class, those of its bases included, by the field's name."""
    found: dict[str, str] = {}
    for each in reversed(options.__mro__):
        if dataclasses.is_dataclass(each):
            found |= _own_sentences(each)
    return found


def _own_sentences(options: type[Any]) -> dict[str, str]:
    """The docstrings of a class's own fields: Python does not keep them, so they are read from the source, if any."""
    try:
        source = inspect.getsource(options)
    except OSError:
        return {}
    (definition,) = ast.parse(textwrap.dedent(source)).body
    assert isinstance(definition, ast.ClassDef)
    return {
        field.target.id: " ".join(inspect.cleandoc(below.value.value).split())
        for field, below in zip(definition.body, definition.body[1:], strict=False)
        if isinstance(field, ast.AnnAssign)
        and isinstance(field.target, ast.Name)
        and isinstance(below, ast.Expr)
        and isinstance(below.value, ast.Constant)
        and isinstance(below.value.value, str)
    }


def _default(field: "dataclasses.Field[Any]") -> Any:
    return field.default if field.default_factory is dataclasses.MISSING else field.default_factory()


def _type_name(hint: Any) -> str:
    """Format a type: `int or null`, `list of str`."""
    if hint is types.NoneType:
        return "null"
    if get_origin(hint) is types.UnionType:
        return " or ".join(_type_name(each) for each in get_args(hint))
    if get_origin(hint) is list:
        return f"list of {_type_name(get_args(hint)[0])}"
    return "mapping" if get_origin(hint) is dict else str(hint.__name__)


_GROUPS = ("dataset", "model", "loss", "metrics", "optimizer", "scheduler", "loader", "measure")
_PARTS = {
    "checkpoint": CheckpointOptions,
    "early_stop": EarlyStopOptions,
    "infer": InferOptions,
    "tensorboard": TensorBoardOptions,
}
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


_GAP = 2


def help_on(name: str, *, width: int) -> str:
    """Return the description of a setting or a group. Raises `UsageError` for an unknown name or choice."""
    section, found = find(name)
    if not found:
        key, _, choice = name.lstrip("+~").partition("=")
        if choice and choice not in section.choices and key.replace("/", ".") == section.name:
            known = suggestion(choice, section.choices, cutoff=0.6)
            raise UsageError(f"`help` must name a choice of {section.group}, got {choice!r}; {known}")
        return _group_text(section, choice or section.default, width)
    return "\n".join(_setting_text(each, section, width) for each in found)


def help_of_all(*, width: int) -> str:
    """Return every setting with its sentence, in its sections."""
    parts = []
    for section in sections():
        rows = [*_choice_rows(section), *_setting_rows(section.settings)]
        parts.append("\n".join([section.name or section.sentence, *_columns(rows, width)]))
    return "\n\n".join(parts) + "\n"


def _setting_text(setting: Setting, section: Section, width: int) -> str:
    facts = {"type": setting.type, "default": setting.default, "values": setting.values}
    if setting.choice:
        facts["only with"] = f"{section.group}={setting.choice}"
    lines = [*_wrapped(f"{setting.key}: {setting.sentence}", width)]
    return "\n".join([*lines, *_columns(((name, value) for name, value in facts.items() if value), width)]) + "\n"


def _group_text(section: Section, chosen: str, width: int) -> str:
    """The choices of a group, and the settings of the `chosen` one, or those of all where it has none of its own."""
    lines = _wrapped(f"{section.name}: {section.sentence}", width)
    if section.choices:
        lines += ["", f"choices (default {section.default})", *_columns(_choice_rows(section), width)]
    own = [name for name in section.choices if any(name in each.choice.split(", ") for each in section.settings)]
    title, settings = "settings", section.settings
    if chosen in own:
        title = f"settings of {section.group}={chosen}"
        kept = (each for each in settings if not each.choice or chosen in each.choice.split(", "))
        settings = tuple(replace(each, choice="") for each in kept)
    if settings:
        lines += ["", title, *_columns(_setting_rows(settings), width)]
    if chosen in own and len(own) > 1:
        other = next(name for name in own if name != chosen)
        lines += ["", f"`runmanager help {section.group}={other}` lists those of another choice."]
    return "\n".join(lines) + "\n"


def _choice_rows(section: Section) -> list[tuple[str, str]]:
    return [(f"{section.group}={choice}", sentence) for choice, sentence in section.choices.items()]


def _setting_rows(settings: Iterable[Setting]) -> list[tuple[str, str]]:
    return [(each.key, f"({each.choice}) {each.sentence}" if each.choice else each.sentence) for each in settings]


def _columns(rows: Iterable[tuple[str, str]], width: int) -> list[str]:
    """Two columns, the second one wrapped to the width."""
    pairs = list(rows)
    first = max((len(name) for name, _ in pairs), default=0) + 2 * _GAP
    lines: list[str] = []
    for name, text in pairs:
        wrapped = textwrap.wrap(text, max(width - first, 20), break_on_hyphens=False) or [""]
        lines += [f"{' ' * _GAP}{name}".ljust(first) + wrapped[0], *(" " * first + line for line in wrapped[1:])]
    return lines


def _wrapped(text: str, width: int) -> list[str]:
    return textwrap.wrap(text, width, break_on_hyphens=False)

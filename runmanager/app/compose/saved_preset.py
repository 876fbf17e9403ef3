"""A command's grid as a preset of the user: `--save NAME` writes `conf/experiment/NAME.yaml`."""

import re
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import yaml
from hydra.core.config_search_path import ConfigSearchPath
from hydra.core.override_parser.overrides_parser import OverridesParser
from hydra.plugins.search_path_plugin import SearchPathPlugin

from runmanager.app.compose.schema import conf_folder
from runmanager.errors import ConfigurationError, UsageError
from runmanager.records.files.atomic_files import replace_file
from runmanager.records.host.standard_streams import print_line
from runmanager.records.settings.secrets import masked_words
from runmanager.validation import fault

PRESETS = "experiment"
"""The group of presets."""


def preset_file(name: str) -> Path:
    """Return the file of the user's preset `name`, relative to the current folder."""
    return Path("conf", PRESETS, f"{name}.yaml")


def _user_preset_names() -> list[str]:
    """Return the names of the presets in the current folder."""
    return sorted(each.stem for each in preset_file("").parent.glob("*.yaml"))


def preset_faults(words: Sequence[str]) -> list[str]:
    """Messages on chosen presets that both this package and the user have."""
    chosen = [word.partition("=")[2] for word in words if word.lstrip("+").startswith(f"{PRESETS}=")]
    return [
        f"`{PRESETS}` must name one preset, got {name}, which is a preset of this package too; rename "
        f"{preset_file(name)}."
        for name in chosen
        if preset_file(name).exists() and is_of_package(name) and not _is_in_package()
    ]


def is_of_package(name: str) -> bool:
    """Whether this package has a preset of the name."""
    return (conf_folder() / PRESETS / f"{name}.yaml").exists()


def _is_in_package() -> bool:
    return Path("conf").resolve() == conf_folder()


class UserPresets(SearchPathPlugin):
    """Makes Hydra find the user's presets, after the configuration of the built-in job."""

    def manipulate_search_path(self, search_path: ConfigSearchPath) -> None:
        """Add the folder; called by Hydra, for every application of this process."""
        is_ours = any(
            (each.path or "").removeprefix("file://") == str(conf_folder()) for each in search_path.get_path()
        )
        if is_ours and _user_preset_names() and not _is_in_package():
            search_path.append("the current folder", f"file://{Path('conf').resolve()}")


_NAME = re.compile(r"\w[\w-]*", re.ASCII)
# How this one command runs, and where its end is announced, which may be secret.
_FLAGS = ("multirun", "dry_run", "quiet", "yes", "notify", "save", "tune")
_NOT_SAVED = ("hydra.mode", *(f"hydra.sweeper.{name}" for name in _FLAGS))


def save_preset(name: str, words: Sequence[str], hydra_words: Sequence[str], *, overwrites: bool) -> None:
    """Write a checked command's overrides as a preset, and print how to run it.

    Without `overwrites`, asks in a terminal before it replaces another one. Raises `UsageError` if it may not, and
    `ConfigurationError` for what no preset can hold.
    """
    if faults := check_preset_name(name, overwrites=True):
        raise UsageError(faults[0])
    path = preset_file(name)
    text = preset_text(name, words, hydra_words)
    if path.exists() and path.read_text("utf-8") != text and not overwrites and not _confirms(str(path)):
        raise UsageError(fault("--save", "be a new name", f"{name}, and {path} exists", "--yes overwrites it"))
    path.parent.mkdir(parents=True, exist_ok=True)
    replace_file(path, text.encode())
    print_line(f"Written: {path}. To run it:  runmanager sweep {PRESETS}={name}")


def check_preset_name(name: str, *, overwrites: bool) -> list[str]:
    """Return the fault of a name that no preset of the user can have, or has already unless one `overwrites` it."""
    if not _NAME.fullmatch(name):
        return [fault("--save", "be a name of letters, digits, _ and -", name)]
    if is_of_package(name):
        return [fault("--save", "be another name than that of a preset of this package", name)]
    if not overwrites and preset_file(name).exists():
        return [fault("--save", "be a new name", f"{name}, and {preset_file(name)} exists", "--yes overwrites it")]
    return []


def preset_text(name: str, words: Sequence[str], hydra_words: Sequence[str]) -> str:
    """Return the preset of a command's overrides and those of Hydra.

    All settings are `params` of the sweeper, as they were typed, so the preset's cells are those of the command, and a
    later command may replace each. Raises `ConfigurationError` for what no preset can hold.
    """
    faults = [
        f"`{word}` must be left out with `--save`, got it; a preset holds no other preset and deletes nothing."
        for word in (*words, *hydra_words)
        if word.startswith("~") or word.lstrip("+").startswith(f"{PRESETS}=")
    ]
    faults += [
        f"`{word.partition('=')[0]}` must come from the environment with `--save`, got a text, which no file should "
        "hold; write ${oc.env:NAME}."
        for word in (*words, *hydra_words)
        if masked_words([word]) != (word,)
    ]
    if faults:
        raise ConfigurationError(faults)
    defaults = []
    nested: dict[str, Any] = {}
    for override in OverridesParser.create().parse_overrides(list(hydra_words)):
        key, value = override.key_or_group, override.value()
        if "/" in key:
            defaults.append({f"override /{key}": value})
        elif key not in _NOT_SAVED:
            _set(nested, key.split("."), _plain(value))
    _set(nested, ["hydra", "sweeper", "params"], {key: _escaped(value) for key, _, value in map(_split, words)})
    content = ({"defaults": defaults} if defaults else {}) | nested
    header = f"# @package _global_\n# runmanager sweep {PRESETS}={name}\n"
    return header + yaml.safe_dump(content, sort_keys=False, allow_unicode=True, width=10_000)


def _split(word: str) -> tuple[str, str, str]:
    return word.partition("=")


def _escaped(value: str) -> str:
    """Interpolations are for the cells, not for the sweeper."""
    return value.replace("${", r"\${")


def _set(nested: dict[str, Any], names: Sequence[str], value: Any) -> None:
    for name in names[:-1]:
        nested = nested.setdefault(name, {})
    nested[names[-1]] = value


def _plain(value: Any) -> Any:
    """A parsed value as YAML has it: quoted texts as texts."""
    if isinstance(value, list):
        return [_plain(each) for each in value]
    if isinstance(value, dict):
        return {str(_plain(key)): _plain(each) for key, each in value.items()}
    return getattr(value, "text", value)


def _confirms(path: str) -> bool:
    if not (sys.stdin.isatty() and sys.stdout.isatty()):
        return False
    return input(f"Overwrite {path}? [y/N] ").strip().lower() in ("y", "yes")

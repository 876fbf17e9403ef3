"""Presets of the user: `conf/experiment/NAME.yaml` in the current folder is `experiment=NAME`."""

from collections.abc import Sequence
from pathlib import Path

from hydra.core.config_search_path import ConfigSearchPath
from hydra.plugins.search_path_plugin import SearchPathPlugin

from runmanager.app.compose.schema import conf_folder

__all__ = ["PRESETS", "UserPresets", "is_of_package", "preset_faults", "preset_file"]

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

"""The choices of a group, as their configuration files describe them in comments."""

import re
from pathlib import Path

from omegaconf import OmegaConf

from runmanager.app.compose.schema import conf_folder, group_choices
from runmanager.app.reference.option_fields import Setting

__all__ = ["choice_sentences", "default_choices", "settings_of_file"]

_COMMENT = re.compile(r"# (?!@package|python -m|runmanager )(.+)")
_SETTING = re.compile(r"(\w+): (.+?) # (.+)")
_REQUIRED = "???"
_TYPES = {"holdout": "int or float or null"}


def choice_sentences(group: str) -> dict[str, str]:
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


def default_choices() -> dict[str, str]:
    """Return the choice of each group without a command, `null` for a group that has none."""
    defaults = OmegaConf.to_container(OmegaConf.load(conf_folder() / "config.yaml"))
    assert isinstance(defaults, dict)
    chosen = [each for each in defaults["defaults"] if isinstance(each, dict)]
    return {str(group): str(choice or "null") for each in chosen for group, choice in each.items()}


def settings_of_file(group: str, choice: str) -> list[Setting]:
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

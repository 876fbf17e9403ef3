"""What `runmanager help` prints."""

import textwrap
from collections.abc import Iterable

from runmanager.app.reference.option_fields import Setting
from runmanager.app.reference.settings_reference import Section, find, sections

__all__ = ["help_of_all", "help_on"]

_GAP = 2


def help_on(name: str, *, width: int) -> str:
    """Return the description of a setting or a group. Raises `UsageError` for an unknown name."""
    section, found = find(name)
    if not found:
        return _group_text(section, width)
    return "\n".join(_setting_text(each, section, width) for each in found)


def help_of_all(*, width: int) -> str:
    """Return every setting with its sentence, in its sections."""
    parts = []
    for section in sections():
        rows = [*_choice_rows(section), *_setting_rows(section)]
        parts.append("\n".join([section.name or section.sentence, *_columns(rows, width)]))
    return "\n\n".join(parts) + "\n"


def _setting_text(setting: Setting, section: Section, width: int) -> str:
    facts = {"type": setting.type, "default": setting.default, "values": setting.values}
    if setting.choice:
        facts["only with"] = f"{section.group}={setting.choice}"
    lines = [*_wrapped(f"{setting.key}: {setting.sentence}", width)]
    return "\n".join([*lines, *_columns(((name, value) for name, value in facts.items() if value), width)]) + "\n"


def _group_text(section: Section, width: int) -> str:
    lines = _wrapped(f"{section.name}: {section.sentence}", width)
    if section.choices:
        lines += ["", f"choices (default {section.default})", *_columns(_choice_rows(section), width)]
    if section.settings:
        lines += ["", "settings", *_columns(_setting_rows(section), width)]
    return "\n".join(lines) + "\n"


def _choice_rows(section: Section) -> list[tuple[str, str]]:
    return [(f"{section.group}={choice}", sentence) for choice, sentence in section.choices.items()]


def _setting_rows(section: Section) -> list[tuple[str, str]]:
    return [
        (each.key, f"({each.choice}) {each.sentence}" if each.choice else each.sentence) for each in section.settings
    ]


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

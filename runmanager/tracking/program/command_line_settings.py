"""The settings of a program, read from the words of its command line."""

import re
import sys
from collections.abc import Iterator, Sequence
from typing import Any

__all__ = ["command_line_settings", "parse_settings"]

_POSITIONAL = "arguments"
_NAME = re.compile(r"[A-Za-z_][\w.@/-]*")


def command_line_settings() -> dict[str, Any]:
    """Return the settings on this program's command line; none in a notebook or an interactive session."""
    is_script = hasattr(sys.modules.get("__main__"), "__file__") and "ipykernel" not in sys.modules
    return parse_settings(sys.argv[1:]) if is_script else {}


def parse_settings(words: Sequence[str]) -> dict[str, Any]:
    """Return the settings in `words`: `--lr=0.1`, `--lr 0.1`, `lr=0.1`; a bare flag is true.

    Values are numbers, booleans, null, lists and mappings in Hydra's syntax, else text. A repeated name gives a list;
    other words are under `arguments`.
    """
    found: dict[str, list[Any]] = {}
    for name, value in _pairs(words):
        found.setdefault(name, []).append(value)
    return {name: values if len(values) > 1 or name == _POSITIONAL else values[0] for name, values in found.items()}


def _pairs(words: Sequence[str]) -> Iterator[tuple[str, Any]]:
    at = 0
    while at < len(words):
        word, following = words[at], words[at + 1] if at + 1 < len(words) else None
        at += 1
        if word == "--":
            yield from ((_POSITIONAL, each) for each in words[at:])
            return
        name, has_value, value = word.lstrip("-+").partition("=")
        is_flag = _is_flag(word)
        if has_value and _NAME.fullmatch(name):
            yield name, _value(value)
        elif not is_flag:
            yield _POSITIONAL, word
        elif following is None or _is_flag(following) or "=" in following:
            yield name, True
        else:
            yield name, _value(following)  # of a flag that takes one, as only the program knows
            at += 1


def _is_flag(word: str) -> bool:
    """Return whether a word names a flag: `--name` or `-n`, but not a negative number."""
    return word.startswith("-") and word.lstrip("-")[:1].isalpha()


def _value(text: str) -> Any:
    from hydra.core.override_parser.overrides_parser import OverridesParser
    from hydra.errors import HydraException

    try:
        override = OverridesParser.create().parse_override(f"name={text}")
        value = override.value()
    except HydraException:
        return text
    return text if override.is_sweep_override() or not _is_plain(value) else value


def _is_plain(value: Any) -> bool:
    if isinstance(value, list):
        return all(map(_is_plain, value))
    if isinstance(value, dict):
        return all(isinstance(key, str) and _is_plain(each) for key, each in value.items())
    return value is None or isinstance(value, bool | int | float | str)

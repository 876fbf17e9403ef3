"""Settings formatted as overrides that Hydra parses to the same values."""

import re
from typing import Any

RAW_SETTINGS = ("hydra.sweeper.exclude=", "hydra.sweeper.notify=", "hydra.sweeper.resume_with=")
"""Settings whose values Hydra could not parse as they are typed."""

_INTERVAL = re.compile(r"(?P<name>[^=]+=)(?P<log>log)?uniform\((?P<ends>[^()]*)\)")
_PLAIN = re.compile(r"[\w./:@-]+", re.ASCII)
_OTHER_TYPES = re.compile(r"null|true|false|[+-]?(inf|nan|[\d_.]+(e[+-]?[\d_]+)?)", re.IGNORECASE | re.ASCII)


def format_override(name: str, value: Any) -> str:
    """Format `NAME=VALUE` for None, a bool, a number, a string, or lists and mappings of these."""
    return f"{name}={_format_value(value)}"


def _format_value(value: Any) -> str:
    if value is None:
        return "null"
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, int | float):
        return str(value)
    if isinstance(value, list):
        return f"[{','.join(map(_format_value, value))}]"
    if isinstance(value, dict):
        return f"{{{','.join(f'{key}:{_format_value(item)}' for key, item in value.items())}}}"
    is_plain = _PLAIN.fullmatch(value) and not _OTHER_TYPES.fullmatch(value)
    return value if is_plain else quote_text(str(value))


def quote_text(text: str) -> str:
    """Quote `text` as a value for Hydra."""
    # To Hydra a backslash is literal except before a quote.
    escaped = re.sub(r"(\\+)\Z", r"\1\1", re.sub(r'(\\*)"', r'\1\1\\"', text))
    return f'"{escaped}"'  # double quotes: a shell's single quotes go around them


def quote_raw(word: str) -> str:
    """Quote the value of one of `RAW_SETTINGS`, unless it is quoted; any other word stays as it is.

    A shell takes the quotes of `hydra.sweeper.exclude='lr>0.1'`, and Hydra parses neither `>` nor a second `=`.
    """
    name, given, value = word.partition("=")
    is_quoted = len(value) > 1 and value[0] == value[-1] and value[0] in "'\""
    if not word.startswith(RAW_SETTINGS) or value in ("", "null") or value.startswith("${") or is_quoted:
        return word
    return f"{name}{given}{quote_text(value)}"


def in_hydras_syntax(word: str) -> str:
    """Return a setting with `uniform(a,b)` and `loguniform(a,b)` written as Hydra's intervals."""
    if (found := _INTERVAL.fullmatch(word)) is None:
        return word
    interval = f"interval({found['ends']})"
    return f"{found['name']}{f'tag(log,{interval})' if found['log'] else interval}"

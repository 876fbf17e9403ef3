"""Settings formatted as overrides that Hydra parses to the same values."""

import re
from typing import Any

__all__ = ["format_override", "quote_text"]

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

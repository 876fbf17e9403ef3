"""Settings as words of a command: overrides that Hydra reads back as the same values."""

import re
from typing import Any

__all__ = ["format_override", "quote_text"]

_PLAIN = re.compile(r"[\w./:@-]+", re.ASCII)
_OF_ANOTHER_TYPE = re.compile(r"null|true|false|[+-]?(inf|nan|[\d_.]+(e[+-]?[\d_]+)?)", re.IGNORECASE | re.ASCII)


def format_override(name: str, value: Any) -> str:
    """`NAME=VALUE` for a plain value: None, a truth value, a number, a text, or lists and mappings of these."""
    return f"{name}={_text(value)}"


def _text(value: Any) -> str:
    if value is None:
        return "null"
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, int | float):
        return str(value)
    if isinstance(value, list):
        return f"[{','.join(map(_text, value))}]"
    if isinstance(value, dict):
        return f"{{{','.join(f'{key}:{_text(item)}' for key, item in value.items())}}}"
    is_plain = _PLAIN.fullmatch(value) and not _OF_ANOTHER_TYPE.fullmatch(value)
    return value if is_plain else quote_text(str(value))


def quote_text(text: str) -> str:
    """`text` as a value that Hydra takes as it is."""
    # Hydra takes a backslash as it is, but where it stands before a quote.
    escaped = re.sub(r"(\\+)\Z", r"\1\1", re.sub(r'(\\*)"', r'\1\1\\"', text))
    return f'"{escaped}"'  # not in single quotes: in a command to copy the shell's are around them

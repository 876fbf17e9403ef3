"""Lists of column names in options; a name with other signs may stand in backticks, as in conditions."""

import re

__all__ = ["in_list", "split_names", "unquoted"]

_QUOTE = "`"


def split_names(text: str, separator: str) -> list[str]:
    """Split names at the separators outside backticks, and remove the backticks and the spaces around each name."""
    outside = rf"{re.escape(separator)}(?=(?:[^`]*`[^`]*`)*[^`]*$)"
    return [unquoted(name.strip()) for name in re.split(outside, text)]


def in_list(name: str) -> str:
    """Return a name as it stands in a list with commas: in backticks if it contains one."""
    return f"{_QUOTE}{name}{_QUOTE}" if "," in name else name


def unquoted(name: str) -> str:
    """Return a name without the backticks around it."""
    is_quoted = len(name) > 1 and name.startswith(_QUOTE) and name.endswith(_QUOTE)
    return name[1:-1] if is_quoted else name

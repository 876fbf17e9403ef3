"""Settings as people read and type them, wherever they are said: `null`, `true`, `[32, 16]`."""

import json
from typing import Any

__all__ = ["spoken"]


def spoken(value: Any) -> str:
    """A setting's value in the words of a command: `null`, `true`, `false` where Python has others; lists as JSON."""
    if value is None:
        return "null"
    if isinstance(value, bool):
        return "true" if value else "false"
    return json.dumps(value) if isinstance(value, list | dict) else str(value)

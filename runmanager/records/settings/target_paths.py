"""Where settings name code that is to be called: every `_target_` in them, however deep."""

from collections.abc import Iterator, Mapping
from typing import Any

__all__ = ["targets_in"]

_KEY = "_target_"


def targets_in(settings: Any, name: str = "") -> Iterator[tuple[str, Any]]:
    """The dotted name and the value of each `_target_` in nested settings, those within lists too."""
    if isinstance(settings, Mapping):
        for key, value in settings.items():
            inner = f"{name}.{key}" if name else str(key)
            if inner.rpartition(".")[2] == _KEY:
                yield inner, value
            yield from targets_in(value, inner)
    elif isinstance(settings, list | tuple):
        for index, value in enumerate(settings):
            yield from targets_in(value, f"{name}[{index}]")

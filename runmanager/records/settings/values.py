"""Settings of a run as plain values: from any mapping, under dotted names, and where they differ."""

import argparse
import dataclasses
import math
import types
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from runmanager.errors import UsageError

__all__ = ["differing_settings", "find_targets", "flatten", "plain_settings"]

_KEY = "_target_"


def plain_settings(params: Any) -> dict[str, Any]:
    """The settings of a run as a dict of plain values, from a mapping, named tuple, dataclass or `argparse.Namespace`.

    NumPy's numbers become Python's; functions their qualified name; other values that JSON has no word for (a
    `torch.device`, a path, infinity) their text.
    Raises `UsageError` for anything else, and for keys that are not strings.
    """
    if params is None:
        return {}
    if hasattr(params, "_asdict"):
        params = params._asdict()
    elif dataclasses.is_dataclass(params) and not isinstance(params, type):
        params = dataclasses.asdict(params)
    elif isinstance(params, argparse.Namespace | types.SimpleNamespace):
        params = vars(params)
    if not isinstance(params, Mapping):
        raise UsageError(
            "A run's settings must be a mapping, a named tuple, a dataclass or an argparse.Namespace, "
            f"got {type(params).__name__}; use expand_grid(...) or a dict."
        )
    return {_key(key): _plain(value) for key, value in params.items()}


def _key(key: Any) -> str:
    if not isinstance(key, str):
        raise UsageError(f"The name of a setting must be a string, got {key!r}.")
    return key


def _plain(value: Any) -> Any:
    if isinstance(value, float):
        return float(value) if math.isfinite(value) else str(value)  # JSON would make null of the others
    if value is None or isinstance(value, bool | int | str):
        return value
    if getattr(value, "ndim", None) == 0 and hasattr(value, "item"):
        return _plain(value.item())  # a number of NumPy's or a tensor's
    if isinstance(value, Mapping):
        return {_key(key): _plain(item) for key, item in value.items()}
    if isinstance(value, Sequence | set | frozenset):
        return [_plain(item) for item in value]
    if isinstance(value, types.FunctionType | types.BuiltinFunctionType) and "<" not in value.__qualname__:
        return ".".join(filter(None, (value.__module__, value.__qualname__)))  # its text has an address in it
    return str(value)


def flatten(config: Mapping[str, Any]) -> dict[str, Any]:
    """Nested settings under dotted names (`{"model": {"depth": 8}}` -> `{"model.depth": 8}`); lists stay values."""
    flat: dict[str, Any] = {}
    for key, value in config.items():
        if isinstance(value, Mapping) and value:
            flat.update({f"{key}.{name}": item for name, item in flatten(value).items()})
        else:
            flat[key] = value
    return flat


def differing_settings(cells: Sequence[Mapping[str, Any]]) -> list[str]:
    """The dotted names of the settings that do not have one value in all the (flat) cells, in order of appearance."""
    if not cells:
        return []
    names = dict.fromkeys(name for cell in cells for name in cell)
    first = cells[0]
    absent = object()
    return [
        name for name in names if any(_differ(cell.get(name, absent), first.get(name, absent)) for cell in cells[1:])
    ]


def _differ(one: Any, other: Any) -> bool:
    # 1 == True in Python, but they are two values of a setting.
    return one is not other and (type(one) is not type(other) or one != other)


def find_targets(settings: Any, name: str = "") -> Iterator[tuple[str, Any]]:
    """The dotted name and the value of each `_target_` in nested settings, those within lists too."""
    if isinstance(settings, Mapping):
        for key, value in settings.items():
            inner = f"{name}.{key}" if name else str(key)
            if inner.rpartition(".")[2] == _KEY:
                yield inner, value
            yield from find_targets(value, inner)
    elif isinstance(settings, list | tuple):
        for index, value in enumerate(settings):
            yield from find_targets(value, f"{name}[{index}]")

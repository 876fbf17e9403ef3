"""The settings of a grid whose values follow from others."""

from collections.abc import Collection, Mapping, Sequence
from typing import Any

from runmanager.launching.plan import Cell
from runmanager.records.settings.values import flatten, hashable

__all__ = ["derived_settings"]

_ELEMENT = "["  # begins the index in the name of a list's element


def derived_settings(cells: Sequence[Cell], axes: Collection[str] = ()) -> frozenset[str]:
    """Return the settings that are interpolations in all cells that have them, without the `axes` of the command.

    A list with interpolations is one of them if all else in it is the same in all cells.
    """
    lists = frozenset(_list_of(name) for cell in cells for name in cell.derived if _ELEMENT in name)
    found = {*lists, *(name for cell in cells for name in cell.derived if _ELEMENT not in name)}.difference(axes)
    for cell in cells:
        if given := found - cell.derived - {_list_of(name) for name in cell.derived}:
            found -= given & flatten(cell.config).keys()
    return frozenset(name for name in found if name not in lists or _has_one_rest(name, cells))


def _list_of(element: str) -> str:
    return element.partition(_ELEMENT)[0]


def _has_one_rest(name: str, cells: Sequence[Cell]) -> bool:
    """Whether a list has the same values in all cells but for those that are interpolations."""
    settings = ((flatten(cell.config), cell.derived) for cell in cells)
    return len({hashable(_rest(flat[name], name, derived)) for flat, derived in settings if name in flat}) <= 1


def _rest(value: Any, name: str, derived: Collection[str]) -> Any:
    if name in derived:
        return None
    if isinstance(value, list):
        return [_rest(each, f"{name}{_ELEMENT}{index}]", derived) for index, each in enumerate(value)]
    if isinstance(value, Mapping):
        return {key: _rest(each, f"{name}.{key}", derived) for key, each in value.items()}
    return value

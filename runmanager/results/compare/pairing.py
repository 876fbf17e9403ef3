"""Which cells are the two sides of a comparison: those that differ in one axis, and in the seed at most."""

import json
from collections.abc import Hashable, Sequence
from dataclasses import dataclass
from typing import Any

from runmanager.errors import UsageError
from runmanager.results.compare.side import label_of
from runmanager.results.load.cells import Cell, Cells
from runmanager.text import format_value
from runmanager.validation import did_you_mean

__all__ = ["JOINT", "SEED", "Axis", "Pair", "find_axis", "frozen", "pair_cells", "usual_baseline", "varying_axes"]

JOINT = "+"
"""Between the names of settings that are compared together, as `device+num_workers`."""

_ABSENT = object()
SEED = "seed"


@dataclass(frozen=True)
class Axis:
    """What is compared: one setting, or a group of settings that change together.

    `values` are its values in the order given; `value_at` has the index of each cell's value among them.
    """

    name: str
    members: frozenset[str]
    values: Sequence[Any]
    value_at: Sequence[int]

    def index(self, wanted: Any) -> int:
        """The place of a value, given as itself or as its text. Raises `UsageError` where the axis lacks it."""
        for match in (lambda value: value == wanted, lambda value: str(wanted) in (str(value), format_value(value))):
            for at, value in enumerate(self.values):
                if match(value):
                    return at
        known = ", ".join(map(format_value, self.values)) or "none, as there are no runs"
        raise UsageError(f"`--baseline` must be a value of '{self.name}', got {wanted!r}; its values are {known}.")


@dataclass(frozen=True)
class Pair:
    """The cells of the two sides, seeds together; an empty side is a cell that the grid lacks.

    `settings` are the matched settings that both sides have, by dotted name.
    """

    settings: dict[str, Any]
    candidate: Any
    baseline_cells: Sequence[Cell]
    candidate_cells: Sequence[Cell]


def find_axis(cells: Cells, asked: str, option: str = "--axis") -> Axis:
    """The axis of that name: a setting, a group (`model` or `model.name`) with all its settings, or several together.

    Raises `UsageError`, which blames `option`, for a name that no cell has.
    """
    if JOINT in asked:
        return _joint(asked, [find_axis(cells, name, option) for name in asked.split(JOINT)], cells)
    names = cells.names()
    group = asked.removesuffix(".name")
    members = [name for name in names if name.startswith(f"{group}.")]
    if asked in names and (asked == group or len(members) == 1):
        return _numbered(asked, [asked], cells, [cells.value(cell, asked) for cell in cells.cells])
    if members and (asked == group or asked in names):
        return _numbered(asked, members, cells, _group_values(cells, group, members))
    raise UsageError(_unknown_axis(cells, asked, names, option))


def varying_axes(cells: Cells) -> list[Axis]:
    """Every axis of the cells but the seed: a group whose kind varies is one axis, with all its settings."""
    asked: dict[str, None] = {}
    for name in cells.varying:
        group = name.partition(".")[0]
        kinds = [kind for kind in (f"{group}.name", f"{group}._target_") if kind in cells.varying]
        if name != SEED:
            asked.setdefault(name if not kinds else kinds[0] if kinds[0].endswith(".name") else group)
    return [find_axis(cells, name) for name in asked]


def _numbered(name: str, members: Sequence[str], cells: Cells, values: Sequence[Any]) -> Axis:
    places: dict[Hashable, int] = {}
    value_at = [places.setdefault(frozen(value), len(places)) for value in values]
    distinct: dict[int, Any] = {}
    for at, value in zip(value_at, values, strict=True):
        distinct.setdefault(at, value)
    return Axis(name, frozenset(members), list(distinct.values()), value_at)


def _joint(name: str, parts: Sequence[Axis], cells: Cells) -> Axis:
    """Settings that change together as one axis; a value says those of all its parts."""
    values = [
        ", ".join(label_of(part.name, part.values[part.value_at[at]]) for part in parts)
        for at in range(len(cells.cells))
    ]
    return _numbered(name, [member for part in parts for member in part.members], cells, values)


def _group_values(cells: Cells, group: str, members: Sequence[str]) -> list[str]:
    """A cell's value of a group: its name, and in brackets what tells it from others of that name."""
    variants = [{name: cells.value(cell, name, _ABSENT) for name in members} for cell in cells.cells]
    of_name: dict[str, list[dict[str, Any]]] = {}
    for variant in variants:
        of_name.setdefault(str(variant.get(f"{group}.name", "")), []).append(variant)
    telling = {name: _telling(alike) for name, alike in of_name.items()}
    values = []
    for variant in variants:
        name = str(variant.get(f"{group}.name", ""))
        details = [f"{key.removeprefix(f'{group}.')}={_text(variant[key])}" for key in telling[name]]
        values.append(f"{name}({', '.join(details)})" if details and name else name or ", ".join(details))
    return values


def _telling(variants: Sequence[dict[str, Any]]) -> list[str]:
    first = variants[0]
    return [key for key in first if any(frozen(variant[key]) != frozen(first[key]) for variant in variants)]


def _text(value: Any) -> str:
    return "unset" if value is _ABSENT else format_value(value)


def _unknown_axis(cells: Cells, asked: str, names: Sequence[str], option: str) -> str:
    varying = f"what varies here: {', '.join(cells.varying) or 'nothing'}."
    way_out = f"{did_you_mean(asked, names, max_names=1)} {varying}".strip()
    return f"`{option}` must be a setting of the runs, got '{asked}'; {way_out}"


def usual_baseline(axis: Axis) -> int:
    """The place of the value to compare against where nobody says which: `cpu` of devices, else the first given."""
    return axis.index("cpu") if axis.name == "device" and "cpu" in axis.values else 0


def pair_cells(cells: Cells, axis: Axis, baseline: int) -> list[Pair]:
    """The cells in pairs, one for each value of the axis but the baseline, in the order of the cells.

    A pair has at least one cell; seeds are many cells of one side.
    """
    matched = [name for name in cells.varying if name not in axis.members and name != SEED]
    groups: dict[Hashable, dict[int, list[Cell]]] = {}
    for cell, at in zip(cells.cells, axis.value_at, strict=True):
        key = tuple(frozen(cells.value(cell, name, _ABSENT)) for name in matched)
        groups.setdefault(key, {}).setdefault(at, []).append(cell)
    shown = [name for name in cells.columns if name not in axis.members and name != SEED]
    pairs = []
    for sides in groups.values():
        some_cell = next(iter(sides.values()))[0]
        values = {name: cells.value(some_cell, name, _ABSENT) for name in shown}
        settings = {name: value for name, value in values.items() if value is not _ABSENT}
        for at, value in enumerate(axis.values):
            if at != baseline and (at in sides or baseline in sides):
                pairs.append(Pair(settings, value, sides.get(baseline, []), sides.get(at, [])))
    return pairs


def frozen(value: Any) -> Hashable:
    """A value that can be looked up; 1, 1.0 and True are three of them."""
    if isinstance(value, list | dict):
        return json.dumps(value, sort_keys=True)
    return type(value).__name__, value

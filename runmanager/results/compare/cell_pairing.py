"""Pairing of cells into the two sides of a comparison: they differ in one axis, and at most in the seed."""

from collections.abc import Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from runmanager.errors import UsageError
from runmanager.records.settings.values import hashable, package_of
from runmanager.results.compare.comparison_table import label_of
from runmanager.results.load.cells import Cell, Cells
from runmanager.text import format_value
from runmanager.validation import did_you_mean

JOINT = "+"
"""The separator of settings that are compared together, as in `device+num_workers`."""

_ABSENT = object()


@dataclass(frozen=True)
class Axis:
    """A compared setting, or a group of settings that change together.

    `values` are its values in the order given; `value_at` has the index of each cell's value among them.
    """

    name: str
    members: frozenset[str]
    values: Sequence[Any]
    value_at: Sequence[int]

    def index(self, wanted: Any) -> int:
        """Return the index of a value, given as itself or as its text. Raises `UsageError` where the axis lacks it."""
        for match in (lambda value: value == wanted, lambda value: str(wanted) in (str(value), format_value(value))):
            for index, value in enumerate(self.values):
                if match(value):
                    return index
        known = ", ".join(map(format_value, self.values)) or "none, without runs"
        raise UsageError(f"`--baseline` must be a value of '{self.name}', got {wanted!r}; its values are {known}.")


@dataclass(frozen=True)
class Pair:
    """The cells of the two sides, with all their seeds; a side that the grid lacks is empty.

    `settings` are the matched settings that both sides have, by dotted name.
    """

    settings: dict[str, Any]
    candidate: Any
    baseline_cells: Sequence[Cell]
    candidate_cells: Sequence[Cell]


def find_axis(cells: Cells, name: str, option: str = "--axis") -> Axis:
    """Return the axis of that name: a setting, a group (`model` or `model.name`) with all its settings, or several.

    Raises `UsageError`, which names `option`, for a name that no cell has, and for a setting that follows from others.
    """
    if JOINT in name:
        return _joint_axis(name, [_single_axis(cells, part, option) for part in name.split(JOINT)], cells)
    axis = _single_axis(cells, name, option)
    if len(axis.values) > 1 and axis.members.isdisjoint(cells.varying):
        rule = f"`{option}` must be a setting that varies by itself, got '{name}', which follows from others;"
        raise UsageError(f"{rule} {_what_varies(cells)}")
    return axis


def _single_axis(cells: Cells, name: str, option: str) -> Axis:
    if name in cells.choices:
        inner = cells.members(name)
        return _make_axis(name, [name, *inner], _group_values(cells, name, [name, *inner]))
    settings = cells.names()
    name = name if name in settings or name.replace("-", "_") not in settings else name.replace("-", "_")
    group = name.removesuffix(".name")
    members = [each for each in settings if each.startswith(f"{group}.") and each not in cells.seeds]
    if name in settings and (name == group or len(members) == 1):
        return _make_axis(name, [name], [cells.value(cell, name) for cell in cells.cells])
    if members and (name == group or name in settings):
        return _make_axis(name, members, _group_values(cells, group, members))
    raise UsageError(_unknown_axis(cells, name, settings, option))


def varying_axes(cells: Cells) -> list[Axis]:
    """Return every axis of the cells except the seed; a group whose kind varies is one axis, with all its settings."""
    names: dict[str, None] = {}
    members = {name: choice for choice in cells.leading_choices for name in cells.members(choice)}
    for name in cells.varying:
        group = name.partition(".")[0]
        kinds = [kind for kind in (f"{group}.name", f"{group}._target_") if kind in cells.varying]
        if name in members:
            names.setdefault(members[name])
        elif name not in cells.seeds:
            names.setdefault(name if not kinds else kinds[0] if kinds[0].endswith(".name") else group)
    return [find_axis(cells, name) for name in names]


def _make_axis(name: str, members: Sequence[str], values: Sequence[Any]) -> Axis:
    indices: dict[Hashable, int] = {}
    value_at = [indices.setdefault(hashable(value), len(indices)) for value in values]
    distinct: dict[int, Any] = {}
    for index, value in zip(value_at, values, strict=True):
        distinct.setdefault(index, value)
    return Axis(name, frozenset(members), list(distinct.values()), value_at)


def _joint_axis(name: str, parts: Sequence[Axis], cells: Cells) -> Axis:
    """Join settings that change together into one axis; a value names those of all parts."""
    values = [
        ", ".join(label_of(part.name, part.values[part.value_at[index]]) for part in parts)
        for index in range(len(cells.cells))
    ]
    return _make_axis(name, [member for part in parts for member in part.members], values)


def _group_values(cells: Cells, group: str, members: Sequence[str]) -> list[str]:
    """Return each cell's value of a group: its name, and in brackets what distinguishes it from others of that name."""
    variants = [{name: cells.value(cell, name, _ABSENT) for name in members} for cell in cells.cells]
    package = f"{package_of(group)}."
    of_name: dict[str, list[dict[str, Any]]] = {}
    for variant in variants:
        of_name.setdefault(_kind(variant, group), []).append(variant)
    distinguishing = {name: _differing_keys(variants) for name, variants in of_name.items()}
    values = []
    for variant in variants:
        name = _kind(variant, group)
        details = [f"{key.removeprefix(package)}={_text(variant[key])}" for key in distinguishing[name]]
        values.append(f"{name}({', '.join(details)})" if details and name else name or ", ".join(details))
    return values


def _kind(variant: Mapping[str, Any], group: str) -> str:
    """The choice of a group, or what it makes where a group has no names, like the loss."""
    if (choice := variant.get(group, _ABSENT)) is not _ABSENT:
        return format_value(choice)
    return str(variant.get(f"{group}.name", variant.get(f"{group}._target_", "")))


def _differing_keys(variants: Sequence[dict[str, Any]]) -> list[str]:
    first = variants[0]
    return [key for key in first if any(hashable(variant[key]) != hashable(first[key]) for variant in variants)]


def _text(value: Any) -> str:
    return "unset" if value is _ABSENT else format_value(value)


def _unknown_axis(cells: Cells, name: str, settings: Sequence[str], option: str) -> str:
    way_out = f"{did_you_mean(name, settings, max_names=1)} {_what_varies(cells)}".strip()
    return f"`{option}` must be a setting of the runs, got '{name}'; {way_out}"


def _what_varies(cells: Cells) -> str:
    varying = cells.telling if cells.leading_choices else cells.varying
    return f"what varies here: {', '.join(varying) or 'nothing'}."


def _is_same(cells: Cells, name: str, sides: Iterable[Sequence[Cell]]) -> bool:
    """Whether all cells have the same choice: one that follows from the compared setting differs between the sides."""
    return len({hashable(cells.value(cell, name, _ABSENT)) for side in sides for cell in side}) == 1


def default_baseline(axis: Axis) -> int:
    """Return the index of the default baseline: `cpu` for devices, else the first value given."""
    return axis.index("cpu") if axis.name == "device" and "cpu" in axis.values else 0


def pair_cells(cells: Cells, axis: Axis, baseline: int) -> list[Pair]:
    """Pair the cells, one pair for each value of the axis except the baseline, in the order of the cells.

    A pair has at least one cell. The seeds of a cell belong to one side.
    """
    matched = [name for name in cells.varying if name not in axis.members and name not in cells.seeds]
    groups: dict[Hashable, dict[int, list[Cell]]] = {}
    for cell, index in zip(cells.cells, axis.value_at, strict=True):
        key = tuple(hashable(cells.value(cell, name, _ABSENT)) for name in matched)
        groups.setdefault(key, {}).setdefault(index, []).append(cell)
    shown = [name for name in cells.columns if name not in axis.members and name not in cells.seeds]
    pairs = []
    for sides in groups.values():
        some_cell = next(iter(sides.values()))[0]
        same = [name for name in shown if name not in cells.choices or _is_same(cells, name, sides.values())]
        values = {name: cells.value(some_cell, name, _ABSENT) for name in same}
        settings = {name: value for name, value in values.items() if value is not _ABSENT}
        for index, value in enumerate(axis.values):
            if index != baseline and (index in sides or baseline in sides):
                pairs.append(Pair(settings, value, sides.get(baseline, []), sides.get(index, [])))
    return pairs

"""The matched pairs of a sweep: along each asked axis, a candidate's runs beside the baseline's, all else equal."""

import dataclasses
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from runmanager.errors import UsageError
from runmanager.records.spoken import spoken
from runmanager.records.store import SweepContents
from runmanager.records.sweep import SweepRecord
from runmanager.results.cells import Cell, Cells, gather_cells
from runmanager.results.metrics import Metric, find_metric
from runmanager.results.options import ANY_AXIS, CompareOptions
from runmanager.results.pairing import JOINT, SEED, Axis, find_axis, pair_cells, usual_baseline, varying_axes
from runmanager.results.sides import Side, label_of

__all__ = ["Match", "Matches", "match_sides"]


@dataclass(frozen=True)
class Match:
    """Two sides that differ in `axis` alone, and in the seed at most.

    `settings` are the matched settings by dotted name; `values` are those of the axis, baseline first, as `sides` are.
    """

    axis: Axis
    settings: dict[str, Any]
    values: tuple[Any, Any]
    sides: tuple[Side, Side]


@dataclass(frozen=True)
class Matches:
    """All matched pairs of a sweep, axis after axis, in the order of its plan."""

    cells: Cells
    metric: Metric
    axes: Sequence[Axis]
    pairs: Sequence[Match]

    @property
    def names(self) -> list[str]:
        """The settings that are matched along any of the axes, by dotted name."""
        compared: frozenset[str] = self.axes[0].members if len(self.axes) == 1 else frozenset()
        return [name for name in self.cells.columns if name not in compared and name != SEED]


def match_sides(sweep: SweepContents, plan: SweepRecord | None, options: CompareOptions) -> Matches:
    """The pairs that `options` ask for.

    Raises `UsageError` for options that cannot be, and for an axis, a baseline or a metric that the sweep lacks.
    """
    if faults := options.faults():
        raise UsageError("\n".join(faults))
    metric = find_metric(options.metric)
    cells = _in_order_of_plan(gather_cells(sweep.runs, sweep.damaged, plan), plan)
    asked = options.axis or _measured_axis(cells)
    axes = varying_axes(cells) if asked == ANY_AXIS else [find_axis(cells, asked)]
    pairs = [match for axis in axes for match in _along(cells, axis, metric, options.baseline)]
    return Matches(cells, metric, axes, pairs)


def _measured_axis(cells: Cells) -> str:
    """What the runs took turns for, where that is one axis; else `device`."""
    named = {cells.value(cell, "measure.axis") for cell in cells.cells}
    return str(named.pop() or "device") if len(named) == 1 else "device"


def _in_order_of_plan(cells: Cells, plan: SweepRecord | None) -> Cells:
    """The same cells as they were given, so that the first value of an axis is the first one asked for."""
    if plan is None:
        return cells
    places = {signature: place for place, signature in enumerate(plan.cells)}
    ordered = sorted(cells.cells, key=lambda cell: places.get(cell.signature, len(places)))
    return dataclasses.replace(cells, cells=ordered)


def _along(cells: Cells, axis: Axis, metric: Metric, asked: Any) -> list[Match]:
    at = _baseline(axis, asked)
    matches = []
    for pair in pair_cells(cells, axis, at):
        values = _said(axis.values[at]), _said(pair.candidate)
        members = pair.baseline_cells, pair.candidate_cells
        baseline, candidate = (
            Side(
                label_of(axis.name, value),
                of_side,
                metric,
                paired=_are_paired(cells, of_side),
                in_turns=_are_in_turns(cells, of_side, axis.name),
            )
            for value, of_side in zip(values, members, strict=True)
        )
        matches.append(Match(axis, pair.settings, values, (baseline, candidate)))
    return matches


def _baseline(axis: Axis, asked: Any) -> int:
    if asked is not None:
        return axis.index(asked)
    return usual_baseline(axis)


def _said(value: Any) -> Any:
    """A value of the axis as a field: a setting that is set to nothing is a side, not a missing value."""
    return spoken(value) if value is None else value


def _are_paired(cells: Cells, members: Sequence[Cell]) -> bool:
    asked = [(cells.value(cell, "measure.name"), cells.value(cell, "measure")) for cell in members]
    return bool(asked) and all("paired" in names for names in asked)


def _are_in_turns(cells: Cells, members: Sequence[Cell], axis: str) -> bool:
    """Whether they took turns with what differs from them in this axis, and not in another one."""
    named = {cells.value(cell, "measure.axis") for cell in members}
    compared = _settings_of(axis)
    return _are_paired(cells, members) and all(name is None or _settings_of(name) == compared for name in named)


def _settings_of(axis: str) -> set[str]:
    """What varies along an axis: `model` and `model.name` are one."""
    return {name.removesuffix(".name") for name in axis.split(JOINT)}

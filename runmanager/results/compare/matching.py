"""The matched pairs of a sweep: along each asked axis, a candidate's runs beside the baseline's, all else equal."""

import dataclasses
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any

from runmanager.errors import UsageError
from runmanager.records.run.status import Status
from runmanager.records.storage.reader import StoredRun, SweepContents
from runmanager.records.sweep.record import SweepRecord
from runmanager.results.compare.metrics import Metric, find_metric
from runmanager.results.compare.options import ANY_AXIS, CompareOptions
from runmanager.results.compare.pairing import JOINT, SEED, Axis, find_axis, pair_cells, usual_baseline, varying_axes
from runmanager.results.compare.side import Side, label_of
from runmanager.results.compare.verdict import obstacles
from runmanager.results.load.cells import Cell, Cells, gather_cells
from runmanager.results.stats.descriptive import median
from runmanager.text import format_value

__all__ = ["Match", "Matches", "match_sides"]

_DEVICE = "device"
_MOST_UNASKED = 200  # pairs along an axis that nobody asked for: nobody reads more, and each costs milliseconds


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
    """All matched pairs of a sweep, axis after axis, in the order of its plan.

    Where `instead_of` is an axis, it gives no answer, and the last of `axes` stands in for it; the others are it alone,
    where it has pairs.
    """

    cells: Cells
    metric: Metric
    axes: Sequence[Axis]
    pairs: Sequence[Match]
    instead_of: Axis | None = None

    @property
    def names(self) -> list[str]:
        """The settings that are matched along any of the axes, by dotted name."""
        compared: frozenset[str] = self.axes[0].members if len(self.axes) == 1 else frozenset()
        return [name for name in self.cells.columns if name not in compared and name != SEED]

    def is_stand_in(self, match: Match) -> bool:
        """Whether a pair is one along the axis that stands in for another."""
        return self.instead_of is not None and match.axis != self.instead_of

    def without_stand_in(self) -> "Matches":
        """Those of the axis that was meant, whether it gives an answer or not."""
        if self.instead_of is None:
            return self
        pairs = [match for match in self.pairs if not self.is_stand_in(match)]
        return dataclasses.replace(self, axes=[self.instead_of], pairs=pairs, instead_of=None)

    @property
    def runs(self) -> dict[str, list[StoredRun]]:
        """The finished runs of each side by its label; of a stand-in those of each device, for it may have many sides.

        In the order of the pairs.
        """
        found: dict[str, dict[Path, StoredRun]] = {}
        for match in self.pairs:
            for side in match.sides:
                for run in side.finished:
                    label = _device_of(match, run) if self.is_stand_in(match) else side.label
                    found.setdefault(label, {})[run.paths.root] = run
        return {label: list(runs.values()) for label, runs in found.items()}


def _device_of(match: Match, run: StoredRun) -> str:
    """The device that was asked for; where that was left open, the one that was taken."""
    device = format_value(match.settings[_DEVICE])
    return (device == "auto" and run.record.environment.device_name) or device


def match_sides(sweep: SweepContents, plan: SweepRecord | None, options: CompareOptions) -> Matches:
    """The pairs that `options` ask for.

    Where they leave the axis open and no two devices can be compared, those along another axis are there as well: of
    the axes that have an answer the one whose sides are usually furthest apart.

    Raises `UsageError` for options that cannot be, and for an axis, a baseline or a metric that the sweep lacks.
    """
    if faults := options.faults():
        raise UsageError("\n".join(faults))
    metric = find_metric(options.metric)
    if metric.effect != "difference" and (options.margin or 0.0) >= 1:
        raise UsageError(f"`--margin` must be below 1 for {metric.name}, got {options.margin}; 0.03 means 3%.")
    cells = _in_order_of_plan(gather_cells(sweep.runs, sweep.damaged, plan), plan)
    if options.axis == ANY_AXIS:
        axes = varying_axes(cells)
    else:
        axes = [find_axis(cells, options.axis or _measured_axis(cells) or _DEVICE)]
    pairs = [match for axis in axes for match in _along(cells, axis, metric, options.baseline)]
    matches = Matches(cells, metric, axes, pairs)
    is_open = options.axis is None and options.baseline is None and _measured_axis(cells) is None
    return _with_stand_in(matches, options) if is_open and not any(map(_may_answer, matches.pairs)) else matches


def _measured_axis(cells: Cells) -> str | None:
    """What the runs took turns for, where that is one axis."""
    named = _axes_of_turns(cells, cells.cells)
    return next(iter(named)) or None if len(named) == 1 else None


def _axes_of_turns(cells: Cells, members: Sequence[Cell]) -> set[str | None]:
    """The axes that cells name for their turns; what is no name, as somebody's own setting may be, names none."""
    asked = (cells.value(cell, "measure.axis") for cell in members)
    return {name if isinstance(name, str) else None for name in asked}


def _may_answer(match: Match) -> bool:
    """Whether both sides have a finished run, or one that may still finish."""
    states = ({cell.stored and cell.stored.record.status for cell in side.cells} for side in match.sides)
    return all(any(not state or not state.is_ended or state is Status.FINISHED for state in side) for side in states)


def _with_stand_in(matches: Matches, options: CompareOptions) -> Matches:
    """The matches with those of another axis that has an answer, where there is one."""
    (asked,) = matches.axes
    found: list[tuple[float, Axis, list[Match]]] = []
    for axis in varying_axes(matches.cells):
        if axis.name == asked.name:
            continue
        pairs = list(islice(_along(matches.cells, axis, matches.metric, None), _MOST_UNASKED + 1))
        known = [match for match in pairs if not obstacles(match.sides, options)]
        if known and len(pairs) <= _MOST_UNASKED:
            # Two sides neither of which has a result say nothing that the asked axis has not said.
            telling = [match for match in pairs if any(side.finished for side in match.sides)]
            found.append((median([_effect(match) for match in known]) or 0.0, axis, telling))
    if not found:
        return matches
    _, axis, pairs = max(found, key=lambda each: each[0])
    axes = [*([asked] if matches.pairs else []), axis]
    return dataclasses.replace(matches, axes=axes, pairs=[*matches.pairs, *pairs], instead_of=asked)


def _effect(match: Match) -> float:
    """How far the two sides are apart, whichever is ahead: only for telling which axis has more to say."""
    low, high = sorted(value for side in match.sides if (value := side.typical) is not None)
    return high - low if match.sides[0].metric.effect == "difference" else high / low


def _in_order_of_plan(cells: Cells, plan: SweepRecord | None) -> Cells:
    """The same cells as they were given, so that the first value of an axis is the first one asked for."""
    if plan is None:
        return cells
    places = {signature: place for place, signature in enumerate(plan.cells)}
    ordered = sorted(cells.cells, key=lambda cell: places.get(cell.signature, len(places)))
    return dataclasses.replace(cells, cells=ordered)


def _along(cells: Cells, axis: Axis, metric: Metric, asked: Any) -> Iterator[Match]:
    at = _baseline(axis, asked)
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
        yield Match(axis, pair.settings, values, (baseline, candidate))


def _baseline(axis: Axis, asked: Any) -> int:
    if asked is not None:
        return axis.index(asked)
    return usual_baseline(axis)


def _said(value: Any) -> Any:
    """A value of the axis as a field: a setting that is set to nothing is a side, not a missing value."""
    return format_value(value) if value is None else value


def _are_paired(cells: Cells, members: Sequence[Cell]) -> bool:
    asked = [(cells.value(cell, "measure.name"), cells.value(cell, "measure")) for cell in members]
    return bool(asked) and all("paired" in names for names in asked)


def _are_in_turns(cells: Cells, members: Sequence[Cell], axis: str) -> bool:
    """Whether they took turns with what differs from them in this axis, and not in another one."""
    named = _axes_of_turns(cells, members)
    compared = _settings_of(axis)
    return _are_paired(cells, members) and all(name is None or _settings_of(name) == compared for name in named)


def _settings_of(axis: str) -> set[str]:
    """What varies along an axis: `model` and `model.name` are one."""
    return {name.removesuffix(".name") for name in axis.split(JOINT)}

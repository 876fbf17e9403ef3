"""The matched pairs of a sweep: along each requested axis, a candidate and the baseline, all else equal."""

import dataclasses
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any

from runmanager.errors import UsageError
from runmanager.records.storage.reader import StoredRun, SweepContents
from runmanager.records.sweep.sweep_record import SweepRecord
from runmanager.results.compare.cell_pairing import (
    JOINT,
    Axis,
    Pair,
    default_baseline,
    find_axis,
    pair_cells,
    varying_axes,
)
from runmanager.results.compare.comparability import obstacles
from runmanager.results.compare.comparison_table import ANY_AXIS, CompareOptions, Side, label_of
from runmanager.results.load.cells import Cell, Cells, gather_cells
from runmanager.results.metrics.metric import BATCH_SIZE, Metric, by_batch_size
from runmanager.results.metrics.metric_lookup import find_metric
from runmanager.results.stats.descriptive import median
from runmanager.text import format_value

_DEVICE = "device"
MAX_STAND_IN_PAIRS = 200
"""More pairs along axes that were not asked for are not useful to read, and each takes milliseconds."""


@dataclass(frozen=True)
class Match:
    """Two sides that differ in `axis`, and at most in the seed.

    `settings` are the matched settings by dotted name; `values` are those of the axis. `values` and `sides` have the
    baseline first.
    """

    axis: Axis
    settings: dict[str, Any]
    values: tuple[Any, Any]
    sides: tuple[Side, Side]


@dataclass(frozen=True)
class Matches:
    """All matched pairs of a sweep, axis by axis, in the order of its plan.

    `instead_of` is the requested axis where that gives no answer. Then the last of `axes` stands in for it, and the
    others are the requested axis alone, if it has pairs. It was picked by its effect from axes that have `among` pairs
    with an answer; `is_picked` says whether there was more than one.
    """

    cells: Cells
    metric: Metric
    axes: Sequence[Axis]
    pairs: Sequence[Match]
    instead_of: Axis | None = None
    among: int = 0
    is_picked: bool = False

    @property
    def names(self) -> list[str]:
        """The settings that are matched along any of the axes, by dotted name."""
        compared: frozenset[str] = self.axes[0].members if len(self.axes) == 1 else frozenset()
        matched = [name for name in self.cells.columns if name not in compared and name not in self.cells.seeds]
        return [*matched, *self._by_inference]

    @property
    def varying(self) -> list[str]:
        """What varies among the cells, or among the pairs of one."""
        return [*self.cells.varying, *self._by_inference]

    @property
    def _by_inference(self) -> list[str]:
        return [BATCH_SIZE] if any(BATCH_SIZE in match.settings for match in self.pairs) else []

    def is_stand_in(self, match: Match) -> bool:
        """Whether a pair is along the axis that stands in for another."""
        return self.instead_of is not None and match.axis != self.instead_of

    def without_stand_in(self) -> "Matches":
        """Return the pairs of the requested axis alone, whether it gives an answer or not."""
        if self.instead_of is None:
            return self
        pairs = [match for match in self.pairs if not self.is_stand_in(match)]
        return dataclasses.replace(self, axes=[self.instead_of], pairs=pairs, instead_of=None, among=0, is_picked=False)

    @property
    def runs(self) -> dict[str, list[StoredRun]]:
        """The finished runs by the label of their side, in the order of the pairs.

        Runs of a stand-in axis, which may have many sides, are grouped by device.
        """
        found: dict[str, dict[Path, StoredRun]] = {}
        for match in self.pairs:
            for side in match.sides:
                for run in side.finished:
                    label = _device_of(match, run) if self.is_stand_in(match) else side.label
                    found.setdefault(label, {})[run.paths.root] = run
        return {label: list(runs.values()) for label, runs in found.items()}


def _device_of(match: Match, run: StoredRun) -> str:
    """Return the requested device; for `auto`, and where none was requested, the one that was used."""
    device, used = match.settings[_DEVICE], run.record.environment.device_name
    return used if used and device in (None, "auto") else format_value(device)


def match_sides(sweep: SweepContents, plan: SweepRecord | None, options: CompareOptions) -> Matches:
    """Match the pairs that `options` request.

    Where they leave the axis open and no two devices can be compared, the result includes the pairs along a stand-in
    axis: of the axes with an answer the one with the largest median effect.

    Raises `UsageError` for invalid options, and for an axis, a baseline or a metric that the sweep lacks.
    """
    if faults := options.faults():
        raise UsageError("\n".join(faults))
    metric = find_metric(options.metric, sweep.runs, better=options.better, at=options.at)
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


def paired_axes(matches: Matches) -> list[Axis]:
    """The settings of the matched cells that vary between two sides with runs which differ in nothing else."""
    cells, metric = matches.cells, matches.metric
    return [axis for axis in varying_axes(cells) if any(map(_may_answer, _along(cells, axis, metric, None)))]


def _measured_axis(cells: Cells) -> str | None:
    """Return the axis along which the runs took turns, if it is one."""
    named = _axes_of_turns(cells, cells.cells)
    return next(iter(named)) or None if len(named) == 1 else None


def _axes_of_turns(cells: Cells, members: Sequence[Cell]) -> set[str | None]:
    """Return the axes that cells name for their turns; None for a value that is not a name, as in custom settings."""
    names = (cells.value(cell, "measure.axis") for cell in members)
    return {name if isinstance(name, str) else None for name in names}


def _may_answer(match: Match) -> bool:
    """Whether both sides have a run that finished or may still finish."""
    return all(any(map(_may_complete, side.cells)) for side in match.sides)


def _may_complete(cell: Cell) -> bool:
    """Whether a cell's run is complete or may still be."""
    return cell.stored is None or not cell.stored.record.status.is_ended or cell.stored.is_complete


def _with_stand_in(matches: Matches, options: CompareOptions) -> Matches:
    """Add the pairs along a stand-in axis, where one has an answer."""
    (requested,) = matches.axes
    found: list[tuple[float, Axis, list[Match]]] = []
    among = 0
    for axis in varying_axes(matches.cells):
        if axis.name == requested.name:
            continue
        pairs = list(islice(_along(matches.cells, axis, matches.metric, None), MAX_STAND_IN_PAIRS + 1))
        known = [match for match in pairs if not obstacles(match.sides, options)]
        if known and len(pairs) <= MAX_STAND_IN_PAIRS:
            among += len(known)
            # Pairs without any result add nothing to the requested axis.
            with_result = [match for match in pairs if any(side.finished for side in match.sides)]
            found.append((median([_distance(match) for match in known]) or 0.0, axis, with_result))
    if not found:
        return matches
    _, axis, pairs = max(found, key=lambda each: each[0])
    axes = [*([requested] if matches.pairs else []), axis]
    return dataclasses.replace(
        matches,
        axes=axes,
        pairs=[*matches.pairs, *pairs],
        instead_of=requested,
        among=among,
        is_picked=len(found) > 1,
    )


def _distance(match: Match) -> float:
    """Return how far the two sides are apart, in either direction, to choose the stand-in axis."""
    low, high = sorted(value for side in match.sides if (value := side.typical) is not None)
    return high - low if match.sides[0].metric.effect == "difference" else high / low


def _in_order_of_plan(cells: Cells, plan: SweepRecord | None) -> Cells:
    """Sort the cells as they were given, so that the first value of an axis is the first one requested."""
    if plan is None:
        return cells
    indices = {signature: index for index, signature in enumerate(plan.cells)}
    ordered = sorted(cells.cells, key=lambda cell: indices.get(cell.signature, len(indices)))
    return dataclasses.replace(cells, cells=ordered)


def _along(cells: Cells, axis: Axis, metric: Metric, baseline_value: Any) -> Iterator[Match]:
    index = default_baseline(axis) if baseline_value is None else axis.index(baseline_value)
    following = [name for name in cells.following if name not in axis.members]
    for pair in pair_cells(cells, axis, index):
        values = _as_field(axis.values[index]), _as_field(pair.candidate)
        members = pair.baseline_cells, pair.candidate_cells
        for settings, of_size in of_batch_sizes(pair, metric):
            baseline, candidate = (
                Side(
                    label_of(axis.name, value),
                    of_side,
                    of_size,
                    paired=_are_paired(cells, of_side),
                    in_turns=_are_in_turns(cells, of_side, axis.name),
                    following=following,
                    seeds=cells.seeds,
                )
                for value, of_side in zip(values, members, strict=True)
            )
            yield Match(axis, settings, values, (baseline, candidate))


def of_batch_sizes(pair: Pair, metric: Metric) -> Iterator[tuple[dict[str, Any], Metric]]:
    """Yield the settings of a pair and its metric: by inference for each batch size, else once."""
    cells = (*pair.baseline_cells, *pair.candidate_cells)
    for size, of_size in by_batch_size(metric, [cell.stored for cell in cells if cell.stored is not None]):
        yield (pair.settings if size is None else {**pair.settings, BATCH_SIZE: size}), of_size


def _as_field(value: Any) -> Any:
    """Return a value of the axis as a field of a table: null is a value of a side, not a missing one."""
    return format_value(value) if value is None else value


def _are_paired(cells: Cells, members: Sequence[Cell]) -> bool:
    measures = [(cells.value(cell, "measure.name"), cells.value(cell, "measure")) for cell in members]
    return bool(measures) and all("paired" in names for names in measures)


def _are_in_turns(cells: Cells, members: Sequence[Cell], axis: str) -> bool:
    """Whether the cells took turns along this axis, and not along another one."""
    named = _axes_of_turns(cells, members)
    compared = _settings_of(axis)
    return _are_paired(cells, members) and all(name is None or _settings_of(name) == compared for name in named)


def _settings_of(axis: str) -> set[str]:
    """Return the settings of an axis; `model` and `model.name` are the same."""
    return {name.removesuffix(".name") for name in axis.split(JOINT)}

"""Throughput along an axis of the grid, a line for each of what else varies."""

import re
from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, partial
from typing import TYPE_CHECKING, Any

from runmanager.records.storage.reader import StoredRun
from runmanager.results.compare.pairing import frozen
from runmanager.results.compare.side import label_of
from runmanager.results.figures.axes import AxisPositions, is_numeric, needs_log_scale, set_number_scale
from runmanager.results.figures.cell_grid import GridCell, grid_cells, varying_columns
from runmanager.results.figures.figure import SweepFigure, join_names
from runmanager.results.figures.style import add_legend_below, label_text, new_figure, series_style, wrapped
from runmanager.results.model.columns import Table, setting_name
from runmanager.results.model.formatting import number
from runmanager.results.stats.descriptive import quantile
from runmanager.results.stats.effects import geometric_mean, typical_interval
from runmanager.results.tables.sorting import sorted_values
from runmanager.text import format_value

if TYPE_CHECKING:
    from matplotlib.figure import Figure

__all__ = ["throughput_by_axis_figures"]

_MAX_FIGURES = 3
_MAX_LINES = 6
_MAX_PLACES = 40
_MAX_WORDS = 10  # values of an axis that are no numbers, and stand side by side
_WORTH = 1.1  # times from the slowest to the fastest along an axis: with less there is nothing to see
_MIN_EPOCHS = 5  # as a comparison needs: the interval of fewer says little
_ROOM = 2.0  # times the largest median: the interval of two runs can reach a hundred times further

_Side = list[list[float]]
"""The samples a second of a cell: of each run, of each of its measured epochs."""


@dataclass(frozen=True)
class _Point:
    """The throughput at a value of the axis, and how far its whiskers reach."""

    at: Any
    low: float
    middle: float
    high: float


@dataclass(frozen=True)
class _Lines:
    """The throughput along an axis, whose values are `places`, in their order.

    `lines` has the cells of each line at each place. Where `mixed` names settings, these are cells that differ in them.
    """

    axis: str
    places: Sequence[Any]
    lines: Mapping[str, Mapping[Hashable, Sequence[_Side]]]
    mixed: Sequence[str]

    @property
    def name(self) -> str:
        return setting_name(self.axis)

    @property
    def reach(self) -> float:
        """The largest median of a line over its smallest, of the line where that is most."""
        middles = [[middle for _, middle in self.middles(label)] for label in self.lines]
        return max((max(each) / min(each) for each in middles), default=1.0)

    @property
    def has_something_to_show(self) -> bool:
        if not 2 <= len(self.places) <= _MAX_PLACES or self.reach < _WORTH:
            return False
        # A single row of words is what the figure of the runs shows as well.
        return is_numeric(self.places) or (len(self.places) <= _MAX_WORDS and len(self.lines) > 1)

    @cached_property
    def top(self) -> float:
        """Where a linear scale ends: above all whiskers, or where the points can still be told apart."""
        points = [point for label in self.lines for point in self.points(label)]
        return min(1.06 * max(point.high for point in points), _ROOM * max(point.middle for point in points))

    @property
    def is_log(self) -> bool:
        middles = [middle for label in self.lines for _, middle in self.middles(label)]
        return needs_log_scale(min(middles), max(middles))

    @property
    def is_cut(self) -> bool:
        """Whether a whisker leaves the picture."""
        return not self.is_log and any(point.high > self.top for label in self.lines for point in self.points(label))

    def middles(self, label: str) -> list[tuple[Any, float]]:
        """The places that a line has, and its median there."""
        return [(place, self._middle(sides)) for place, sides in self._sides(label)]

    def points(self, label: str) -> list[_Point]:
        """The same with whiskers: the interval of a cell, or the quartiles of several."""
        return [self._point(place, sides) for place, sides in self._sides(label)]

    def _sides(self, label: str) -> list[tuple[Any, Sequence[_Side]]]:
        at = self.lines[label]
        return [(place, at[frozen(place)]) for place in self.places if frozen(place) in at]

    def _middle(self, sides: Sequence[_Side]) -> float:
        if not self.mixed:
            return _middle([run for side in sides for run in side])
        return quantile(sorted(map(_middle, sides)), 0.5)

    def _point(self, place: Any, sides: Sequence[_Side]) -> _Point:
        middle = self._middle(sides)
        if self.mixed:
            of_cells = sorted(map(_middle, sides))
            return _Point(place, quantile(of_cells, 0.25), middle, quantile(of_cells, 0.75))
        rates = [run for side in sides for run in side]
        if sum(map(len, rates)) < _MIN_EPOCHS:
            return _Point(place, middle, middle, middle)
        found = typical_interval(rates)
        return _Point(place, min(found.low, middle), middle, max(found.high, middle))


def throughput_by_axis_figures(runs: Mapping[str, StoredRun], results: Table) -> list[SweepFigure]:
    """A figure for each axis along which throughput changes, the one along which it does most first."""
    names = varying_columns(results)
    measured = [(cell, side) for cell in grid_cells(results) if (side := _side(cell, runs))]
    found = [_lines(axis, names, measured) for axis in names if axis != "device"]
    found = sorted((lines for lines in found if lines.has_something_to_show), key=lambda lines: -lines.reach)
    by_name = {f"throughput-by-{_stem(lines.name)}": lines for lines in found}
    return [_figure(name, lines) for name, lines in list(by_name.items())[:_MAX_FIGURES]]


def _stem(axis: str) -> str:
    """What of a setting's name is fit for a file's."""
    return re.sub("[^A-Za-z0-9_.-]+", "_", axis)[:60]


def _side(cell: GridCell, runs: Mapping[str, StoredRun]) -> _Side:
    of_runs = [
        [rate for epoch in runs[row["run"]].epochs if not epoch.warmup and (rate := epoch.samples_per_second)]
        for row in cell.finished
    ]
    return [rates for rates in of_runs if rates]


def _lines(axis: str, names: Sequence[str], measured: Sequence[tuple[GridCell, _Side]]) -> _Lines:
    """A line for each choice of the other settings; where these are many, one for each device."""
    telling = [name for name in names if name != axis]
    mixed: list[str] = []
    if len({_label(cell, telling) for cell, _ in measured}) > _MAX_LINES:
        mixed = [name for name in telling if name != "device"]
        telling = [name for name in telling if name == "device"]
    values: dict[Hashable, Any] = {}
    lines: dict[str, dict[Hashable, list[_Side]]] = {}
    for cell, side in measured:
        if cell.has(axis):
            key = frozen(cell.value(axis))
            values.setdefault(key, cell.value(axis))
            lines.setdefault(_label(cell, telling), {}).setdefault(key, []).append(side)
    return _Lines(axis, sorted_values(values.values()), lines, mixed)


def _label(cell: GridCell, names: Sequence[str]) -> str:
    return ", ".join(label_of(name, cell.value(name)) for name in names if cell.has(name))


def _middle(side: _Side) -> float:
    return geometric_mean([quantile(sorted(run), 0.5) for run in side])


def _figure(name: str, lines: _Lines) -> SweepFigure:
    if lines.mixed:
        mixed = join_names([setting_name(name) for name in lines.mixed])
        how = f"Each point is the median of the cells that differ in {mixed}, with whiskers to their quartiles."
    else:
        how = (
            "Each point is the geometric mean over runs of the median of a run's measured epochs, with its 95% "
            "interval; of a single run the noise between runs is assumed, not measured. Points of fewer than "
            f"{_MIN_EPOCHS} measured epochs have none."
        )
    beside = " Lines stand a little beside each other, so that each can be read." if len(lines.lines) > 1 else ""
    cut = f" Whiskers without an upper end go beyond {number(lines.top)}." if lines.is_cut else ""
    caption = f"Throughput by {lines.name}. {how}{beside}{cut} Seeds are taken together."
    return SweepFigure(name, f"Throughput by {lines.name}", caption, _said(lines), partial(_draw, lines))


def _said(lines: _Lines) -> str:
    said = []
    for label in lines.lines:
        middles = lines.middles(label)
        (first, at_first), (last, at_last) = middles[0], middles[-1]
        best, at_best = max(middles, key=lambda each: each[1])
        ends = f"{number(at_first)} samples per second at {lines.name}={format_value(first)}"
        ends += f", {number(at_last)} at {format_value(last)}" if len(middles) > 1 else ""
        ends += f", most at {format_value(best)} ({number(at_best)})" if best not in (first, last) else ""
        said.append(f"{label}: {ends}" if label else ends)
    return f"{'; '.join(said)}."


def _draw(lines: _Lines) -> "Figure":
    labels = [wrapped(label) for label in lines.lines]
    of_lines = [lines.points(label) for label in lines.lines]
    places = AxisPositions(lines.places, len(labels))
    figure, axes = new_figure(height=3.3, legend=labels)
    for at, (points, label) in enumerate(zip(of_lines, labels, strict=True)):
        whiskers = [[point.middle - point.low for point in points], [point.high - point.middle for point in points]]
        axes.errorbar(
            places.xs(at, [point.at for point in points]),
            [point.middle for point in points],
            yerr=whiskers,
            fmt=series_style(at).marker,
            linestyle="solid" if places.are_numbers else "none",
            color=series_style(at).colour,
            capsize=3,
            label=label,
        )
    places.set_ticks(axes)
    if not lines.is_log:
        axes.set_ylim(0, lines.top)
    set_number_scale(axes, "y", log=lines.is_log)
    axes.set_ylabel("samples per second")
    axes.set_xlabel(label_text(lines.name))
    if any(labels):
        add_legend_below(figure)
    return figure

"""The figures of throughput along an axis of the grid, with a line for each combination of the other settings."""

import re
from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, partial
from typing import TYPE_CHECKING, Any

from runmanager.records.settings.values import hashable
from runmanager.records.storage.reader import StoredRun
from runmanager.results.compare.comparison_table import label_of
from runmanager.results.figures.axes import AxisPositions, is_numeric, needs_log_scale, set_number_scale
from runmanager.results.figures.figure import GridCell, SweepFigure, grid_cells, join_names, varying_columns
from runmanager.results.figures.style import add_legend_below, label_text, new_figure, series_style, wrapped
from runmanager.results.stats.descriptive import geometric_mean, quantile
from runmanager.results.stats.effects import typical_interval
from runmanager.results.table_model.columns import Table, setting_name
from runmanager.results.table_model.formatting import number
from runmanager.results.tables.sorting import sorted_values
from runmanager.text import format_value

if TYPE_CHECKING:
    from matplotlib.figure import Figure

_MAX_FIGURES = 3
_MAX_LINES = 6
_MAX_VALUES = 40
_MAX_TEXT_VALUES = 10  # of an axis whose values are not all numbers
_MIN_RATIO = 1.1  # of the fastest to the slowest along an axis, below which there is nothing to see
_MIN_EPOCHS = 5  # for an interval, as in a comparison
_MAX_Y = 2.0  # times the largest median; the interval of two runs can reach a hundred times further

_CellRates = list[list[float]]
"""The samples per second of a cell: for each run, those of its measured epochs."""


@dataclass(frozen=True)
class _Point:
    """The throughput at a value of the axis, and the ends of its whiskers."""

    value: Any
    low: float
    median: float
    high: float


@dataclass(frozen=True)
class _Lines:
    """The throughput along an axis with the ordered `values`.

    `lines` has the cells of each line at each value, by the line's label. If `mixed` names settings, a line combines
    cells that differ in them.
    """

    axis: str
    values: Sequence[Any]
    lines: Mapping[str, Mapping[Hashable, Sequence[_CellRates]]]
    mixed: Sequence[str]

    @property
    def name(self) -> str:
        return setting_name(self.axis)

    @property
    def max_ratio(self) -> float:
        """The ratio of the largest to the smallest median of a line, of the line where it is largest."""
        medians = [[median for _, median in self.medians(label)] for label in self.lines]
        return max((max(of_line) / min(of_line) for of_line in medians), default=1.0)

    @property
    def is_informative(self) -> bool:
        if not 2 <= len(self.values) <= _MAX_VALUES or self.max_ratio < _MIN_RATIO:
            return False
        # A single line over texts would repeat the figure of throughput by run.
        return is_numeric(self.values) or (len(self.values) <= _MAX_TEXT_VALUES and len(self.lines) > 1)

    @cached_property
    def top(self) -> float:
        """The upper end of a linear scale: above all whiskers, unless they would make points indistinguishable."""
        points = [point for label in self.lines for point in self.points(label)]
        return min(1.06 * max(point.high for point in points), _MAX_Y * max(point.median for point in points))

    @property
    def is_log(self) -> bool:
        medians = [median for label in self.lines for _, median in self.medians(label)]
        return needs_log_scale(min(medians), max(medians))

    @property
    def is_cut(self) -> bool:
        """Whether a whisker exceeds the scale."""
        return not self.is_log and any(point.high > self.top for label in self.lines for point in self.points(label))

    def medians(self, label: str) -> list[tuple[Any, float]]:
        """The values at which a line has cells, and its median there."""
        return [(value, self._median(cells)) for value, cells in self._cells(label)]

    def points(self, label: str) -> list[_Point]:
        """The points of a line, with the interval of a cell or the quartiles of several cells as whiskers."""
        return [self._point(value, cells) for value, cells in self._cells(label)]

    def _cells(self, label: str) -> list[tuple[Any, Sequence[_CellRates]]]:
        by_value = self.lines[label]
        return [(value, by_value[hashable(value)]) for value in self.values if hashable(value) in by_value]

    def _median(self, cells: Sequence[_CellRates]) -> float:
        if not self.mixed:
            return _cell_median([run for cell in cells for run in cell])
        return quantile(sorted(map(_cell_median, cells)), 0.5)

    def _point(self, value: Any, cells: Sequence[_CellRates]) -> _Point:
        median = self._median(cells)
        if self.mixed:
            medians = sorted(map(_cell_median, cells))
            return _Point(value, quantile(medians, 0.25), median, quantile(medians, 0.75))
        rates = [run for cell in cells for run in cell]
        if sum(map(len, rates)) < _MIN_EPOCHS:
            return _Point(value, median, median, median)
        interval = typical_interval(rates)
        return _Point(value, min(interval.low, median), median, max(interval.high, median))


def throughput_by_axis_figures(runs: Mapping[str, StoredRun], results: Table) -> list[SweepFigure]:
    """A figure for each axis along which throughput changes, the one with the largest change first."""
    names = varying_columns(results)
    measured = [(cell, rates) for cell in grid_cells(results) if (rates := _cell_rates(cell, runs))]
    candidates = [_lines(axis, names, measured) for axis in names if axis != "device"]
    found = sorted((lines for lines in candidates if lines.is_informative), key=lambda lines: -lines.max_ratio)
    by_name = {f"throughput-by-{_file_stem(lines.name)}": lines for lines in found}
    return [_figure(name, lines) for name, lines in list(by_name.items())[:_MAX_FIGURES]]


def _file_stem(axis: str) -> str:
    """A setting's name with the characters that a file name may contain."""
    return re.sub("[^A-Za-z0-9_.-]+", "_", axis)[:60]


def _cell_rates(cell: GridCell, runs: Mapping[str, StoredRun]) -> _CellRates:
    of_runs = [
        [rate for epoch in runs[row["run"]].epochs if not epoch.warmup and (rate := epoch.samples_per_second)]
        for row in cell.finished
    ]
    return [rates for rates in of_runs if rates]


def _lines(axis: str, names: Sequence[str], measured: Sequence[tuple[GridCell, _CellRates]]) -> _Lines:
    """A line for each combination of the other settings; for each device if these would be too many."""
    distinguishing = [name for name in names if name != axis]
    mixed: list[str] = []
    if len({_label(cell, distinguishing) for cell, _ in measured}) > _MAX_LINES:
        mixed = [name for name in distinguishing if name != "device"]
        distinguishing = [name for name in distinguishing if name == "device"]
    values: dict[Hashable, Any] = {}
    lines: dict[str, dict[Hashable, list[_CellRates]]] = {}
    for cell, rates in measured:
        if cell.has(axis):
            key = hashable(cell.value(axis))
            values.setdefault(key, cell.value(axis))
            lines.setdefault(_label(cell, distinguishing), {}).setdefault(key, []).append(rates)
    return _Lines(axis, sorted_values(values.values()), lines, mixed)


def _label(cell: GridCell, names: Sequence[str]) -> str:
    return ", ".join(label_of(setting_name(name), cell.value(name)) for name in names if cell.has(name))


def _cell_median(runs: _CellRates) -> float:
    return geometric_mean([quantile(sorted(run), 0.5) for run in runs])


def _figure(name: str, lines: _Lines) -> SweepFigure:
    if lines.mixed:
        mixed = join_names([setting_name(name) for name in lines.mixed])
        how = f"Each point is the median of the cells that differ in {mixed}, with whiskers to their quartiles."
    else:
        how = (
            "Each point is the geometric mean over runs of the median of a run's measured epochs, with its 95% "
            "interval; for a single run the noise between runs is assumed, not measured. Points of fewer than "
            f"{_MIN_EPOCHS} measured epochs have none."
        )
    offset = " Lines are slightly offset from each other for legibility." if len(lines.lines) > 1 else ""
    cut = f" Whiskers without an upper end exceed {number(lines.top)}." if lines.is_cut else ""
    caption = f"Throughput by {lines.name}. {how}{offset}{cut} Points combine all seeds."
    return SweepFigure(name, f"Throughput by {lines.name}", caption, _description(lines), partial(_draw, lines))


def _description(lines: _Lines) -> str:
    texts = []
    for label in lines.lines:
        medians = lines.medians(label)
        (first, at_first), (last, at_last) = medians[0], medians[-1]
        best, at_best = max(medians, key=lambda each: each[1])
        ends = f"{number(at_first)} samples per second at {lines.name}={format_value(first)}"
        ends += f", {number(at_last)} at {format_value(last)}" if len(medians) > 1 else ""
        ends += f", most at {format_value(best)} ({number(at_best)})" if best not in (first, last) else ""
        texts.append(f"{label}: {ends}" if label else ends)
    return f"{'; '.join(texts)}."


def _draw(lines: _Lines) -> "Figure":
    labels = [wrapped(label) for label in lines.lines]
    points_by_line = [lines.points(label) for label in lines.lines]
    x_axis = AxisPositions(lines.values, len(labels))
    figure, axes = new_figure(height=3.3, legend=labels)
    for index, (points, label) in enumerate(zip(points_by_line, labels, strict=True)):
        whiskers = [[point.median - point.low for point in points], [point.high - point.median for point in points]]
        axes.errorbar(
            x_axis.positions(index, [point.value for point in points]),
            [point.median for point in points],
            yerr=whiskers,
            fmt=series_style(index).marker,
            linestyle="solid" if x_axis.are_numbers else "none",
            color=series_style(index).colour,
            capsize=3,
            label=label,
        )
    x_axis.set_ticks(axes)
    if not lines.is_log:
        axes.set_ylim(0, lines.top)
    set_number_scale(axes, "y", log=lines.is_log)
    axes.set_ylabel("samples per second")
    axes.set_xlabel(label_text(lines.name))
    if any(labels):
        add_legend_below(figure)
    return figure

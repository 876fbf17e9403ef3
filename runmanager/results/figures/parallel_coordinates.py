"""The figure of a sweep in parallel coordinates: each cell is a line through its settings to its outcome."""

import itertools
import math
from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

from runmanager.records.settings.values import hashable
from runmanager.records.storage.reader import StoredRun
from runmanager.results.figures.axes import is_drawable, is_log_spaced, is_numeric, needs_log_scale
from runmanager.results.figures.figure import (
    GridCell,
    SweepFigure,
    grid_cells,
    join_names,
    sample_evenly,
    sample_note,
    varying_columns,
)
from runmanager.results.figures.style import (
    PAGE,
    TEXT,
    label_text,
    new_frameless_figure,
    shades,
    shortened,
    wrapped_name,
)
from runmanager.results.findings.outcomes import outcomes
from runmanager.results.metrics.metric import THROUGHPUT
from runmanager.results.table_model.columns import Row, Table, setting_name
from runmanager.results.table_model.formatting import metric_in_words, number
from runmanager.results.tables.sorting import sorted_values
from runmanager.text import format_value, pluralize

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

_MIN_SETTINGS = 2
_MIN_CELLS = 6
_MAX_SETTINGS = 7
_MAX_LINES = 300
_MAX_TICKS = 6
_CHARACTERS = 84  # of the names of all axes side by side
_MAX_CHARACTERS = 12
_SPREAD = 0.05  # of an axis' height, over which the lines through one value spread in the order of their outcome


@dataclass(frozen=True)
class _Scale:
    """A vertical axis: the position of each value from 0 (bottom) to 1 (top), and the labelled ticks."""

    name: str
    positions: Mapping[Hashable, float]
    ticks: Sequence[tuple[float, str]]

    def position(self, value: Any) -> float:
        return self.positions[hashable(value)]


@dataclass(frozen=True)
class _Result:
    """A measured value of a run, given its row, that is shown behind the settings."""

    name: str
    of_run: Callable[[Row], float | None]
    more_is_better: bool


_Line = list[float]
"""A cell's positions on all axes, with its outcomes last."""


def parallel_figures(results: Table, runs: Sequence[StoredRun] = ()) -> list[SweepFigure]:
    """The figure of the finished cells, if there are enough cells and at least two settings vary.

    `runs` are the records of the rows of `results`.
    """
    settings = varying_columns(results)
    measured = _measured(results, runs)
    if not measured:
        return []
    cells = [(cell, means) for cell in grid_cells(results) if (means := _means(cell, measured)) is not None]
    if len(settings) < _MIN_SETTINGS or len(cells) < _MIN_CELLS:
        return []
    target = measured[-1]
    sign = 1 if target.more_is_better else -1
    cells.sort(key=lambda each: sign * each[1][-1])  # the best is drawn last, above the others
    shown = sample_evenly(cells, _MAX_LINES)
    scales = [_scale_of_setting(name, [cell.value(name) for cell, _ in shown]) for name in settings[:_MAX_SETTINGS]]
    scales += [_scale_of_result(each, [means[index] for _, means in shown]) for index, each in enumerate(measured)]
    lines = [_line(cell, means, scales) for cell, means in shown]
    caption = _caption(settings, [each.name for each in measured], len(cells), len(grid_cells(results)))
    draw = partial(_draw, scales, lines)
    return [SweepFigure("parallel", "The sweep at a glance", caption, _description(cells, settings, target.name), draw)]


def _measured(results: Table, runs: Sequence[StoredRun]) -> list[_Result]:
    """What was measured: the throughput, then the outcome, which decides which cell is best."""
    speed = metric_in_words(THROUGHPUT.name)
    throughput = _Result(speed, lambda row: row[THROUGHPUT.name], THROUGHPUT.more_is_better)
    found = (
        _Result(metric_in_words(each.name), each.of_run, each.metric.more_is_better) for each in outcomes(results, runs)
    )
    outcome = next((each for each in found if _is_measured(each, results)), None)
    return [each for each in (throughput, outcome) if each is not None and _is_measured(each, results)]


def _is_measured(result: _Result, results: Table) -> bool:
    return any(result.of_run(row) is not None for row in results.rows)


def _means(cell: GridCell, measured: Sequence[_Result]) -> list[float] | None:
    """The means of what was measured over the finished runs; None if one is missing or cannot be drawn."""
    means = [mean for each in measured if (mean := cell.mean_of(each.of_run)) is not None]
    return means if len(means) == len(measured) and all(map(is_drawable, means)) else None


def _scale_of_setting(name: str, values: Sequence[Any]) -> _Scale:
    ordered = sorted_values({hashable(value): value for value in values}.values())
    if is_numeric(ordered) and len(ordered) > 1:
        heights = _heights(ordered, log=is_log_spaced(ordered))
    else:
        heights = [index / max(1, len(ordered) - 1) for index in range(len(ordered))]
    # Leave space for the spread of lines above each value.
    positions = {hashable(value): (1 - _SPREAD) * height for value, height in zip(ordered, heights, strict=True)}
    labelled = sample_evenly(ordered, _MAX_TICKS)
    ticks = [(positions[hashable(value)] + _SPREAD / 2, format_value(value)) for value in labelled]
    return _Scale(name, positions, ticks)


def _scale_of_result(result: _Result, values: Sequence[float]) -> _Scale:
    """A scale with the better end at the top, which is the smallest value of a loss."""
    ordered = sorted(set(values))
    heights = _heights(ordered, log=needs_log_scale(ordered[0], ordered[-1]))
    if not result.more_is_better:
        heights = [1 - height for height in heights]
    ticks = [(heights[index], number(ordered[index])) for index in sorted({0, len(ordered) - 1})]
    return _Scale(result.name, {hashable(value): height for value, height in zip(ordered, heights, strict=True)}, ticks)


def _heights(ordered: Sequence[float], *, log: bool) -> list[float]:
    """The values scaled to 0 to 1; 0.5 for a single value."""
    scaled = [math.log(value) for value in ordered] if log else [float(value) for value in ordered]
    reach = scaled[-1] - scaled[0]
    return [(value - scaled[0]) / reach if reach else 0.5 for value in scaled]


def _line(cell: GridCell, means: Sequence[float], scales: Sequence[_Scale]) -> _Line:
    outcomes = [scale.position(mean) for scale, mean in zip(scales[-len(means) :], means, strict=True)]
    settings = [scale.position(cell.value(scale.name)) for scale in scales[: -len(means)]]
    return [*(position + _SPREAD * outcomes[-1] for position in settings), *outcomes]


def _caption(settings: Sequence[str], outcomes: Sequence[str], num_cells: int, num_all: int) -> str:
    missing = num_all - num_cells
    omitted = f" Omitted: {pluralize(missing, 'cell')} without a result." if missing else ""
    hidden = f" Only the first {_MAX_SETTINGS} of {len(settings)} settings." if len(settings) > _MAX_SETTINGS else ""
    shown = sample_note(num_cells, _MAX_LINES, " of the outcome")
    ends = join_names(outcomes)
    return (
        f"Each line is a cell{shown}, through its settings to its {ends}; seeds are one line, by their mean. The "
        f"colour shows the value on the last axis, where better is at the top.{hidden}{omitted}"
    )


def _description(cells: Sequence[tuple[GridCell, Sequence[float]]], settings: Sequence[str], target: str) -> str:
    best_cell, best_means = cells[-1]
    leaders = [cell for cell, _ in cells[-max(3, len(cells) // 10) :]]
    shared = [
        f"{setting_name(name)}={format_value(best_cell.value(name))}"
        for name in settings
        if len({hashable(cell.value(name)) for cell in leaders}) == 1
    ]
    text = (
        f"The best {target} is {number(best_means[-1])}, with {best_cell.label}; the worst {number(cells[0][1][-1])}."
    )
    return text + (f" All of the {len(leaders)} best have {join_names(shared)}." if shared else "")


def _draw(scales: Sequence[_Scale], lines: Sequence[_Line]) -> "Figure":
    figure, axes = new_frameless_figure(height=3.8)
    _draw_lines(axes, lines)
    background = {"boxstyle": "square,pad=0.1", "facecolor": PAGE, "alpha": 0.75, "linewidth": 0}
    for x, scale in enumerate(scales):
        axes.axvline(x, color=TEXT, linewidth=0.8, zorder=3)
        for y, text in scale.ticks:
            label = shortened(label_text(text), 12)
            axes.text(x - 0.05, y, label, ha="right", va="center", size="small", color=TEXT, zorder=4, bbox=background)
    _draw_shades(axes, len(scales) - 1)
    width = min(_MAX_CHARACTERS, _CHARACTERS // len(scales))
    names = [wrapped_name(setting_name(scale.name), width) for scale in scales]
    axes.set_xticks(range(len(scales)), names, fontsize="small")
    axes.set_xlim(-0.35, len(scales) - 0.9)
    axes.set_ylim(-0.03, 1.03)
    return figure


def _draw_lines(axes: "Axes", lines: Sequence[_Line]) -> None:
    """Draw all lines of a shade together, the best shade last, above the others."""
    colours = shades()
    gap = (math.nan,)
    for shade, colour in enumerate(colours):
        of_shade = [line for line in lines if _shade(line[-1], len(colours)) == shade]
        xs = list(itertools.chain.from_iterable((*range(len(line)), *gap) for line in of_shade))
        ys = list(itertools.chain.from_iterable((*line, *gap) for line in of_shade))
        if of_shade:
            axes.plot(xs, ys, color=colour, linewidth=0.8 + 0.8 * shade / len(colours))


def _draw_shades(axes: "Axes", x: int) -> None:
    """Colour the outcome's axis as a legend of the shades."""
    colours = shades()
    for shade, colour in enumerate(colours):
        ends = shade / len(colours), (shade + 1) / len(colours)
        axes.plot((x, x), ends, color=colour, linewidth=7, solid_capstyle="butt", zorder=3)


def _shade(position: float, count: int) -> int:
    return min(count - 1, int(position * count))

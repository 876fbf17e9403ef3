"""The sweep in parallel coordinates: each cell a line through its settings to what it came to."""

import itertools
import math
from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

from runmanager.results.compare.pairing import frozen
from runmanager.results.figures.axes import is_drawable, is_log_spaced, is_numeric, needs_log_scale
from runmanager.results.figures.cell_grid import GridCell, grid_cells, varying_columns
from runmanager.results.figures.figure import SweepFigure, join_names, sample_evenly, sample_note
from runmanager.results.figures.style import (
    PAGE,
    TEXT,
    label_text,
    new_frameless_figure,
    shades,
    shortened,
    wrapped_name,
)
from runmanager.results.model.columns import OUTCOMES, Table, prefers_larger, setting_name
from runmanager.results.model.formatting import number
from runmanager.results.tables.sorting import sorted_values
from runmanager.text import format_value, pluralize

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

__all__ = ["parallel_figures"]

_LEAST_SETTINGS = 2
_LEAST_CELLS = 6
_MAX_SETTINGS = 5
_MAX_LINES = 300
_MAX_TICKS = 6
_SPREAD = 0.05  # of an axis' height: lines through one value lie beside each other, in the order of their outcome
_THROUGHPUT = "samples_per_second"


@dataclass(frozen=True)
class _Scale:
    """An upright axis: where each value stands on it, from 0 at the bottom to 1, and which values are written."""

    name: str
    places: Mapping[Hashable, float]
    ticks: Sequence[tuple[float, str]]

    def place(self, value: Any) -> float:
        return self.places[frozen(value)]


_Line = list[float]
"""A cell's places on each axis, its outcome's last."""


def parallel_figures(results: Table) -> list[SweepFigure]:
    """The finished cells of a sweep over two settings or more; none of a handful of cells."""
    settings = varying_columns(results)
    outcomes = _outcomes(results)
    if not outcomes:
        return []
    found = [(cell, means) for cell in grid_cells(results) if (means := _means(cell, outcomes)) is not None]
    if len(settings) < _LEAST_SETTINGS or len(found) < _LEAST_CELLS:
        return []
    target = outcomes[-1]
    better = -1 if prefers_larger(target) is False else 1
    found.sort(key=lambda each: better * each[1][-1])  # the best is drawn last, above the others
    shown = sample_evenly(found, _MAX_LINES)
    scales = [_scale_of_setting(name, [cell.value(name) for cell, _ in shown]) for name in settings[:_MAX_SETTINGS]]
    scales += [_scale_of_outcome(name, [means[at] for _, means in shown]) for at, name in enumerate(outcomes)]
    lines = [_line(cell, means, scales) for cell, means in shown]
    caption = _caption(settings, outcomes, len(found), len(grid_cells(results)))
    drawing = partial(_draw, scales, lines)
    return [SweepFigure("parallel", "The sweep at a glance", caption, _said(found, settings, target), drawing)]


def _outcomes(results: Table) -> list[str]:
    """Throughput, then the metric by which the best is said; those that were measured."""
    metric = next((name for name in OUTCOMES if any(row[name] is not None for row in results.rows)), None)
    fast = [_THROUGHPUT] if any(row[_THROUGHPUT] is not None for row in results.rows) else []
    return fast + ([metric] if metric else [])


def _means(cell: GridCell, outcomes: Sequence[str]) -> list[float] | None:
    """The means over its finished runs; None where one of the outcomes is missing."""
    means = [mean for name in outcomes if (mean := cell.mean(name)) is not None]
    return means if len(means) == len(outcomes) and all(map(is_drawable, means)) else None


def _scale_of_setting(name: str, values: Sequence[Any]) -> _Scale:
    ordered = sorted_values({frozen(value): value for value in values}.values())
    if is_numeric(ordered) and len(ordered) > 1:
        ends = _positions(ordered, log=is_log_spaced(ordered))
    else:
        ends = [at / max(1, len(ordered) - 1) for at in range(len(ordered))]
    # Room for lines side by side.
    places = {frozen(value): (1 - _SPREAD) * at for value, at in zip(ordered, ends, strict=True)}
    ticks = [(places[frozen(value)] + _SPREAD / 2, format_value(value)) for value in sample_evenly(ordered, _MAX_TICKS)]
    return _Scale(name, places, ticks)


def _scale_of_outcome(name: str, values: Sequence[float]) -> _Scale:
    """The better end above: a loss has its smallest value there."""
    ordered = sorted(set(values))
    ends = _positions(ordered, log=needs_log_scale(ordered[0], ordered[-1]))
    if prefers_larger(name) is False:
        ends = [1 - at for at in ends]
    ticks = [(ends[at], number(ordered[at])) for at in sorted({0, len(ordered) - 1})]
    return _Scale(name, {frozen(value): at for value, at in zip(ordered, ends, strict=True)}, ticks)


def _positions(ordered: Sequence[float], *, log: bool) -> list[float]:
    """From 0 to 1; a single value in the middle."""
    scaled = [math.log(value) for value in ordered] if log else [float(value) for value in ordered]
    reach = scaled[-1] - scaled[0]
    return [(value - scaled[0]) / reach if reach else 0.5 for value in scaled]


def _line(cell: GridCell, means: Sequence[float], scales: Sequence[_Scale]) -> _Line:
    of_outcomes = [scale.place(mean) for scale, mean in zip(scales[-len(means) :], means, strict=True)]
    settings = [scale.place(cell.value(scale.name)) for scale in scales[: -len(means)]]
    return [*(at + _SPREAD * of_outcomes[-1] for at in settings), *of_outcomes]


def _caption(settings: Sequence[str], outcomes: Sequence[str], num_cells: int, num_all: int) -> str:
    lost = num_all - num_cells
    without = f" Left out: {pluralize(lost, 'cell')} without a result." if lost else ""
    hidden = f" Of {len(settings)} settings the first {_MAX_SETTINGS}." if len(settings) > _MAX_SETTINGS else ""
    shown = sample_note(num_cells, _MAX_LINES, " of the outcome")
    ends = join_names([name.replace("_", " ") for name in outcomes])
    return (
        f"Each line is a cell{shown}, through its settings to its {ends}; seeds are one line, by their mean. Its "
        f"colour is that of its end on the last axis, where better is above.{hidden}{without}"
    )


def _said(found: Sequence[tuple[GridCell, Sequence[float]]], settings: Sequence[str], target: str) -> str:
    best_cell, best_means = found[-1]
    leaders = [cell for cell, _ in found[-max(3, len(found) // 10) :]]
    shared = [
        f"{setting_name(name)}={format_value(best_cell.value(name))}"
        for name in settings
        if len({frozen(cell.value(name)) for cell in leaders}) == 1
    ]
    said = (
        f"The best {target} is {number(best_means[-1])}, with {best_cell.label}; the worst {number(found[0][1][-1])}."
    )
    return said + (f" All of the {len(leaders)} best have {join_names(shared)}." if shared else "")


def _draw(scales: Sequence[_Scale], lines: Sequence[_Line]) -> "Figure":
    figure, axes = new_frameless_figure(height=3.8)
    _draw_lines(axes, lines)
    behind = {"boxstyle": "square,pad=0.1", "facecolor": PAGE, "alpha": 0.75, "linewidth": 0}
    for x, scale in enumerate(scales):
        axes.axvline(x, color=TEXT, linewidth=0.8, zorder=3)
        for y, text in scale.ticks:
            said = shortened(label_text(text), 12)
            axes.text(x - 0.05, y, said, ha="right", va="center", size="small", color=TEXT, zorder=4, bbox=behind)
    _draw_shades(axes, len(scales) - 1)
    axes.set_xticks(
        range(len(scales)), [wrapped_name(setting_name(scale.name), 12) for scale in scales], fontsize="small"
    )
    axes.set_xlim(-0.35, len(scales) - 0.9)
    axes.set_ylim(-0.03, 1.03)
    return figure


def _draw_lines(axes: "Axes", lines: Sequence[_Line]) -> None:
    """All lines of a shade at once, the best above."""
    colours = shades()
    gap = (math.nan,)
    for shade, colour in enumerate(colours):
        chosen = [line for line in lines if _shade(line[-1], len(colours)) == shade]
        xs = list(itertools.chain.from_iterable((*range(len(each)), *gap) for each in chosen))
        ys = list(itertools.chain.from_iterable((*each, *gap) for each in chosen))
        if chosen:
            axes.plot(xs, ys, color=colour, linewidth=0.8 + 0.8 * shade / len(colours))


def _draw_shades(axes: "Axes", x: int) -> None:
    """The outcome's axis, which says what the shades mean."""
    colours = shades()
    for shade, colour in enumerate(colours):
        ends = shade / len(colours), (shade + 1) / len(colours)
        axes.plot((x, x), ends, color=colour, linewidth=7, solid_capstyle="butt", zorder=3)


def _shade(place: float, count: int) -> int:
    return min(count - 1, int(place * count))

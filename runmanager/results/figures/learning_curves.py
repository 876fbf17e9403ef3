"""Learning curves: a metric of each cell by epoch, the mean and the range of its seeds, the best in colour."""

import itertools
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING

from runmanager.records.run.record import EpochRecord
from runmanager.records.storage.reader import StoredRun
from runmanager.results.figures.axes import is_drawable, set_integer_ticks, set_number_scale
from runmanager.results.figures.cell_grid import GridCell, grid_cells
from runmanager.results.figures.figure import SweepFigure, sample_evenly, top_note
from runmanager.results.figures.style import GREY, add_legend_below, new_figure, series_style, wrapped
from runmanager.results.model.columns import Table
from runmanager.results.model.formatting import number
from runmanager.results.stats.descriptive import mean
from runmanager.text import pluralize

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

__all__ = ["learning_curve_figures"]

_MAX_CURVES = 12
_MAX_GREY = 200
_MARKS = 8  # of a curve: those of more epochs would run together
_MAX_POINTS = 500  # of a curve in colour: more than the figure is wide
_MAX_GREY_POINTS = 12_000  # of all grey curves together
_METRICS = (
    ("val_accuracy", "validation accuracy (fraction)"),
    ("accuracy", "training accuracy (fraction)"),
    ("val_loss", "validation loss"),
    ("loss", "training loss"),
)


@dataclass(frozen=True)
class _Curve:
    """A metric of a cell by epoch: the mean over its seeds, and from the lowest to the highest of them.

    `outcome` is what the cell came to by the results table, which the curve does not reach where `is_cut`: a seed that
    stopped early ends it for all.
    """

    label: str
    epochs: Sequence[int]
    values: Sequence[float]
    lows: Sequence[float]
    highs: Sequence[float]
    num_seeds: int
    outcome: float
    is_cut: bool
    is_finished: bool = True

    def thinned(self, most: int) -> "_Curve":
        """At most so many of its epochs, at even steps, the first and the last among them."""
        kept = sample_evenly(range(len(self.epochs)), most)
        values, lows, highs = ([each[at] for at in kept] for each in (self.values, self.lows, self.highs))
        epochs = [self.epochs[at] for at in kept]
        return replace(self, epochs=epochs, values=values, lows=lows, highs=highs)


def learning_curve_figures(runs: Mapping[str, StoredRun], results: Table) -> list[SweepFigure]:
    """The curves of the first metric that some cell has at two epochs; none where none has."""
    cells = grid_cells(results)
    for metric, words in _METRICS:
        curves = [curve for cell in cells if (curve := _curve(cell, runs, metric)) is not None]
        if any(len(curve.epochs) > 1 for curve in curves):
            curves.sort(key=partial(_rank, more_is_better=metric.endswith("accuracy")))
            drawing = partial(_draw, curves, words)
            return [SweepFigure("curves", "Learning curves", _caption(curves, words), _said(curves, words), drawing)]
    return []


def _rank(curve: _Curve, *, more_is_better: bool) -> tuple[bool, bool, float]:
    """The best first, of those that finished as in the answer; then those of runs that did not, then what diverged."""
    outcome = curve.outcome
    is_number = math.isfinite(outcome) and math.isfinite(curve.values[-1])
    return not is_number, not curve.is_finished, (-outcome if more_is_better else outcome) if is_number else 0.0


def _curve(cell: GridCell, runs: Mapping[str, StoredRun], metric: str) -> _Curve | None:
    """Of the cell's finished runs, or of all where none finished: their common epochs, or means would leap."""
    rows = cell.finished or cell.rows
    stored = [runs[row["run"]] for row in rows if row["run"] in runs]
    of_seeds = [found for run in stored if (found := _values(run.epochs, metric))]
    epochs = [epoch for epoch in (of_seeds[0] if of_seeds else ()) if all(epoch in found for found in of_seeds)]
    if not epochs:
        return None
    columns = [[found[epoch] for found in of_seeds] for epoch in epochs]
    means = list(map(mean, columns))
    lows, highs = list(map(min, columns)), list(map(max, columns))
    came_to = cell.mean(metric)
    outcome = means[-1] if came_to is None else came_to
    is_cut = any(max(each) > epochs[-1] for each in of_seeds)
    return _Curve(cell.label, epochs, means, lows, highs, len(of_seeds), outcome, is_cut, bool(cell.finished))


def _values(epochs: Sequence[EpochRecord], metric: str) -> dict[int, float]:
    known = {epoch.epoch: value for epoch in epochs if (value := getattr(epoch, metric)) is not None}
    return {epoch: value if is_drawable(value) else math.nan for epoch, value in known.items()}


def _caption(curves: Sequence[_Curve], metric: str) -> str:
    seeds = any(curve.num_seeds > 1 for curve in curves)
    band = " A curve is the mean over seeds, its band reaches from the lowest to the highest of them." if seeds else ""
    is_cut = any(curve.is_cut for curve in curves)
    cut = " It ends with the shortest of them, but ranks by what each came to." if is_cut else ""
    grey = len(curves) - _MAX_CURVES
    left_out = f" Of the others, {_MAX_GREY} at even steps are drawn in grey." if grey > _MAX_GREY else ""
    shown = top_note(len(curves), _MAX_CURVES, "best", "in colour")
    return (
        f"Learning curves: {metric} by epoch{shown}. The best is the thick one, with a star at its end."
        f"{band}{cut}{left_out}"
    )


def _said(curves: Sequence[_Curve], metric: str) -> str:
    best, worst = curves[0], curves[-1]
    ends = f"from {number(best.values[0])} to {number(best.values[-1])} {metric}"
    said = f"The best of {pluralize(len(curves), 'curve')} goes {ends} at epoch {best.epochs[-1]}"
    said += f": {best.label}." if best.label else "."
    return said + (f" The worst ends at {number(worst.values[-1])}: {worst.label}." if len(curves) > 1 else "")


def _draw(curves: Sequence[_Curve], metric: str) -> "Figure":
    labels = [wrapped(curve.label) for curve in curves[:_MAX_CURVES]]
    figure, axes = new_figure(height=3.3, legend=labels)
    _draw_grey(axes, sample_evenly(curves[_MAX_CURVES:], _MAX_GREY))
    for at, (curve, label) in enumerate(zip(curves, labels, strict=False)):
        _draw_curve(axes, curve.thinned(_MAX_POINTS), label, at)
    best = curves[0]
    axes.plot(
        best.epochs[-1:], best.values[-1:], "*", color=series_style(0).colour, markersize=12, clip_on=False, zorder=5
    )
    set_integer_ticks(axes)
    set_number_scale(axes, "y")
    axes.set_xlabel("epoch")
    axes.set_ylabel(metric)
    if any(labels):
        add_legend_below(figure)
    return figure


def _draw_curve(axes: "Axes", curve: _Curve, label: str, at: int) -> None:
    colour, marker, dash = series_style(at)
    above = 3 - at / _MAX_CURVES  # the better one lies over the worse
    if curve.num_seeds > 1:
        axes.fill_between(curve.epochs, curve.lows, curve.highs, color=colour, alpha=0.2, linewidth=0, zorder=1.5)
    (line,) = axes.plot(curve.epochs, curve.values, label=label, color=colour, linestyle=dash, zorder=above)
    line.set(marker=marker, markersize=4, markevery=max(1, len(curve.epochs) // _MARKS))
    line.set_linewidth(2.6 if at == 0 else 1.3)


def _draw_grey(axes: "Axes", curves: Sequence[_Curve]) -> None:
    """All of them as one line with gaps: a line each would take as long to write as all the rest."""
    if not curves:
        return
    most = max(2, _MAX_GREY_POINTS // len(curves))
    thin = [curve.thinned(most) for curve in curves]
    gap = (math.nan,)
    xs = list(itertools.chain.from_iterable((*curve.epochs, *gap) for curve in thin))
    ys = list(itertools.chain.from_iterable((*curve.values, *gap) for curve in thin))
    axes.plot(xs, ys, color=GREY, alpha=0.35, linewidth=0.8)

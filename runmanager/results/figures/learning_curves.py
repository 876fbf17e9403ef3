"""The figure of learning curves: each metric by epoch or step, mean and range over seeds, the best in colour."""

import itertools
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING

from runmanager.records.run.metric_names import by_quantity
from runmanager.records.run.status import Reason
from runmanager.records.storage.reader import StoredRun
from runmanager.results.figures.axes import is_drawable, set_integer_ticks, set_number_scale
from runmanager.results.figures.figure import GridCell, SweepFigure, grid_cells, sample_evenly, top_note
from runmanager.results.figures.style import DASHES, GREY, add_legend_below, new_panels, series_style, wrapped
from runmanager.results.findings.outcomes import Outcome, outcomes
from runmanager.results.metrics.metric_lookup import any_direction, recorded_names
from runmanager.results.program_files.folder_metrics import courses_of
from runmanager.results.stats.descriptive import mean
from runmanager.results.table_model.columns import Table
from runmanager.results.table_model.formatting import metric_in_words, number
from runmanager.text import pluralize

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

_MAX_CURVES = 12
_MAX_PANELS = 6
_TITLE_CHARACTERS = 40  # in half the width
_MAX_GREY_CURVES = 200
_MAX_MARKERS = 8  # per curve
_PRUNED_ALPHA = 0.35
_MAX_POINTS = 500  # per coloured curve, more than the figure's width can show
_MAX_GREY_POINTS = 12_000  # of all grey curves together
METRIC_LABELS = {
    "val_accuracy": "validation accuracy (fraction)",
    "accuracy": "training accuracy (fraction)",
    "val_loss": "validation loss",
    "loss": "training loss",
}
_SAMPLES = {name: "validation" if name.startswith("val_") else "training" for name in METRIC_LABELS}
_Courses = Mapping[str, tuple[str, Mapping[int, float]]]
"""By metric what the numbers of a run's values count, and the values."""


@dataclass(frozen=True)
class _Curve:
    """A metric of a cell by epoch, or by step: the mean, minimum and maximum over its seeds.

    `counted` is what `numbers` count, `epoch` or `step`. A curve ends with the shortest seed; `is_cut` says that others
    are longer. `outcome` is the metric in the results table, which counts all their values. `is_whole`: the cell has a
    finished run, and all that it has have the metric. `is_pruned`: a search has ended all its runs early.
    """

    label: str
    counted: str
    numbers: Sequence[int]
    values: Sequence[float]
    lows: Sequence[float]
    highs: Sequence[float]
    num_seeds: int
    outcome: float
    is_cut: bool
    is_whole: bool = True
    is_pruned: bool = False

    def thinned(self, limit: int) -> "_Curve":
        """At most `limit` of its values at even steps, including the first and the last."""
        indices = sample_evenly(range(len(self.numbers)), limit)
        values, lows, highs = ([each[index] for index in indices] for each in (self.values, self.lows, self.highs))
        numbers = [self.numbers[index] for index in indices]
        return replace(self, numbers=numbers, values=values, lows=lows, highs=highs)


@dataclass(frozen=True)
class Panel:
    """A chart of one quantity, on the page and in files: `names` are its metrics, each with a dash of its own."""

    names: Sequence[str]
    title: str


def curve_panels(names: Iterable[str]) -> list[Panel]:
    """Return a panel for each quantity, with validation before training."""
    groups = by_quantity(names).items()
    parts = [
        (quantity, group[at : at + len(DASHES)])
        for quantity, group in groups
        for at in range(0, len(group), len(DASHES))
    ]
    return [Panel(part, _title(quantity, part)) for quantity, part in parts]


def _title(quantity: str, names: Sequence[str]) -> str:
    if len(names) == 1:
        return METRIC_LABELS.get(names[0], metric_in_words(names[0]))
    lines = [_SAMPLES.get(name, name) for name in names]
    marked = [line if dash == DASHES[0] else f"{line} ({dash})" for line, dash in zip(lines, DASHES, strict=False)]
    return f"{quantity}: {', '.join(marked)}"


def learning_curve_figures(runs: Mapping[str, StoredRun], results: Table) -> list[SweepFigure]:
    """Curves ranked by the first outcome that some cell has twice or more, validation metrics first.

    That outcome has the first panel; the other metrics have theirs, of the best cells alone.
    """
    cells = grid_cells(results)
    for outcome in outcomes(results, list(runs.values())):
        found = [(cell, curve) for cell in cells if (curve := _curve(cell, runs, outcome)) is not None]
        if any(len(curve.numbers) > 1 for _, curve in found):
            label = METRIC_LABELS.get(outcome.name, outcome.name)
            found.sort(key=lambda pair: _rank(pair[1], more_is_better=outcome.metric.more_is_better))
            curves = [curve for _, curve in found]
            panels, num_others = _panels(outcome, [cell for cell, _ in found[:_MAX_CURVES]], runs, results)
            caption = _caption(curves, label, num_others)
            draw = partial(_draw, curves, label, panels)
            return [SweepFigure("curves", "Learning curves", caption, _description(curves, label), draw)]
    return []


_Lines = Sequence[Sequence[_Curve | None]]
"""The curves of the best cells, for each metric of a panel."""


def _panels(
    lead: Outcome, cells: Sequence[GridCell], runs: Mapping[str, StoredRun], results: Table
) -> tuple[list[tuple[Panel, _Lines]], int]:
    """The panels with something to draw, that of `lead` first, and how many more metrics there are."""
    stored = list(runs.values())
    panels = curve_panels([lead.name, *(name for name in recorded_names(stored) if name != lead.name)])
    names = [name for panel in panels[:_MAX_PANELS] for name in panel.names]
    metrics = {name: Outcome(any_direction(name, stored), results, stored) for name in names} | {lead.name: lead}
    courses = {
        row["run"]: courses_of(runs[row["run"]], [each.metric for each in metrics.values()])
        for cell in cells
        for row in cell.rows
        if row["run"] in runs
    }
    found: list[tuple[Panel, _Lines]] = [
        (panel, [[_curve(cell, runs, metrics[name], courses) for cell in cells] for name in panel.names])
        for panel in panels[:_MAX_PANELS]
    ]
    drawn = [(panel, lines) for panel, lines in found if any(_is_line(each) for line in lines for each in line)]
    return drawn, sum(len(panel.names) for panel in panels[_MAX_PANELS:])


def _is_line(curve: _Curve | None) -> bool:
    return curve is not None and len(curve.numbers) > 1


def _rank(curve: _Curve, *, more_is_better: bool) -> tuple[bool, bool, float]:
    """A sort key: finished cells by outcome, best first, then unfinished and partial cells, then diverged ones."""
    outcome = curve.outcome
    is_number = math.isfinite(outcome) and math.isfinite(curve.values[-1])
    return not is_number, not curve.is_whole, (-outcome if more_is_better else outcome) if is_number else 0.0


def _curve(
    cell: GridCell, runs: Mapping[str, StoredRun], outcome: Outcome, courses: Mapping[str, _Courses] | None = None
) -> _Curve | None:
    """The curve of the cell's finished runs, or of all its runs if none finished, over their common epochs or steps.

    Over other ones the mean would jump where a seed ends. `courses` are those of runs that were read before.
    """
    rows = cell.finished or cell.rows
    stored = [runs[row["run"]] for row in rows if row["run"] in runs]
    read = [(courses or {}).get(run.record.name) or courses_of(run, [outcome.metric]) for run in stored]
    known = [(word, _drawable(values)) for word, values in (each[outcome.name] for each in read) if values]
    counted = known[0][0] if known else ""
    seeds = [values for word, values in known if word == counted]
    numbers = [each for each in (seeds[0] if seeds else ()) if all(each in values for values in seeds)]
    if not numbers:
        return None
    columns = [[values[each] for values in seeds] for each in numbers]
    means = list(map(mean, columns))
    lows, highs = list(map(min, columns)), list(map(max, columns))
    in_table = cell.mean_of(outcome.of_run)
    final = means[-1] if in_table is None else in_table
    is_cut = any(max(values) > numbers[-1] for values in seeds)
    is_whole = bool(cell.finished) and not outcome.is_partial(cell.rows)
    is_pruned = all(row["reason"] == Reason.PRUNED for row in cell.rows)
    return _Curve(cell.label, counted, numbers, means, lows, highs, len(seeds), final, is_cut, is_whole, is_pruned)


def _drawable(values: Mapping[int, float]) -> dict[int, float]:
    return {number: value if is_drawable(value) else math.nan for number, value in values.items()}


def _counted(curves: Sequence[_Curve]) -> str:
    return " or ".join(sorted({curve.counted for curve in curves}))


def _caption(curves: Sequence[_Curve], metric: str, num_others: int) -> str:
    seeds = any(curve.num_seeds > 1 for curve in curves)
    band = " A curve is the mean over seeds, with a band from the lowest to the highest seed." if seeds else ""
    is_cut = any(curve.is_cut for curve in curves)
    cut = " It ends with the shortest seed, but is ranked by the final values of all." if is_cut else ""
    num_grey = len(curves) - _MAX_CURVES
    sample = (
        f" Of the others, {_MAX_GREY_CURVES} at even steps are drawn in grey." if num_grey > _MAX_GREY_CURVES else ""
    )
    shown = top_note(len(curves), _MAX_CURVES, "best", "in colour")
    sample += " Those of pruned runs are lighter." if any(curve.is_pruned for curve in curves) else ""
    sample += f" {pluralize(num_others, 'more metric')} can be chosen on the screen." if num_others else ""
    return (
        f"Learning curves: {metric} by {_counted(curves)}{shown}. The best is the thick one, with a star at its end."
        f"{band}{cut}{sample}"
    )


def _description(curves: Sequence[_Curve], metric: str) -> str:
    best, worst = curves[0], curves[-1]
    ends = f"from {number(best.values[0])} to {number(best.values[-1])} {metric}"
    text = f"The best of {pluralize(len(curves), 'curve')} goes {ends} at {best.counted} {best.numbers[-1]}"
    text += f": {best.label}." if best.label else "."
    return text + (f" The worst ends at {number(worst.values[-1])}: {worst.label}." if len(curves) > 1 else "")


def _draw(curves: Sequence[_Curve], metric: str, panels: Sequence[tuple[Panel, _Lines]]) -> "Figure":
    labels = [wrapped(curve.label) for curve in curves[:_MAX_CURVES]]
    is_alone = len(panels) == 1
    figure, frames = new_panels(len(panels), height=3.3 if is_alone else 2.3, legend=labels)
    num_lines = sum(len(panel.names) for panel, _ in panels)
    _draw_grey(frames[0], sample_evenly(curves[_MAX_CURVES:], _MAX_GREY_CURVES))
    for axes, (panel, lines) in zip(frames, panels, strict=True):
        for place, line in enumerate(lines):
            for rank, curve in enumerate(line):
                if curve is not None:
                    is_named = axes is frames[0] and place == 0
                    _draw_curve(
                        axes, curve.thinned(_MAX_POINTS // num_lines), labels[rank] if is_named else "", rank, place
                    )
        set_integer_ticks(axes)
        set_number_scale(axes, "y")
        axes.set_xlabel(_counted([curve for line in lines for curve in line if curve is not None]))
        if is_alone and len(panel.names) == 1:
            axes.set_ylabel(panel.title)
        else:
            axes.set_title(
                wrapped(panel.title, _TITLE_CHARACTERS if not is_alone else 2 * _TITLE_CHARACTERS),
                fontsize="small",
                loc="left",
            )
    best = curves[0]
    frames[0].plot(
        best.numbers[-1:], best.values[-1:], "*", color=series_style(0).colour, markersize=12, clip_on=False, zorder=5
    )
    if any(labels):
        add_legend_below(figure)
    return figure


def _draw_curve(axes: "Axes", curve: _Curve, label: str, rank: int, place: int) -> None:
    """Draw the metric at this place of its panel, of the cell with this rank; the first one has marks and bands."""
    colour, marker, _ = series_style(rank)
    zorder = 3 - rank / _MAX_CURVES - place  # better curves cover worse ones
    if curve.num_seeds > 1 and place == 0:
        axes.fill_between(curve.numbers, curve.lows, curve.highs, color=colour, alpha=0.2, linewidth=0, zorder=0.5)
    alpha = _PRUNED_ALPHA if curve.is_pruned else 1.0
    (line,) = axes.plot(
        curve.numbers, curve.values, label=label, color=colour, linestyle=DASHES[place], zorder=zorder, alpha=alpha
    )
    if place == 0:
        line.set(marker=marker, markersize=4, markevery=max(1, len(curve.numbers) // _MAX_MARKERS))
    line.set_linewidth(2.6 if rank == 0 and place == 0 else 1.3 if place == 0 else 1.0)


def _draw_grey(axes: "Axes", curves: Sequence[_Curve]) -> None:
    """Draw all grey curves as one line with gaps, which takes much less time than a line for each."""
    if not curves:
        return
    limit = max(2, _MAX_GREY_POINTS // len(curves))
    thinned = [curve.thinned(limit) for curve in curves]
    gap = (math.nan,)
    xs = list(itertools.chain.from_iterable((*curve.numbers, *gap) for curve in thinned))
    ys = list(itertools.chain.from_iterable((*curve.values, *gap) for curve in thinned))
    axes.plot(xs, ys, color=GREY, alpha=0.35, linewidth=0.8)

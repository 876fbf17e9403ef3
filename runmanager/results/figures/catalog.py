"""The list of a sweep's figures, most informative first."""

from collections.abc import Sequence
from functools import partial
from typing import TYPE_CHECKING

from runmanager.records.storage.reader import SweepContents
from runmanager.results.compare.comparison_table import ComparisonTable
from runmanager.results.figures.axes import set_number_scale
from runmanager.results.figures.figure import SweepFigure, numbered_names
from runmanager.results.figures.learning_curves import learning_curve_figures
from runmanager.results.figures.paired_rounds import Rounds, round_figures
from runmanager.results.figures.parallel_coordinates import parallel_figures
from runmanager.results.figures.phase_bars import phase_figures
from runmanager.results.figures.speedups import speedup_figures
from runmanager.results.figures.style import GREY, add_legend_below, label_text, new_figure, series_style
from runmanager.results.figures.throughput import throughput_figures
from runmanager.results.figures.throughput_by_axis import throughput_by_axis_figures
from runmanager.results.findings.crossover import Crossover, crossover_lines
from runmanager.results.table_model.columns import Table
from runmanager.results.table_model.formatting import number
from runmanager.results.tables.seeds import without_shorter_runs

__all__ = ["sweep_figures"]


def sweep_figures(
    sweep: SweepContents,
    *,
    results: Table,
    comparison: ComparisonTable,
    crossovers: Sequence[Crossover] = (),
    rounds: Sequence[Rounds] = (),
) -> list[SweepFigure]:
    """The figures with data, each with a unique name; a figure is drawn when it is saved or shown.

    `results` has one row per run, `comparison` one row per matched pair; runs that a longer one continues are left out,
    as in the tables.
    """
    results, comparison = without_shorter_runs(results), without_shorter_runs(comparison)
    runs = {run.record.name: run for run in sweep.runs}
    return [
        *speedup_figures(comparison),
        *round_figures(rounds),
        *_crossover_figures(crossovers),
        *throughput_by_axis_figures(runs, results),
        *throughput_figures(runs, results),
        *phase_figures(results),
        *learning_curve_figures(runs, results),
        *parallel_figures(results, sweep.runs),
    ]


if TYPE_CHECKING:
    from matplotlib.figure import Figure


_MAX_CROSSOVERS = 6


def _crossover_figures(found: Sequence[Crossover]) -> list[SweepFigure]:
    """A figure for each of the first few crossovers whose sides can be told apart."""
    drawable = [crossover for crossover in found if not crossover.is_too_close][:_MAX_CROSSOVERS]
    names = numbered_names("crossover", drawable)
    return [_figure(name, crossover) for name, crossover in zip(names, drawable, strict=True)]


def _figure(name: str, found: Crossover) -> SweepFigure:
    (line,) = crossover_lines([found])
    caption = (
        f"{line} Points are geometric means over runs; a band reaches from the last point where one side is surely "
        "ahead to the first one where the other is."
    )
    return SweepFigure(name, f"Crossover along {found.along}", caption, _description(found), partial(_draw, found))


def _description(found: Crossover) -> str:
    metric = found.metric.replace("_", " ")
    ends = [
        f"{label} goes from {number(values[0])} to {number(values[-1])} {metric}"
        for label, values in zip(found.labels, found.curves, strict=True)
    ]
    return f"From {found.along} {number(found.xs[0])} to {number(found.xs[-1])} {' and '.join(ends)}."


def _draw(found: Crossover) -> "Figure":
    figure, axes = new_figure(height=3.6)
    for index, (label, values) in enumerate(zip(found.labels, found.curves, strict=True)):
        style = series_style(index)
        axes.plot(found.xs, values, marker=style.marker, color=style.colour, label=label_text(label))
    for crossing in found.crossings:
        axes.axvspan(crossing.low, crossing.high, color=GREY, alpha=0.3, linewidth=0)
        axes.axvline(crossing.at, color=GREY, linestyle="dotted")
    set_number_scale(axes, "x", log=True)
    set_number_scale(axes, "y", log=True)
    axes.set_xlabel(label_text(found.along))
    axes.set_ylabel(found.metric.replace("_", " "))
    add_legend_below(figure)
    return figure

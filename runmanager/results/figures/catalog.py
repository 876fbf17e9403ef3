"""Which figures a sweep has, in the order in which they answer."""

from collections.abc import Sequence

from runmanager.records.storage.reader import SweepContents
from runmanager.results.compare.comparison_table import ComparisonTable
from runmanager.results.figures.crossovers import crossover_figures
from runmanager.results.figures.figure import Drawn
from runmanager.results.figures.learning_curves import learning_curves
from runmanager.results.figures.paired_rounds import rounds_figures
from runmanager.results.figures.parallel_coordinates import parallel_figure
from runmanager.results.figures.phase_bars import phases_figure
from runmanager.results.figures.speedups import speedups_figure
from runmanager.results.figures.throughput import throughput_figure
from runmanager.results.figures.throughput_by_axis import throughput_by_axis
from runmanager.results.findings.crossover import Crossover
from runmanager.results.findings.paired_rounds import Rounds
from runmanager.results.model.columns import Table

__all__ = ["figures_of"]


def figures_of(
    sweep: SweepContents,
    *,
    results: Table,
    comparison: ComparisonTable,
    crossovers: Sequence[Crossover] = (),
    rounds: Sequence[Rounds] = (),
) -> list[Drawn]:
    """The figures that have something to show, each with a name of its own; none is drawn yet.

    `results` and `comparison` are the sweep's tables, a row a run and a row a matched pair.
    """
    runs = {run.record.name: run for run in sweep.runs}
    return [
        *speedups_figure(comparison),
        *rounds_figures(rounds),
        *crossover_figures(crossovers),
        *throughput_by_axis(runs, results),
        *throughput_figure(runs, results),
        *phases_figure(results),
        *learning_curves(runs, results),
        *parallel_figure(results),
    ]

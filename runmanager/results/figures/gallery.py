"""Which figures a sweep has, in the order in which they answer."""

from collections.abc import Sequence

from runmanager.records.store import SweepContents
from runmanager.results.columns import Table
from runmanager.results.crossover import Crossover
from runmanager.results.figures.by_axis import throughput_by_axis
from runmanager.results.figures.crossovers import crossover_figures
from runmanager.results.figures.curves import learning_curves
from runmanager.results.figures.figure import Drawn
from runmanager.results.figures.parallel import parallel_figure
from runmanager.results.figures.phases import phases_figure
from runmanager.results.figures.rounds import rounds_figures
from runmanager.results.figures.speedups import speedups_figure
from runmanager.results.figures.throughput import throughput_figure
from runmanager.results.rounds import Rounds

__all__ = ["figures_of"]


def figures_of(
    sweep: SweepContents,
    *,
    results: Table,
    comparison: Table,
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

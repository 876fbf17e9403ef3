"""The list of a sweep's figures, most informative first."""

from collections.abc import Sequence

from runmanager.records.storage.reader import SweepContents
from runmanager.results.compare.comparison_table import ComparisonTable
from runmanager.results.figures.crossovers import crossover_figures
from runmanager.results.figures.figure import SweepFigure
from runmanager.results.figures.learning_curves import learning_curve_figures
from runmanager.results.figures.paired_rounds import round_figures
from runmanager.results.figures.parallel_coordinates import parallel_figures
from runmanager.results.figures.phase_bars import phase_figures
from runmanager.results.figures.speedups import speedup_figures
from runmanager.results.figures.throughput import throughput_figures
from runmanager.results.figures.throughput_by_axis import throughput_by_axis_figures
from runmanager.results.findings.crossover import Crossover
from runmanager.results.findings.paired_rounds import Rounds
from runmanager.results.table_model.columns import Table
from runmanager.results.tables.omitted_rows import without_shorter_runs

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
        *crossover_figures(crossovers),
        *throughput_by_axis_figures(runs, results),
        *throughput_figures(runs, results),
        *phase_figures(results),
        *learning_curve_figures(runs, results),
        *parallel_figures(results, sweep.runs),
    ]

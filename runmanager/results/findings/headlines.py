"""The findings of a sweep in sentences, the answer first, for the report and TensorBoard."""

from collections.abc import Sequence

from runmanager.errors import UsageError
from runmanager.records.storage.reader import SweepContents
from runmanager.records.sweep.sweep_record import SweepRecord
from runmanager.results.compare.comparison_table import ComparisonTable
from runmanager.results.findings.answer_sentences import answers, best_row
from runmanager.results.findings.best import find_best
from runmanager.results.findings.best_text import best_sentences
from runmanager.results.findings.crossover import Crossover, crossover_lines
from runmanager.results.table_model.columns import Table

__all__ = ["headlines"]

_MAX_CROSSOVERS = 3  # the comparison lists all


def headlines(
    sweep: SweepContents,
    plan: SweepRecord | None,
    *,
    results: Table,
    comparison: ComparisonTable,
    crossovers: Sequence[Crossover] = (),
) -> list[str]:
    """Return the answers, with the certainty of the best cell, then the first crossovers, and how the runs ended."""
    *found, count = answers(results, comparison, runs=sweep.runs, of_the_best=_certainty(sweep, plan, results))
    crossing = [each for each in crossovers if each.crossings][:_MAX_CROSSOVERS]
    return [*found, *crossover_lines(crossing), count]


def _certainty(sweep: SweepContents, plan: SweepRecord | None, results: Table) -> list[str]:
    """Describe how sure it is that the best cell is the best, where there are others."""
    found = best_row(results, sweep.runs)
    if found is None:
        return []
    try:
        best = find_best(sweep, plan, metric=found.outcome.name)
    except UsageError:  # some finished run of every cell lacks the metric
        return []
    if float(best.value) != float(found.value):
        return []  # another cell: some finished run of the answered one lacks the metric
    # The answer itself counts ties.
    return [" ".join(best_sentences(best))] if best.runner_up and not best.num_ties else []

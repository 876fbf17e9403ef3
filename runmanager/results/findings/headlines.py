"""What a sweep found, in sentences, the answer first: as the report and TensorBoard say it."""

from collections.abc import Sequence

from runmanager.errors import UsageError
from runmanager.records.storage.reader import SweepContents
from runmanager.records.sweep.record import SweepRecord
from runmanager.results.compare.comparison_table import ComparisonTable
from runmanager.results.findings.answers import answers, best_row
from runmanager.results.findings.best import find_best
from runmanager.results.findings.best_text import best_sentences
from runmanager.results.findings.crossover import Crossover, crossover_lines
from runmanager.results.model.columns import Table

__all__ = ["headlines"]

_MOST_CROSSINGS = 3  # the comparison has them all


def headlines(
    sweep: SweepContents,
    plan: SweepRecord | None,
    *,
    results: Table,
    comparison: ComparisonTable,
    crossovers: Sequence[Crossover] = (),
) -> list[str]:
    """The answers, with how sure it is which cell is best, and the first crossings; last, how the runs ended."""
    *found, count = answers(results, comparison, of_the_best=_certainty(sweep, plan, results))
    crossed = [each for each in crossovers if each.crossings][:_MOST_CROSSINGS]
    return [*found, *crossover_lines(crossed), count]


def _certainty(sweep: SweepContents, plan: SweepRecord | None, results: Table) -> list[str]:
    """How sure it is that the best cell is the best, where there are others."""
    found = best_row(results)
    if found is None:
        return []
    try:
        best = find_best(sweep, plan, metric=found[0])
    except UsageError:  # in every cell a finished run is without the metric
        return []
    if float(best.value) != float(found[1][found[0]]):
        return []  # of another cell: the one that is answered has a finished run without the metric
    # Of ties the answer itself says how many there are.
    return [" ".join(best_sentences(best))] if best.runner_up and not best.num_ties else []

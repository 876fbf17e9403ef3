"""The answers in a sentence or two each: is the candidate faster, which settings are best, did everything run."""

import math
from collections import Counter
from collections.abc import Sequence

from runmanager.records.run.status import Status
from runmanager.results.compare.comparison_table import ComparisonRow, ComparisonTable
from runmanager.results.compare.side import label_of
from runmanager.results.findings.comparison_findings import (
    caution_text,
    comparison_answers,
    location_text,
    named_settings,
    stand_in_answer,
    without_contention,
)
from runmanager.results.model.columns import OUTCOMES, Row, Table, prefers_larger
from runmanager.results.model.formatting import human
from runmanager.results.tables.seeds import SEEDS, collapse_seeds
from runmanager.text import pluralize

__all__ = [
    *("answers", "best_row", "duel_answers", "duel_rates", "finished_cells"),
]


def answers(results: Table, comparison: ComparisonTable, *, of_the_best: Sequence[str] = ()) -> list[str]:
    """Readable sentences from a results table and a comparison, the same wherever they are said.

    First what was found by measuring, along an axis that stands in for the device after the best settings; then what
    could not be compared, and how the runs ended. `of_the_best` are sentences to follow that on the best settings.
    """
    asked, stand_ins = ([row for row in comparison.rows if row.is_stand_in is is_it] for is_it in (False, True))
    found, missing = comparison_answers(asked, comparison)
    best = _best_answer(results)
    return [
        *(*found, *best, *(of_the_best if best else ())),
        *(*stand_in_answer(stand_ins, comparison), *missing, _count_answer(results)),
    ]


def duel_answers(comparison: ComparisonTable) -> list[str]:
    """One sentence for each pair that was measured side by side: its speedup, the interval, and the verdict."""
    return [_duel_answer(row, comparison) for row in comparison.rows]


def duel_rates(comparison: ComparisonTable) -> list[str]:
    """What each side of each pair did in its turns, a line a side: the samples a second that its speedup is made of."""
    lines: dict[str, None] = {}
    for row in comparison.rows:
        for side in ("baseline", "candidate"):
            if (rate := row[f"{side}_samples_per_second"]) is not None:
                label = label_of(row["axis"], row[side])
                said = f"{label}{location_text(row, comparison)}: {human(rate, 'samples_per_second')} samples a second"
                lines[said] = None
    return list(lines)


def _duel_answer(row: ComparisonRow, comparison: ComparisonTable) -> str:
    candidate, baseline = (label_of(row["axis"], row[side]) for side in ("candidate", "baseline"))
    where = location_text(row, comparison)
    if row.effect is None:
        return f"{candidate} and {baseline} could not be compared{where}: {without_contention(row['reason'])}."
    ratio, low, high = (f"{row[name]:.3f}" for name in ("speedup", "ci_low", "ci_high"))
    said = f"{candidate} is {ratio} times as fast as {baseline}{where} (95% interval {low} to {high}): {row['verdict']}"
    pairs = pluralize(row.effect.num_process_pairs, "pair")
    return f"{said}, after {row['candidate_epochs']} rounds side by side in {pairs} of processes.{caution_text([row])}"


def best_row(results: Table) -> tuple[str, Row, Table] | None:
    """The metric by which a cell is best, the row of that cell, and the table of all cells, seeds together."""
    cells = collapse_seeds(results)
    finished = finished_cells(cells)
    for metric in OUTCOMES:
        known = [row for row in finished if row[metric] is not None and math.isfinite(row[metric])]
        if known:
            return metric, (max if prefers_larger(metric) else min)(known, key=lambda row: row[metric]), cells
    return None


def finished_cells(cells: Table) -> list[Row]:
    """The rows, of runs or of cells, that have a finished run."""
    return [row for row in cells.rows if row.values.get(SEEDS) or row["status"] == Status.FINISHED]


def _best_answer(results: Table) -> list[str]:
    found = best_row(results)
    if found is None:
        return []
    metric, best, cells = found
    settings = named_settings(best, cells)
    ties = sum(row[metric] == best[metric] for row in finished_cells(cells)) - 1
    others = pluralize(ties, "other cell" if SEEDS in best.values else "other run")
    also = f", and {others} reached the same" if ties else ""
    said = f" with {settings}" if settings else ""
    over = f" over {best[SEEDS]} seeds" if best.values.get(SEEDS, 1) > 1 else ""
    return [f"The best {metric} is {human(best[metric], metric)}{over}{said}{also}."]


def _count_answer(results: Table) -> str:
    counts = Counter(row["status"] for row in results.rows)
    order = sorted(Status, key=lambda status: (not status.is_ended, not status.is_success))
    total = len(results.rows) + results.num_unread
    said = [f"{counts[status]:,} {status.value}" for status in order if counts[status]]
    if results.num_unread:
        said.append(f"{results.num_unread:,} not read")
    return f"{pluralize(total, 'run')}: {', '.join(said)}." if total else "No runs yet."

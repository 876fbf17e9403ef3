"""Answers in a sentence or two each: is the candidate faster, which settings are best, did everything run."""

import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

from runmanager.records.files.paths import SweepPaths
from runmanager.records.run.status import Status, is_complete
from runmanager.records.storage.reader import StoredRun
from runmanager.records.sweep.lookup import typed_name
from runmanager.results.compare.comparison_side import label_of
from runmanager.results.compare.comparison_table import ComparisonRow, ComparisonTable
from runmanager.results.compare.verdict import INCONCLUSIVE
from runmanager.results.findings.comparison_findings import (
    caution_text,
    comparison_answers,
    location_text,
    named_settings,
    stand_in_answer,
    without_contention,
)
from runmanager.results.findings.outcomes import RANKED_BY_SHARED_SEEDS, Outcome, outcomes
from runmanager.results.findings.shared_files import shared_file_lines
from runmanager.results.metrics.metric_lookup import printed_notes, undirected_names
from runmanager.results.table_model.columns import Row, Table
from runmanager.results.table_model.formatting import human
from runmanager.results.tables.seeds import SEEDS, collapse_seeds, seed_groups
from runmanager.text import in_backticks, pluralize, shell_join

_MAX_NAMES = 3


def answers(
    results: Table,
    comparison: ComparisonTable,
    *,
    runs: Sequence[StoredRun] = (),
    of_the_best: Sequence[str] = (),
    metric: str | None = None,
    better: str | None = None,
) -> list[str]:
    """Answer the questions about a sweep from its results table, its comparison and the `runs` of the table.

    The order is: comparisons, the best settings, a stand-in axis, which was not requested, what could not
    be compared, files that several runs wrote, how the runs ended. `of_the_best` are sentences that follow the one on
    the best settings, which is that by `metric`, if the runs recorded it, in the direction `better`, if that is given.
    """
    requested = [row for row in comparison.rows if not row.is_stand_in]
    stand_ins = [row for row in comparison.rows if row.is_stand_in]
    found, missing = comparison_answers(requested, comparison)
    best = _best_answer(results, runs, metric, better)
    return [
        *found,
        *best,
        *(of_the_best if best else ()),
        *([] if best and of_the_best and _is_of_the_next(stand_ins) else stand_in_answer(stand_ins, comparison)),
        *missing,
        *shared_file_lines(runs),
        _count_answer(results),
    ]


def _is_of_the_next(stand_ins: Sequence[ComparisonRow]) -> bool:
    """Whether a stand-in axis has one pair, by an outcome: the sentences on the best cell have told that difference."""
    measured = [row for row in stand_ins if row.effect is not None]
    return len(measured) == 1 and measured[0].metric.effect != "speedup"


def duel_answers(comparison: ComparisonTable) -> list[str]:
    """Describe each pair that was measured side by side: its speedup, the interval, and the verdict."""
    return [_duel_answer(row, comparison) for row in comparison.rows]


def duel_rates(comparison: ComparisonTable) -> list[str]:
    """Describe the rate of each side of each pair in samples a second, a line a side."""
    lines: dict[str, None] = {}
    for row in comparison.rows:
        for side in ("baseline", "candidate"):
            if (rate := row[f"{side}_samples_per_second"]) is not None:
                label = label_of(row["axis"], row[side])
                rate_text = human(rate, "samples_per_second")
                lines[f"{label}{location_text(row, comparison)}: {rate_text} samples per second"] = None
    return list(lines)


def _duel_answer(row: ComparisonRow, comparison: ComparisonTable) -> str:
    candidate, baseline = (label_of(row["axis"], row[side]) for side in ("candidate", "baseline"))
    location = location_text(row, comparison)
    if row.effect is None:
        return f"{candidate} and {baseline} could not be compared{location}: {without_contention(row['reason'])}."
    ratio, low, high = (f"{row[name]:.3f}" for name in ("speedup", "ci_low", "ci_high"))
    text = f"{candidate} is {ratio} times as fast as {baseline}{location} (95% interval {low} to {high})"
    pairs = pluralize(row.effect.num_process_pairs, "pair")
    rounds = f"after {row['candidate_epochs']} rounds side by side in {pairs} of processes"
    lacking = f" {row.effect.lacking}" if row.effect.lacking and row["verdict"] == INCONCLUSIVE else ""
    return f"{text}: {row['verdict']}, {rounds}.{caution_text([row])}{lacking}"


@dataclass(frozen=True)
class BestRow:
    """The row of the best cell with its value of the outcome, in the table of all `cells`, seeds together.

    `equally_good` are the rows of the finished cells with the same value, this one included. `num_left_out` cells have
    the outcome in some of their finished runs only. `is_by_shared_seeds`: another cell has a better value, but of
    other seeds; by those that they share it is behind.
    """

    outcome: Outcome
    value: float
    row: Row
    cells: Table
    equally_good: Sequence[Row]
    num_left_out: int = 0
    is_by_shared_seeds: bool = False


def best_row(
    results: Table, runs: Sequence[StoredRun] = (), *, metric: str | None = None, better: str | None = None
) -> BestRow | None:
    """Return the best finished cell by `metric` in the direction `better`, else by the first outcome that one has.

    None where none finished with a result.
    """
    cells = collapse_seeds(results)
    finished = finished_cells(cells)
    seeds = {rows[0]["run"]: rows for rows in seed_groups(results)}
    for outcome in outcomes(results, runs, requested=metric, better=better):
        values = ((outcome.of_cell(seeds[row["run"]]), row) for row in finished)
        known = [(value, row) for value, row in values if value is not None and math.isfinite(value)]
        if known:
            shared = outcome.levels([seeds[row["run"]] for _, row in known], results.seeds)
            levels = [float(value) for value, _ in known] if shared is None else shared
            level = (max if outcome.metric.more_is_better else min)(levels)
            value, row = known[levels.index(level)]
            equally_good = [row for each, (_, row) in zip(levels, known, strict=True) if each == level]
            num_left_out = sum(outcome.is_partial(seeds[each["run"]]) for each in finished)
            is_by_shared_seeds = value != (max if outcome.metric.more_is_better else min)(each for each, _ in known)
            return BestRow(outcome, value, row, cells, equally_good, num_left_out, is_by_shared_seeds)
    return None


def finished_cells(cells: Table) -> list[Row]:
    """Return the rows, of runs or of cells, that have a finished run."""
    return [row for row in cells.rows if row.values.get(SEEDS) or is_complete(row["status"], row["reason"])]


def _best_answer(results: Table, runs: Sequence[StoredRun], metric: str | None, better: str | None) -> list[str]:
    best = best_row(results, runs, metric=metric, better=better)
    if best is None:
        return _undirected_answer(runs)
    settings = named_settings(best.row, best.cells)
    ties = len(best.equally_good) - 1
    others = pluralize(ties, "other cell" if SEEDS in best.row.values else "other run")
    also = f", and {others} reached the same" if ties else ""
    where = f" with {settings}" if settings else ""
    over = f" over {best.row[SEEDS]} seeds" if best.row.values.get(SEEDS, 1) > 1 else ""
    chosen = best.outcome.metric
    text = f"The best {chosen.name} is {chosen.format_value(best.value)}{over}{where}{also}."
    if best.num_left_out:
        left_out = pluralize(best.num_left_out, "other cell is", "other cells are")
        text += f" {left_out} left out, as not every finished run there has one."
    if best.is_by_shared_seeds:
        text += f" {RANKED_BY_SHARED_SEEDS}"
    return [text, *printed_notes(chosen.name, runs)]


def _undirected_answer(runs: Sequence[StoredRun]) -> list[str]:
    """Say how cells can be ranked where the names of all recorded metrics leave open which is better."""
    finished = [run for run in runs if run.is_complete]
    names = undirected_names(finished)
    if not names:
        return []
    which = f"{names[0]}" if len(names) == 1 else f"{', '.join(names[:_MAX_NAMES])}{' …' if names[_MAX_NAMES:] else ''}"
    sweep = typed_name(SweepPaths(finished[0].paths.root.parents[1]))
    command = in_backticks(shell_join(["runmanager", "best", sweep, "--metric", names[0], "--better", "max"]))
    ways = f"{command}, or `min`, ranks by {'it' if len(names) == 1 else names[0]}"
    return [f"No cell is ranked, as it is not known whether more or less {which} is better: {ways}."]


def _count_answer(results: Table) -> str:
    counts = Counter(row["status"] for row in results.rows)
    order = sorted(Status, key=lambda status: (not status.is_ended, not status.is_success))
    total = len(results.rows) + results.num_unread
    parts = [f"{counts[status]:,} {status.value}" for status in order if counts[status]]
    if results.num_unread:
        parts.append(f"{results.num_unread:,} not read")
    return f"{pluralize(total, 'run')}: {', '.join(parts)}." if total else "No runs yet."

"""Answers in a sentence or two each: is the candidate faster, which settings are best, did everything run.

Some are about files outside the run folders: one run may have read what another left there. Nothing on disk says who
wrote a file: only when it changed last, and which runs lived then. No single run lived at all changes of a file: then
several have written it. Where one did, and others beside it, each of them may have.
"""

import math
import re
from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from runmanager.records.files.paths import SweepPaths
from runmanager.records.run.attempts import process_spans
from runmanager.records.run.program_report import ProgramKind, kind_of_program
from runmanager.records.run.run_record import RunRecord
from runmanager.records.run.status import Status, is_complete
from runmanager.records.settings.values import differing_settings
from runmanager.records.storage.reader import StoredRun
from runmanager.records.sweep.lookup import typed_name
from runmanager.results.compare.comparison_table import ComparisonRow, ComparisonTable, label_of
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
from runmanager.results.metrics.metric_lookup import printed_notes, undirected_names
from runmanager.results.table_model.columns import Row, Table
from runmanager.results.table_model.formatting import human
from runmanager.results.tables.shown_rows import SEEDS, collapse_seeds, seed_groups
from runmanager.text import format_value, in_backticks, pluralize, printable_line, shell_join

_MAX_TIMES = 8  # of one file that are compared with the runs
_MAX_NAMED = 5


@dataclass
class _Changes:
    """When a file changed, and the places of the runs that saw it, in the list of all."""

    times: set[float] = field(default_factory=set)
    seen_by: list[int] = field(default_factory=list)


def shared_file_lines(runs: Sequence[StoredRun], *, of: StoredRun | None = None) -> list[str]:
    """Return a line for the files of each folder that several runs have written, and one for those that they may have.

    `of`: only files that this run saw change.
    """
    folders: dict[str, dict[str, _Changes]] = {}
    for place, run in enumerate(runs):
        if outside := run.record.outside:
            for name, times in outside.files.items():
                changes = folders.setdefault(outside.folder, {}).setdefault(name, _Changes())
                changes.times.update(times)
                changes.seen_by.append(place)
    own = of.record.outside if of is not None else None
    lines: list[str] = []
    for folder, files in folders.items():
        several = {
            name: each for name, each in files.items() if len(each.seen_by) > 1 and (not own or name in own.files)
        }
        if several:
            lines += _lines_of_folder(folder, several, runs, numbered=_one_of_each(files))
    return lines


def _lines_of_folder(
    folder: str, files: Mapping[str, _Changes], runs: Sequence[StoredRun], *, numbered: Collection[str]
) -> Iterator[str]:
    spans = [_spans(run) for run in runs]
    certain, possible = [], []
    for name, changes in files.items():
        times = sorted(changes.times)
        times = times[:: -(-len(times) // _MAX_TIMES)] + times[-1:]
        living = [{place for place, lives in enumerate(spans) if _lived(lives, time)} for time in times]
        living = [each for each in living if each]  # else just before the first of them began
        if living and not set.intersection(*living):
            certain.append(name)
        elif any(len(each) > 1 for each in living):
            possible.append(name)
    settings = [run.record.settings for run in runs]
    values = {format_value(each.get(name)) for name in differing_settings(settings) for each in settings}
    shared = [name for name in possible if _pattern(name) not in numbered and not _has_a_value(name, values)]
    record = runs[next(iter(files.values())).seen_by[-1]].record
    if certain:
        yield f"Several runs wrote {_listed(certain, folder)}: one may have read what another left. {_way_out(record)}"
    if shared:
        yield f"Runs that ran together may all have written {_listed(shared, folder)}. {_way_out(record)}"


def _spans(run: StoredRun) -> list[tuple[float, float]]:
    """When a run's processes may have lived; of attempts whose files were moved aside only the end is known."""
    spans = [(start, end) for _, start, end in process_spans(run.record, run.epochs, run.beat)]
    return [(-math.inf, spans[0][0]), *spans] if spans and run.record.attempt > len(spans) else spans


def _lived(lives: Sequence[tuple[float, float]], time: float) -> bool:
    return any(start <= time <= end for start, end in lives)


def _has_a_value(name: str, values: Collection[str]) -> bool:
    """Whether a path has a swept value, and so says which run it is of."""
    return any(re.search(rf"(?<![\d.]){re.escape(value)}(?!\.?\d)", name) for value in values if value)


def _one_of_each(files: Mapping[str, _Changes]) -> set[str]:
    """The patterns of names with a number of which there is a file for each run that saw one change."""
    names: Counter[str] = Counter(map(_pattern, files))
    seen_by: dict[str, set[int]] = {}
    for name, changes in files.items():
        seen_by.setdefault(_pattern(name), set()).update(changes.seen_by)
    return {pattern for pattern, number in names.items() if number >= len(seen_by[pattern]) > 1 and "#" in pattern}


def _pattern(name: str) -> str:
    return re.sub(r"\d+", "#", name)


def _listed(names: Sequence[str], folder: str) -> str:
    shown = ", ".join(printable_line(name) for name in sorted(names)[:_MAX_NAMED])
    more = f" and {len(names) - _MAX_NAMED:,} more" if len(names) > _MAX_NAMED else ""
    return f"{shown}{more} in {printable_line(folder)}"


def _way_out(record: RunRecord) -> str:
    """How a program is told to write into its run folder, as far as it is known."""
    words = record.cell_command or ()
    ways = [in_backticks(record.outside.argument)] if record.outside and record.outside.argument else []
    if not any(word == "--chdir" or word.startswith("hydra.job.chdir=") for word in words):
        is_script = kind_of_program(record) is ProgramKind.SCRIPT
        ways.insert(0, "`--chdir`" if is_script else "`--chdir` (`hydra.job.chdir=true`)")
    way = f"With {' or '.join(ways)}" if ways else "With paths that hold `{run_dir}`"
    return f"{way}, in a new sweep, each writes into its run folder."


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

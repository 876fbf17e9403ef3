"""The comparison table: one row a matched pair, with its effect, interval, verdict and reason."""

import dataclasses
from collections.abc import Iterator, Sequence
from typing import Any

from runmanager.records.storage.reader import SweepContents
from runmanager.records.sweep.lookup import typed_name
from runmanager.records.sweep.sweep_record import SweepRecord
from runmanager.results.compare.cell_pairing import Axis, varying_axes
from runmanager.results.compare.comparison_table import CompareOptions, ComparisonRow, ComparisonTable
from runmanager.results.compare.matched_pairs import Match, Matches, match_sides, paired_axes
from runmanager.results.compare.sweep_question import with_metric_of_sweep
from runmanager.results.compare.verdict import INCONCLUSIVE, NO_DIFFERENCE, Judgement, judge
from runmanager.results.load.cells import continued_runs
from runmanager.results.load.contention import causes_by_run
from runmanager.results.load.run_summary import damage_notes
from runmanager.results.metrics.metric import BATCH_SIZE, LAST, THROUGHPUT, Metric
from runmanager.results.table_model.columns import Directions, column_of, setting_name
from runmanager.text import in_backticks, shell_join


def compare(sweep: SweepContents, plan: SweepRecord | None, options: CompareOptions | None = None) -> ComparisonTable:
    """Compare each value of the axis with the baseline, all other settings but the seed equal: comparison.csv.

    The speedup is candidate throughput / baseline throughput. Runs that differ in the seed alone are one side. A pair
    that cannot be compared is a row too: `not measured`, with its reason. For metrics other than the throughput the
    columns are `Metric.columns`. Along `any` axis the rows follow axis by axis, and a row has no value for the setting
    that it compares. Rows along a stand-in axis are for people only; files do not have them.

    Raises `UsageError` for an axis, a baseline or a metric that the sweep does not have, and for invalid options.
    """
    options = options or CompareOptions()
    return compare_matches(sweep, match_sides(sweep, plan, options).without_stand_in(), options)


def compare_with_stand_in(
    sweep: SweepContents, plan: SweepRecord | None, options: CompareOptions | None = None
) -> ComparisonTable:
    """Compare like `compare`, and along a stand-in axis where that gives no answer: the table for people.

    Without options it is by the metric that the sweep asks about (`with_metric_of_sweep`).
    """
    options = options or with_metric_of_sweep(sweep, plan)
    return compare_matches(sweep, match_sides(sweep, plan, options), options)


def compare_matches(sweep: SweepContents, matches: Matches, options: CompareOptions) -> ComparisonTable:
    """Compare pairs that are matched already, those along a stand-in axis included."""
    settings = {name: column_of(name) for name in matches.names}
    judged = judged_pairs(sweep, matches, options)
    continued = continued_runs(sweep.runs)
    rows = [_row(match, found, settings, matches) for match, found in zip(matches.pairs, judged, strict=True)]
    rows = (
        [
            dataclasses.replace(row, is_continued=_is_continued(match, continued))
            for row, match in zip(rows, matches.pairs, strict=True)
        ]
        if continued
        else rows
    )
    varying = [column for name, column in settings.items() if name in (*matches.cells.telling, BATCH_SIZE)]
    scaling = _scaling_columns(matches)
    return ComparisonTable(
        columns=[*settings.values(), *matches.metric.columns, *scaling],
        rows=rows,
        settings=tuple(settings.values()),
        shown=(*varying, *_shown(matches), *scaling),
        notes=(
            *_nothing_to_compare(sweep, matches, options),
            *_contradictions(sweep, matches.metric),
            *damage_notes(sweep.damaged),
        ),
        legend=" ".join(
            [*_standing_in(sweep, matches, options), _legend(matches), *_verdicts(rows, matches.metric, options)]
        ),
        command=_commands(sweep, matches.axes[-1:], options) if matches.is_picked else "",
    )


def judged_pairs(sweep: SweepContents, matches: Matches, options: CompareOptions) -> list[Judgement]:
    """Judge matched pairs, each with its interval."""
    sides = [match.sides for match in matches.pairs]
    return judge(sides, causes_by_run(sweep.runs), options, among=matches.among)


def with_numbered_reasons(table: ComparisonTable) -> ComparisonTable:
    """Replace the reasons by numbered notes, for people: each reason is printed once, and the columns stay narrow.

    The column `note` replaces `reason`: `[1]`, and empty for a row without a reason.
    """
    numbers: dict[str, str] = {}
    for row in table.rows:
        if row["reason"] is not None:
            numbers.setdefault(row["reason"], f"[{len(numbers) + 1}]")
    return dataclasses.replace(
        table,
        rows=[
            dataclasses.replace(row, values=row.values | {"note": numbers.get(row["reason"], "")}) for row in table.rows
        ],
        shown=tuple("note" if name == "reason" else name for name in table.shown if name != "reason" or numbers),
        notes=(*(f"{number} {reason}" for reason, number in numbers.items()), *table.notes),
    )


_RANKS = ("processes", "world_size")
_EFFICIENCY = "scaling_efficiency"  # speedup / ratio of the numbers of ranks

_PICKED = "the best epoch of each run was picked after looking, which flatters its value"


def _is_continued(match: Match, continued: frozenset[str]) -> bool:
    """Whether longer runs continue all runs of a pair, which then says what those say."""
    return all(cell.run in continued for side in match.sides for cell in side.cells)


def _picks_epochs(match: Match) -> bool:
    """Whether a value is that of a run's best epoch; a result of the whole run has none."""
    counted = ((side.metric, run) for side in match.sides for run, _ in side.measured)
    return any(
        metric.at != LAST and metric.epoch_of is not None and metric.epoch_of(run) is not None
        for metric, run in counted
    )


def _scaling_columns(matches: Matches) -> list[str]:
    along_ranks = any(match.axis.name in _RANKS for match in matches.pairs)
    return [_EFFICIENCY] if along_ranks and matches.metric == THROUGHPUT else []


def _row(match: Match, found: Judgement, settings: dict[str, str], matches: Matches) -> ComparisonRow:
    metric = matches.metric
    values: dict[str, Any] = {column: match.settings.get(name) for name, column in settings.items()}
    values |= dict.fromkeys((*metric.columns, *_scaling_columns(matches)))
    values |= {"axis": match.axis.name, "baseline": match.values[0], "candidate": match.values[1]}
    if metric != THROUGHPUT:
        values["metric"] = metric.name
    values |= zip(metric.value_columns, found.values, strict=True)
    values |= zip(metric.count_columns, found.counts, strict=True)
    values |= {"verdict": found.verdict, "reason": found.reason}
    if found.effect is not None:
        if _picks_epochs(match):
            values["reason"] = "; ".join([_PICKED, *filter(None, [found.reason])])
        estimate = found.effect.estimate
        values |= {metric.effect: estimate.value, "ci_low": estimate.low, "ci_high": estimate.high}
        if metric == THROUGHPUT and match.axis.name in _RANKS:
            values[_EFFICIENCY] = estimate.value * match.values[0] / match.values[1]
    return ComparisonRow(
        values,
        [column for name, column in settings.items() if name not in match.settings],
        metric=metric,
        effect=found.effect,
        is_stand_in=matches.is_stand_in(match),
        are_equal=found.are_equal,
    )


def _shown(matches: Matches) -> tuple[str, ...]:
    """Return the columns for people: the answer first, then what it rests on."""
    metric = matches.metric
    axis = ("axis",) if len(matches.axes) > 1 or matches.instead_of is not None else ()
    named = () if metric == THROUGHPUT else ("metric",)
    answer = ("candidate", "baseline", *named, metric.effect, "ci_low", "ci_high", "verdict")
    return (*axis, *answer, *metric.value_columns, "reason")


_INTERVALS = "all intervals hold jointly with 95% confidence."


def _legend(matches: Matches) -> str:
    metric = matches.metric
    in_turns = [all(side.in_turns for side in match.sides) for match in matches.pairs]
    if metric == THROUGHPUT and any(in_turns):
        others = "" if all(in_turns) else ", or of medians over epochs where there are none"
        return f"Speedup: candidate / baseline, samples per second in rounds side by side{others}; {_INTERVALS}"
    if metric == THROUGHPUT:
        return f"Speedup: candidate / baseline, samples per second without warm-up epochs; {_INTERVALS}"
    of_run = f"{metric.name} without warm-up epochs" if metric.per_epoch else metric.name
    if metric.at != LAST:
        of_run = f"{metric.name} at each run's best epoch"
    if metric.is_time:
        return f"Speedup: baseline / candidate, {of_run}; {_INTERVALS}"
    better = "more" if metric.more_is_better else "less"
    sign = "-" if metric.effect == "difference" else "/"
    of = f"{of_run} ({better} is better)"
    return f"{metric.effect.capitalize()}: candidate {sign} baseline, {of}; {_INTERVALS}"


def _verdicts(rows: Sequence[ComparisonRow], metric: Metric, options: CompareOptions) -> Iterator[str]:
    """Explain the verdicts among the rows that claim no difference."""
    margin, found = options.margin_of(metric.effect), {row["verdict"] for row in rows}
    if margin is not None and NO_DIFFERENCE in found:
        within = f"0 ± {margin:g}" if metric.effect == "difference" else f"1 ± {margin * 100:g}%"
        yield f"`no difference`: the interval is within {within}."
    if margin is None and INCONCLUSIVE in found:
        yield "`inconclusive`: the interval includes 0, and no `--margin` says what is negligible."
    elif INCONCLUSIVE in found:
        wide = "the interval" if metric.effect == "difference" else "the interval or the drift"
        yield f"`inconclusive`: not known, as {wide} is too wide."


def _standing_in(sweep: SweepContents, matches: Matches, options: CompareOptions) -> list[str]:
    """Explain the stand-in axis, and how to compare others."""
    if matches.instead_of is None:
        return []
    compared = matches.axes[-1]
    name = compared.name.removesuffix(".name") + (", along which the medians differ most" if matches.is_picked else "")
    if len(matches.axes) > 1:
        text = f"No two devices can be compared, so {name}{',' if matches.is_picked else ''} is compared as well"
    else:
        text = f"As {_only_value(matches.instead_of)}, what is compared is {name}"
    compared_names = (compared.name, matches.instead_of.name)
    others = [axis for axis in paired_axes(matches) if axis.name not in compared_names]
    commands = _commands(sweep, others, options)
    return [f"{text}{f'; what else varies is compared with {commands}' if commands else ''}."]


def _nothing_to_compare(sweep: SweepContents, matches: Matches, options: CompareOptions) -> list[str]:
    if matches.pairs:
        return []
    if not matches.axes:
        return ["Nothing to compare: no setting but the seed varies."]
    if commands := _commands(sweep, paired_axes(matches), options):
        varies = f"; what varies is compared with {commands}"
    else:
        varies = "; no two cells with runs differ in one setting alone" if varying_axes(matches.cells) else ""
    return [f"Nothing to compare: {_only_value(matches.axes[0])}{varies}."]


def _contradictions(sweep: SweepContents, metric: Metric) -> list[str]:
    """Describe contradictory declarations where the metric needs a direction."""
    return [] if metric.of_epoch is None else Directions.of_runs(sweep.runs).notes()


def _only_value(axis: Axis) -> str:
    if axis.values == [None]:
        return f"no run has a {axis.name}"
    return f"every run has {axis.name}={axis.values[0]}" if axis.values else "the sweep has no runs"


def _commands(sweep: SweepContents, axes: Sequence[Axis], options: CompareOptions) -> str:
    """The commands that compare along each of the axes as was asked; a baseline is of another axis."""
    call = ["runmanager", "compare", typed_name(sweep.paths)]
    metric = [] if options.metric == THROUGHPUT.name else ["--metric", options.metric]  # by itself lr asks for another
    names = [setting_name(axis.name) for axis in axes if axis.values]
    along = [dataclasses.replace(options, axis=name, baseline=None) for name in names]
    return " or ".join(in_backticks(shell_join([*call, *each.words(), *metric])) for each in along)

"""The best cell of a sweep by a metric, over its seeds, and which other cells cannot be distinguished from it."""

import dataclasses
import math
from collections.abc import Collection, Hashable, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from statistics import NormalDist
from typing import Any

from runmanager.errors import UsageError
from runmanager.records.run.measurement import OUTCOMES
from runmanager.records.settings.values import hashable
from runmanager.records.storage.reader import StoredRun, SweepContents
from runmanager.records.sweep.sweep_record import SweepRecord
from runmanager.results.compare.comparison_table import CompareOptions, MeasuredEffect, Side
from runmanager.results.compare.verdict import DIFFERENT, INCONCLUSIVE, NOT_MEASURED, Judgement, judge
from runmanager.results.load.cells import Cell, Cells, gather_cells
from runmanager.results.load.contention import causes_by_run
from runmanager.results.metrics.metric import LAST, At, Metric
from runmanager.results.metrics.metric_lookup import (
    any_direction,
    default_metrics,
    find_metric,
    finished_without_metrics,
    known_metrics,
    requested_metric,
    undirected_names,
)
from runmanager.results.stats.descriptive import levels_by_seed, make_sample, median
from runmanager.results.stats.effects import error_of_first
from runmanager.results.stats.noise_model import critical_value
from runmanager.results.table_model.columns import Directions, setting_name
from runmanager.results.table_model.formatting import Spread
from runmanager.text import format_value, printable_line
from runmanager.validation import fault

_ABSENT = object()
_MAX_NAMED = 10


@dataclass(frozen=True)
class RankedCell:
    """A cell with all its seeds; `side` has its finished runs and their values of the metric.

    `settings` are those in which the sweep's cells differ, without the seed and without settings that the cell lacks.
    """

    settings: dict[str, Any]
    side: Side

    @cached_property
    def spread(self) -> Spread:
        """The typical value of its runs, by which cells are ranked and compared, with their deviation and count."""
        return Spread.of([_run_median(values) for values in self.side.values], around=self.side.typical)

    @property
    def runs(self) -> list[tuple[StoredRun, float]]:
        """Its finished runs with their values, the best first."""
        pairs = [(run, _run_median(values)) for run, values in zip(self.side.finished, self.side.values, strict=True)]
        return sorted(pairs, key=lambda pair: pair[1], reverse=self.side.metric.more_is_better)

    @property
    def num_unfinished(self) -> int:
        return len(self.side.cells) - len(self.side.finished)


class NoMetricError(UsageError):
    """A question about a metric that no cell's finished runs have."""


@dataclass(frozen=True, repr=False)
class BestCell:
    """The winner among `num_cells` cells, the runner-up, and how sure the ranking is.

    `verdict`, `reason` and `effect` compare the two, winner as candidate: `not measured` where there are too few runs
    to tell. Every other cell is compared with the winner: `rivals` are those that may be the best as well, the best
    first, of which `num_decided_by_a_seed` would no longer be one if each cell had one more seed and its mean stayed;
    `unmeasured` are those with too few runs, or that cannot be compared. `undecided` are all of both that are not shown
    to differ from the winner by less than the margin. `selection_bias` is how much the winner's mean
    likely exceeds the truth, because the winner was picked after looking; None where the noise is not known. `num_ties`
    other cells have exactly the winner's mean; `num_left_out` have a finished run without a value of the metric; in
    `num_not_finite` of them it was not finite in each such run. `preferred_metric` is set where no metric was requested
    and this is not the one that is used by default, because some finished run of every cell lacks that.
    `lost` are the finished runs whose last value, or for the best epoch some value, was not finite. `contradictions`
    are lines about metrics of which the runs declare both directions. `search` is the method of a search, if there was.
    `is_by_shared_seeds`: another cell has a better mean, but of other seeds; by those that they share it is behind.
    """

    metric: Metric
    winner: RankedCell
    runner_up: RankedCell | None
    verdict: str
    reason: str | None
    rivals: Sequence[RankedCell]
    unmeasured: Sequence[RankedCell]
    undecided: Sequence[RankedCell]
    selection_bias: float | None
    num_cells: int
    num_ties: int
    num_left_out: int
    preferred_metric: str | None = None
    lost: Sequence[StoredRun] = ()
    contradictions: Sequence[str] = ()
    effect: MeasuredEffect | None = None
    num_not_finite: int = 0
    num_decided_by_a_seed: int = 0
    is_by_shared_seeds: bool = False
    search: str | None = None

    @property
    def settings(self) -> dict[str, Any]:
        """The winner's settings, those in which the cells differ."""
        return self.winner.settings

    @property
    def value(self) -> Spread:
        """The winner's mean, a number with the attributes `deviation` and `count` (of its runs)."""
        return self.winner.spread

    @property
    def run(self) -> StoredRun:
        """The best one of the winner's runs."""
        return self.winner.runs[0][0]

    def __repr__(self) -> str:
        from runmanager.results.findings.best_text import best_headline, best_sentences

        headline = best_headline(self)
        return "\n".join(map(printable_line, [headline[0].upper() + headline[1:], *best_sentences(self)]))


def find_best(
    sweep: SweepContents,
    plan: SweepRecord | None,
    *,
    metric: str | None = None,
    better: str | None = None,
    at: At = LAST,
    folders: Collection[Path] | None = None,
    options: CompareOptions | None = None,
    cells: Cells | None = None,
) -> BestCell:
    """Find the best cell by the mean of `metric` over its seeds (the geometric mean of times and rates).

    `folders` are the run folders that count (None: all). `cells` are those of several sweeps, of which `sweep` has the
    runs; None gathers those of the one sweep. Without a metric, the one that the sweep was asked for is used, else the
    first of `default_metrics` that a cell has. `better` and `at` are
    those of `CompareOptions`, and so are the remaining `options`. Only cells whose finished runs all have the metric
    are ranked: a run that never reaches an accuracy has no time to it.

    The cells that may be the best are named by comparisons with the best (Hsu, *Multiple Comparisons*, 1996, chapter
    4): all that are not worse than the winner by intervals that are one-sided, and hold jointly with 95%.

    Raises `UsageError` for an unknown metric, for one without a known direction, where no run has finished, and for
    `better` without a metric; `NoMetricError` where no finished run has the metric.
    """
    options = dataclasses.replace(options or CompareOptions(), better=better, at=at)
    faults = options.faults()
    if better is not None and metric is None:
        faults.append(fault("--better", "go with a metric", "none", "name it with `--metric`"))
    if faults:
        raise UsageError("\n".join(faults))
    all_of_them = cells or gather_cells(sweep.runs, sweep.damaged, plan)

    def cells_by(ranked_by: Metric) -> list[RankedCell]:
        return group_seeds(all_of_them, ranked_by, folders)

    if metric is None:
        names = [*asked_metric(sweep, plan), *default_metrics(sweep.runs)]
        by_default = [find_metric(each, sweep.runs, at=at) for each in names]
        of_a_run = (each for each in by_default if any(cell.side.values for cell in cells_by(each)))
        none = next(of_a_run, find_metric(OUTCOMES[0], at=at))
        ranked_by = next((each for each in by_default if _with_values(cells_by(each))), none)
    else:
        ranked_by = find_metric(metric, sweep.runs, better=better, at=at)
    all_cells, name = cells_by(ranked_by), ranked_by.name
    preferred = name if metric is not None else next(iter(asked_metric(sweep, plan)), OUTCOMES[0])
    ranked = _with_values(all_cells)
    if not ranked:
        known = (any_direction(other, sweep.runs) for other in known_metrics(sweep.runs))
        named = [each.name for each in known if _with_values(cells_by(each))]
        if metric is None and (names := undirected_names(sweep.runs)):
            raise UsageError(
                f"`--metric` must be given with `--better`, as it is not known whether more or less {names[0]} is "
                f"better, got neither; as in `--metric {names[0]} --better max`."
            )
        if metric is None and finished_without_metrics(sweep.runs):
            raise NoMetricError(
                f"The best must be by a metric that runs recorded, got none; there is {', '.join(named)}."
            )
        have_finished = any(each.side.finished for each in all_cells)
        raise (NoMetricError if have_finished else UsageError)(
            _why_none(ranked_by, all_cells, named, is_requested=metric is not None)
        )
    runs = [[(tuple(each.side.seeds_of(run).items()), value) for run, value in each.runs] for each in ranked]
    levels = levels_by_seed(runs, is_ratio=ranked_by.effect != "difference")
    order = dict(zip(map(id, ranked), levels or [float(each.spread) for each in ranked], strict=True))
    winner, *others = sorted(ranked, key=lambda each: order[id(each)], reverse=ranked_by.more_is_better)
    judgements = _compare_with(winner, others, sweep, options)
    found = list(zip(others, judgements, strict=True))
    rivals = [each for each, judgement in found if judgement.verdict not in (*DIFFERENT, NOT_MEASURED)]
    return BestCell(
        metric=ranked_by,
        winner=winner,
        runner_up=others[0] if others else None,
        verdict=judgements[0].verdict if judgements else NOT_MEASURED,
        reason=judgements[0].reason if judgements else None,
        effect=judgements[0].effect if judgements else None,
        rivals=rivals,
        num_decided_by_a_seed=sum(
            _is_decided_by_a_seed((winner, each), judgement, len(others)) for each, judgement in found
        ),
        unmeasured=[each for each, judgement in found if judgement.verdict == NOT_MEASURED],
        undecided=[each for each, judgement in found if judgement.verdict in (INCONCLUSIVE, NOT_MEASURED)],
        selection_bias=_selection_bias(winner, others, judgements, len(rivals)),
        num_cells=len(ranked),
        num_ties=sum(float(each.spread) == float(winner.spread) for each in others),
        num_left_out=len([each for each in all_cells if each.side.finished]) - len(ranked),
        preferred_metric=preferred if name != preferred else None,
        lost=_lost(ranked_by, all_cells),
        num_not_finite=sum(_lost_all(ranked_by, each) for each in all_cells if each.side.without_values),
        search=(plan.search or None) if plan else None,
        is_by_shared_seeds=levels is not None and any(_is_ahead(each, winner) for each in others),
        contradictions=Directions.of_runs(sweep.runs).notes() if ranked_by.of_epoch is not None else (),
    )


def _is_ahead(cell: RankedCell, other: RankedCell) -> bool:
    """Whether a cell has a better mean than another one."""
    one, two = float(cell.spread), float(other.spread)
    return one > two if cell.side.metric.more_is_better else one < two


def asked_metric(sweep: SweepContents, plan: SweepRecord | None) -> list[str]:
    """The metric that the sweep was asked to rank its cells by, if its runs recorded it."""
    asked = requested_metric(plan.metric, sweep.runs) if plan and isinstance(plan.metric, str) else None
    return [] if asked is None else [asked.name]


def _compare_with(
    winner: RankedCell, others: Sequence[RankedCell], sweep: SweepContents, options: CompareOptions
) -> list[Judgement]:
    # Labelled by rank: the reasons would repeat the settings otherwise.
    best = dataclasses.replace(winner.side, label="the best")
    pairs = [(dataclasses.replace(each.side, label="the next"), best) for each in others]
    return judge(pairs, causes_by_run(sweep.runs), options, is_one_sided=True)


def _is_decided_by_a_seed(cells: tuple[RankedCell, RankedCell], judgement: Judgement, rows: int) -> bool:
    """Whether a cell that may be the best would be worse than it with one more seed of both, if their means stayed."""
    effect = judgement.effect
    if effect is None or judgement.verdict in DIFFERENT or not effect.estimate.dof:
        return False
    value, high = effect.estimate.value, effect.estimate.high
    if cells[0].side.metric.effect != "difference":
        value, high = math.log(value), math.log(high)
    count, dof = min(len(each.side.measured) for each in cells), effect.estimate.dof
    narrower = critical_value(dof + 2, rows) / critical_value(dof, rows) * math.sqrt(count / (count + 1))
    return abs(value) > (high - value) * narrower


def _selection_bias(
    winner: RankedCell, others: Sequence[RankedCell], judgements: Sequence[Judgement], num_rivals: int
) -> float | None:
    """Return by how much the winner's mean exceeds the truth on average, if its rivals are equally good.

    That is the expected largest of that many normal numbers, times the standard error of the winner's mean: its own,
    but without what the seeds do to all cells alike, so at most that of a difference by √2. The expectation is Blom's
    approximation (*Statistical Estimates and Transformed Beta-Variables*, 1958).
    """
    of_differences = [judgement.effect.estimate for judgement in judgements if judgement.effect is not None]
    middle = median([each.error for each in of_differences if each.dof])
    if not middle:
        return None  # not known, or the runs differ by less than their metric's rounding
    is_difference = winner.side.metric.effect == "difference"
    samples = [make_sample(each.side.values, is_ratio=not is_difference) for each in (winner, *others)]
    error = min(middle / math.sqrt(2), error_of_first(samples))
    count = num_rivals + 1
    largest = NormalDist().inv_cdf((count - 0.375) / (count + 0.25)) if num_rivals else 0.0
    return error * largest if is_difference else float(winner.spread) * -math.expm1(-error * largest)


def group_seeds(cells: Cells, metric: Metric, folders: Collection[Path] | None) -> list[RankedCell]:
    """Return the cells that differ in more than their seeds, with their values of `metric`; `folders`: `find_best`."""
    names = [name for name in cells.telling if name not in cells.seeds]
    groups: dict[Hashable, list[Cell]] = {}
    for cell in cells.cells:
        if cell.stored is not None and (folders is None or cell.stored.paths.root in folders):
            key = tuple(hashable(cells.value(cell, name, _ABSENT)) for name in names)
            groups.setdefault(key, []).append(cell)
    ranked = []
    for members in groups.values():
        values = {name: cells.value(members[0], name, _ABSENT) for name in names}
        settings = {name: value for name, value in values.items() if value is not _ABSENT}
        label = (
            ", ".join(f"{setting_name(name)}={format_value(value)}" for name, value in settings.items())
            or members[0].run
        )
        paired = all(cells.value(cell, "measure.name") == "paired" for cell in members)
        ranked.append(RankedCell(settings, Side(label, members, metric, paired, seeds=cells.seeds)))
    return ranked


def _with_values(cells: Sequence[RankedCell]) -> list[RankedCell]:
    """Return the cells with a finished run, all of whose finished runs have the metric."""
    return [each for each in cells if each.side.finished and not each.side.without_values]


def _lost(metric: Metric, cells: Sequence[RankedCell]) -> list[StoredRun]:
    """Return the finished runs whose value that should count was not finite."""
    is_lost = metric.is_lost
    return [] if is_lost is None else [run for each in cells for run in each.side.finished if is_lost(run)]


def _lost_all(metric: Metric, cell: RankedCell) -> bool:
    """Whether each finished run of a cell that has no value had one that was not finite."""
    return metric.is_lost is not None and all(
        metric.is_lost(run) for run in cell.side.finished if not metric.values(run)
    )


def _why_none(metric: Metric, cells: Sequence[RankedCell], others: Sequence[str], *, is_requested: bool) -> str:
    if any(each.side.finished for each in cells):
        what = "`--metric` must be one" if is_requested else "The best must be by a metric"
        lacking = [run for each in cells for run in each.side.finished if not metric.values(run)]
        not_finite = [run for run in lacking if metric.is_lost is not None and metric.is_lost(run)]
        kinds = ["without it"] if len(not_finite) < len(lacking) else []
        lack = " or ".join([*kinds, *(["whose value is not finite"] if not_finite else [])])
        problem = f"{what} that all finished runs of a cell have, got '{metric.name}' and a run {lack} in every cell"
        are_some_known = any(each.side.values for each in cells)
        if are_some_known or not_finite:
            names = [run.record.name for run in (lacking if are_some_known else not_finite)]
            problem += f" ({', '.join(names[:_MAX_NAMED])}{', …' if len(names) > _MAX_NAMED else ''})"
        if are_some_known:
            problem += "; leave these out with `--where`"
        return f"{problem}; there is {', '.join(others)}." if others else f"{problem}."
    num_runs = sum(len(each.side.cells) for each in cells)
    return f"The best must be one of finished runs, got no finished run among {num_runs}."


def _run_median(values: Sequence[float]) -> float:
    middle = median(values)
    assert middle is not None  # a side only has runs with values
    return middle

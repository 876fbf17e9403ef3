"""What a sweep asks where no metric is named: the speed, or the results that settings of quality change."""

import dataclasses
from collections.abc import Sequence

from runmanager.records.storage.reader import StoredRun, SweepContents
from runmanager.records.sweep.sweep_record import SweepRecord
from runmanager.results.compare.cell_pairing import JOINT, varying_axes
from runmanager.results.compare.comparability import obstacles
from runmanager.results.compare.comparison_table import ANY_AXIS, CompareOptions
from runmanager.results.compare.matched_pairs import MAX_STAND_IN_PAIRS, Matches, match_sides, paired_axes
from runmanager.results.metrics.metric import THROUGHPUT
from runmanager.results.metrics.metric_lookup import default_metrics, recorded_names, requested_metric

_GROUPS = ("optimizer", "scheduler", "loss")
_QUALITY = frozenset(
    (
        *("lr", "learning_rate", "wd", "weight_decay", "momentum", "nesterov", "dropout", "label_smoothing"),
        *("epochs", "num_epochs", "max_epochs", "gamma", "alpha", "betas", "beta", "beta1", "beta2", "eps"),
        *("temperature", "warmup", "clip", "seed"),
    )
)
"""Settings that change the results of a run and not, or hardly, its speed."""
_SPEED = ("optimizer.fused",)


def with_metric_of_sweep(
    sweep: SweepContents, plan: SweepRecord | None, options: CompareOptions | None = None
) -> CompareOptions:
    """Return the options with the metric that people ask about, if they name none.

    It is the outcome (the metric that the sweep was asked for, else the first of `default_metrics`) where nothing was
    timed, and where only settings of quality vary, no two devices can be compared, and a pair has an answer by it; else
    the throughput.
    """
    options = with_metric_of_untimed(sweep.runs, plan, options)
    outcome = _outcome(sweep.runs, plan)
    if options.metric != THROUGHPUT.name or outcome is None or options.axis == ANY_AXIS:
        return options
    by_outcome = dataclasses.replace(options, metric=outcome)
    matches = match_sides(sweep, plan, by_outcome)
    names = _compared(matches, options)
    is_of_quality = bool(names) and all(_is_of_quality(part) for name in names for part in name.split(JOINT))
    has_answer = is_of_quality and any(not obstacles(match.sides, by_outcome) for match in matches.pairs)
    return by_outcome if has_answer else options


def with_metric_of_untimed(
    runs: Sequence[StoredRun], plan: SweepRecord | None, options: CompareOptions | None = None
) -> CompareOptions:
    """Return the options with the runs' outcome as the metric, if none of the finished ones was timed."""
    options = options or CompareOptions()
    finished = [run for run in runs if run.is_complete]
    if not finished or any(map(was_timed, finished)):
        return options
    return dataclasses.replace(options, metric=_outcome(runs, plan) or options.metric)


def was_timed(run: StoredRun) -> bool:
    """Whether a run has a throughput, at least of warm-up. Epochs whose samples were not counted have none."""
    return not run.is_adopted and any(epoch.samples_per_second for epoch in run.epochs)


def in_turn(
    sweep: SweepContents, plan: SweepRecord | None, options: CompareOptions, matches: Matches
) -> tuple[CompareOptions, Matches]:
    """Return options and pairs that compare each setting that varies, where no axis is named and none stands in."""
    if matches.pairs or options.axis is not None or options.baseline is not None:
        return options, matches
    each = dataclasses.replace(options, axis=ANY_AXIS)
    found = match_sides(sweep, plan, each)
    return (each, found) if 0 < len(found.pairs) <= MAX_STAND_IN_PAIRS else (options, matches)


def along_only_axis(
    sweep: SweepContents, plan: SweepRecord | None, options: CompareOptions, matches: Matches
) -> tuple[CompareOptions, Matches]:
    """Return options and pairs along the only setting that varies, where none is named and the default has no pairs.

    Where several vary, which of them stands in depends on what their runs show, which a condition must not.
    """
    is_open = options.axis is None and options.baseline is None and not matches.without_stand_in().pairs
    axes = varying_axes(matches.cells) if is_open else []
    if len(axes) != 1:
        return options, matches
    along = dataclasses.replace(options, axis=axes[0].name)
    return along, match_sides(sweep, plan, along)


def other_metric(runs: Sequence[StoredRun], plan: SweepRecord | None, chosen: str) -> str | None:
    """Return the metric that answers the other question: the outcome for the throughput, and the reverse."""
    if chosen == THROUGHPUT.name:
        return _outcome(runs, plan)
    return THROUGHPUT.name if any(map(THROUGHPUT.values, runs)) else None


def _outcome(runs: Sequence[StoredRun], plan: SweepRecord | None) -> str | None:
    """The metric that the sweep was asked for, else the first of `default_metrics`, that the runs recorded."""
    asked = requested_metric(plan.metric, runs) if plan and isinstance(plan.metric, str) else None
    if asked is not None and any(map(asked.values, runs)):
        return asked.name
    recorded = frozenset(recorded_names(runs))
    return next((name for name in default_metrics(runs) if name in recorded), None)


def _compared(matches: Matches, options: CompareOptions) -> list[str]:
    """The axes that the comparison could be about; none where two devices are compared or the runs took turns."""
    if options.axis is not None:
        return [options.axis]
    if matches.instead_of is None:
        return []
    return [axis.name for axis in paired_axes(matches) if axis.name != matches.instead_of.name]


def _is_of_quality(name: str) -> bool:
    *groups, last = name.removesuffix(".name").split(".")
    return name not in _SPEED and (last in _QUALITY or last in _GROUPS or bool(groups and groups[0] in _GROUPS))

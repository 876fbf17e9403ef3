"""The option `--fail-if`: its conditions answered from a comparison."""

import dataclasses
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated

import typer

from runmanager.errors import UsageError

if TYPE_CHECKING:
    from runmanager.records.storage.reader import StoredRun, SweepContents
    from runmanager.results.compare.comparison_table import CompareOptions, ComparisonRow, ComparisonTable
    from runmanager.results.gate.fail_if import Condition, GateStatus

FailIfOption = Annotated[
    list[str] | None,
    typer.Option(
        metavar="CONDITION",
        help="Exit with 1 where it holds, with 0 where it is ruled out, with 3 where that is not known: slower, "
        "slower:5%, worse:val_accuracy:0.01. May be repeated. A failed run gives 1.",
    ),
]


def options_of_table(
    conditions: "Sequence[Condition]", requested: "CompareOptions", runs: "Sequence[StoredRun]"
) -> "CompareOptions":
    """Return the options of a table by `requested.metric`.

    `--better` and `--at` are left out where that metric cannot have them, and one of a condition does.
    Raises `UsageError` where no metric can have them.
    """
    from runmanager.results.metrics.metric import LAST
    from runmanager.results.metrics.metric_lookup import find_metric

    if faults := requested.faults():
        raise UsageError("\n".join(faults))
    try:
        find_metric(requested.metric, runs, better=requested.better, at=requested.at)
    except UsageError:
        own = [_options_of(each.metric, requested, runs) for each in conditions if each.metric is not None]
        better = None if any(each.better is not None for each in own) else requested.better
        at = LAST if any(each.at != LAST for each in own) else requested.at
        find_metric(requested.metric, runs, better=better, at=at)
        return dataclasses.replace(requested, better=better, at=at)
    return requested


def _options_of(name: str, requested: "CompareOptions", runs: "Sequence[StoredRun]") -> "CompareOptions":
    """Return the options of a condition by another metric than the table's.

    `--better` counts where nothing else tells its direction, `--at` where it is one of epochs. Raises `UsageError`.
    """
    from runmanager.results.metrics.metric import LAST
    from runmanager.results.metrics.metric_lookup import find_metric

    better = None
    try:
        metric = find_metric(name, runs)
    except UsageError:
        if requested.better is None:
            raise
        better = requested.better
        metric = find_metric(name, runs, better=better)
    at = LAST if metric.of_epoch is None else requested.at
    return dataclasses.replace(requested, metric=name, margin=None, better=better, at=at)


@dataclass(frozen=True)
class Verdict:
    """What all conditions of a command came to, None without any, and the lines that say it."""

    status: "GateStatus | None" = None
    lines: Sequence[str] = ()

    @property
    def exit_status(self) -> int:
        return 0 if self.status is None else int(self.status)


def answer_conditions(
    conditions: "Sequence[Condition]",
    options: "CompareOptions",
    comparison_by: "Callable[[CompareOptions], ComparisonTable]",
    contents: "SweepContents",
    duel: "Callable[[ComparisonRow], str]",
    *,
    requested: "CompareOptions | None" = None,
) -> Verdict:
    """Answer each condition from the comparison by its own metric; `duel` says what could answer an open one.

    A condition on speed is answered by the metric of `options`, where that is a time or a rate. `requested` are the
    options as given, of which `options_of_table` made `options`.
    """
    from runmanager.results.gate.fail_if import failed_runs, gate_status, judge_condition, unknown_runs
    from runmanager.results.metrics.metric import THROUGHPUT
    from runmanager.results.metrics.metric_lookup import find_metric

    if not conditions:
        return Verdict()
    answers, runs = [], contents.runs
    asked = find_metric(options.metric, runs, better=options.better, at=options.at)
    for condition in conditions:
        name = condition.metric or (asked.name if asked.effect == "speedup" else THROUGHPUT.name)
        of_metric = options if name == asked.name else _options_of(name, requested or options, runs)
        metric = find_metric(name, runs, better=of_metric.better, at=of_metric.at)
        answers.append(judge_condition(condition, comparison_by(of_metric), metric))
    failed, unknown = failed_runs(runs), unknown_runs(contents)
    lines = [*failed, *unknown, *(answer.line for answer in answers)]
    still_open = [row for answer in answers for row in answer.open_rows]
    if still_open:
        lines.append(duel(still_open[0]))
    return Verdict(gate_status(answers, failed, unknown), lines)

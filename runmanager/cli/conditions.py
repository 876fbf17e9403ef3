"""The option `--fail-if`: its conditions answered from a comparison."""

import dataclasses
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from runmanager.records.storage.reader import SweepContents
    from runmanager.results.compare.comparison_table import ComparisonRow, ComparisonTable
    from runmanager.results.compare.options import CompareOptions
    from runmanager.results.gate.fail_if import Condition, GateStatus

__all__ = ["FailIfOption", "Verdict", "answer_conditions"]

FailIfOption = Annotated[
    list[str] | None,
    typer.Option(
        metavar="CONDITION",
        help="Exit with 1 where it holds, with 0 where it is ruled out, with 3 where that is not known: slower, "
        "slower:5%, worse:val_accuracy:0.01. May be repeated. A failed run gives 1.",
    ),
]


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
) -> Verdict:
    """Answer each condition from the comparison by its own metric; `duel` says what could answer an open one.

    A condition on speed is answered by the metric of `options`, where that is a time or a rate.
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
        margin = options.margin if name == asked.name else None
        of_metric = options if name == asked.name else dataclasses.replace(options, metric=name, margin=margin)
        metric = asked if name == asked.name else find_metric(name, runs, better=options.better, at=options.at)
        answers.append(judge_condition(condition, comparison_by(of_metric), metric))
    failed, unknown = failed_runs(runs), unknown_runs(contents)
    lines = [*failed, *unknown, *(answer.line for answer in answers)]
    still_open = [row for answer in answers for row in answer.open_rows]
    if still_open:
        lines.append(duel(still_open[0]))
    return Verdict(gate_status(answers, failed, unknown), lines)

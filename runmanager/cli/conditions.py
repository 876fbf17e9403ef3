"""The option `--fail-if`: its conditions answered from a comparison, and the duel that would answer what is open."""

import dataclasses
import shlex
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any

import typer

from runmanager.text import format_value

if TYPE_CHECKING:
    from runmanager.records.storage.reader import StoredRun, SweepContents
    from runmanager.results.compare.comparison_table import ComparisonRow, ComparisonTable
    from runmanager.results.compare.options import CompareOptions
    from runmanager.results.gate.fail_if import Condition, GateStatus

__all__ = ["FailIfOption", "Verdict", "answer_conditions", "duel_of_sides", "duel_of_sweeps"]

FailIfOption = Annotated[
    list[str] | None,
    typer.Option(
        metavar="CONDITION",
        help="Exit with 1 where it holds, with 0 where it is ruled out, with 3 where that is not known: slower, "
        "slower:5%, worse:val_accuracy:0.01. May be repeated. A failed run gives 1.",
    ),
]

_NOT_OF_A_DUEL = ("name", "output_root", "resume", "rerun_changed", "measure")
_MAX_SETTING_CHARACTERS = 200


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
    """Answer each condition from the comparison by its own metric; an open one names the `duel` that could say.

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
        lines.append(f"This could say: {duel(still_open[0])}")
    return Verdict(gate_status(answers, failed, unknown), lines)


def duel_of_sides(row: "ComparisonRow") -> str:
    """Return the duel of the two sides of a row along an axis."""
    sides = [_side(row["axis"], row[side]) for side in ("baseline", "candidate")]
    return f"`{shlex.join(['runmanager', 'duel', *sides, *_settings(row, {})])}`"


def duel_of_sweeps(row: "ComparisonRow", runs: "Sequence[Sequence[StoredRun]]", command: Sequence[str]) -> str:
    """Return the duel of the commits, or of the environments, in which two sweeps were made.

    `command` is the one that made the candidate; its settings are the duel's.
    """
    facts = [[run.record.environment for run in of_sweep] for of_sweep in runs]
    commits = [next((each.commit for each in of_sweep if each.commit), None) for of_sweep in facts]
    libraries = [next((dict(each.libraries) for each in of_sweep if each.libraries), {}) for of_sweep in facts]
    pythons = [next((each.python for each in of_sweep if each.python), "") for of_sweep in facts]
    sides: list[str] = []
    if all(commits):
        sides += [f"--baseline-rev={(commits[0] or '')[:10]}", f"--candidate-rev={(commits[1] or '')[:10]}"]
    if libraries[0] != libraries[1] or pythons[0] != pythons[1] or not sides:
        sides += ["--baseline-python=BASELINE/bin/python", "--candidate-python=CANDIDATE/bin/python"]
    given = dict(word.split("=", 1) for word in command if "=" in word and not word.startswith(("-", "hydra.")))
    program = [word for word in command[1:] if word.endswith(".py")]
    return f"`{shlex.join(['runmanager', 'duel', *sides, *program, *_settings(row, given)])}`"


def _side(axis: str, value: Any) -> str:
    if "+" in axis:
        return " ".join(str(value).split(", "))
    return f"{axis.removesuffix('.name')}={format_value(value)}"


def _settings(row: "ComparisonRow", given: Mapping[str, str]) -> list[str]:
    """The settings that both sides of a duel have: those of the command, with the row's values of an axis."""
    compared = row["axis"].split("+")
    values = {name: text for name, text in given.items() if name not in _NOT_OF_A_DUEL}
    for name, value in row.values.items():
        if name in row.metric.columns or name in compared or value is None or name in row.absent_settings:
            continue
        if not given or name in values:
            values[name] = format_value(value)
    return [f"{name}={text}" for name, text in values.items() if len(text) <= _MAX_SETTING_CHARACTERS]

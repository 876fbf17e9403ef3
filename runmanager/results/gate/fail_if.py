"""Conditions on a comparison that fail a pipeline: `slower`, `slower:5%`, `worse:val_accuracy:0.01`."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from enum import IntEnum

from runmanager.errors import UsageError
from runmanager.records.run.status import Status
from runmanager.records.storage.reader import StoredRun, SweepContents
from runmanager.results.compare.comparison_table import ComparisonRow, ComparisonTable, MeasuredEffect, label_of
from runmanager.results.compare.overall_effect import overall_effect
from runmanager.results.compare.verdict import is_too_small_to_see
from runmanager.results.findings.comparison_findings import location_text, without_contention
from runmanager.results.metrics.metric import THROUGHPUT, Metric
from runmanager.results.stats.descriptive import Interval

_FORMS = "as in slower, slower:5% or worse:val_accuracy:0.01"


class GateStatus(IntEnum):
    """The answer to a condition, as an exit status."""

    PASSED = 0
    FAILED = 1
    NOT_KNOWN = 3


@dataclass(frozen=True)
class Condition:
    """A condition: the candidate is worse by `metric` by more than `amount`, both as given.

    `amount` is a share for ratios and in the metric's own unit for differences; None: any true loss fails, and one
    within the margin passes. `is_share`: it was given in percent.
    """

    text: str
    metric: str | None
    amount: float | None
    is_share: bool = False


@dataclass(frozen=True)
class Answer:
    """The answer to a condition, with the line that says it and the rows that left it open."""

    status: GateStatus
    line: str
    open_rows: Sequence[ComparisonRow] = ()


def parse_condition(text: str) -> Condition:
    """Read a condition. It is split from the right, as names of metrics may contain colons. Raises `UsageError`."""
    kind, _, rest = text.partition(":")
    if kind == "slower":
        if text == kind:
            return Condition(text, None, None)
        return Condition(text, None, _amount(text, rest), rest.endswith("%"))
    if kind != "worse" or not rest:
        raise UsageError(f"`--fail-if` must be a condition {_FORMS}, got '{text}'.")
    metric, colon, last = rest.rpartition(":")
    if not colon or not _looks_like_number(last):
        return Condition(text, rest, None)
    return Condition(text, metric, _amount(text, last), last.endswith("%"))


def _looks_like_number(text: str) -> bool:
    try:
        float(text.removesuffix("%"))
    except ValueError:
        return False
    return True


def _amount(condition: str, text: str) -> float:
    if not _looks_like_number(text):
        raise UsageError(f"`--fail-if` must end in a number, {_FORMS}, got '{condition}'.")
    value = float(text.removesuffix("%")) / (100 if text.endswith("%") else 1)
    if not 0 <= value < float("inf"):
        raise UsageError(f"The amount of `--fail-if` must be at least 0, got '{condition}'.")
    return value


def judge_condition(condition: Condition, comparison: ComparisonTable, metric: Metric) -> Answer:
    """Answer a condition from the intervals of a comparison by its metric.

    ```
    failed      an interval lies wholly beyond no effect, and beyond the amount where one is given
    passed      every interval lies wholly within the amount (else the margin), which is above the drift
    not known   otherwise
    ```

    Runs with exactly the same value pass, though their noise is not known. Where pairs agree, their
    overall effect answers what the single rows leave open.

    Raises `UsageError` for an amount that the metric cannot have.
    """
    _check(condition, metric)
    rows = [row for row in comparison.rows if not row.is_stand_in]
    judged = [(row, _status(condition, metric, row)) for row in rows]
    worse = [row for row, status in judged if status is GateStatus.FAILED]
    left = [row for row, status in judged if status is GateStatus.NOT_KNOWN]
    if worse:
        return Answer(GateStatus.FAILED, _line(condition, "failed", _said(worse[0], comparison), len(worse), len(rows)))
    if rows and not left:
        closest = max(rows, key=lambda row: -math.inf if row.effect is None else _loss(metric, row.effect).high)
        return Answer(GateStatus.PASSED, _line(condition, "passed", _said(closest, comparison), len(rows), len(rows)))
    overall = _overall(condition, metric, rows, comparison)
    if overall is not None:
        return overall
    said = _said(left[0], comparison) if left else "there is no pair to compare; `--axis` names the setting to compare"
    return Answer(GateStatus.NOT_KNOWN, _line(condition, "not known", said, len(left), len(rows)), left)


def _check(condition: Condition, metric: Metric) -> None:
    is_difference = metric.effect == "difference"
    if is_difference and condition.is_share:
        raise UsageError(f"The amount of `--fail-if` must be in the unit of {metric.name}, got '{condition.text}'.")
    if not is_difference and condition.amount is not None and condition.amount >= 1:
        raise UsageError(f"The amount of `--fail-if` must be below 1 (100%), got '{condition.text}'; 0.05 means 5%.")


def _status(condition: Condition, metric: Metric, row: ComparisonRow) -> GateStatus:
    effect = row.effect
    if effect is None:
        return GateStatus.PASSED if row.are_equal and condition.amount != 0 else GateStatus.NOT_KNOWN
    return _status_of(condition, metric, effect)


def _status_of(condition: Condition, metric: Metric, effect: MeasuredEffect) -> GateStatus:
    loss = _loss(metric, effect)
    if loss.low > max(effect.tolerance, condition.amount or 0.0):
        return GateStatus.NOT_KNOWN if is_too_small_to_see(effect) else GateStatus.FAILED
    allowed = effect.margin if condition.amount is None else condition.amount
    if allowed is None or loss.high >= allowed or allowed < effect.tolerance:
        return GateStatus.NOT_KNOWN
    return GateStatus.NOT_KNOWN if effect.drift and allowed <= effect.drift else GateStatus.PASSED


def _loss(metric: Metric, effect: MeasuredEffect) -> Interval:
    """Return how much worse the candidate is: a share for ratios, in the metric's unit for differences."""
    interval = effect.estimate.interval
    no_effect = 0.0 if metric.effect == "difference" else 1.0
    if metric.effect == "speedup" or metric.more_is_better:
        return Interval(no_effect - interval.high, no_effect - interval.low)
    return Interval(interval.low - no_effect, interval.high - no_effect)


def _overall(
    condition: Condition, metric: Metric, rows: Sequence[ComparisonRow], comparison: ComparisonTable
) -> Answer | None:
    """Answer by the mean over all pairs, where each is measured and they agree; None where that is not known either."""
    effects = [effect for row in rows if (effect := row.effect) is not None]
    if len(rows) < 2 or len(effects) < len(rows) or len({(row["candidate"], row["baseline"]) for row in rows}) > 1:
        return None
    found = overall_effect(rows, [name for name in comparison.settings if name in comparison.shown])
    status = _status_of(condition, metric, found.effect)
    if not found.agrees or status is GateStatus.NOT_KNOWN:
        return None
    said = f"{_effect_text(rows[0], found.estimate.value, found.estimate.interval)}, the mean over {len(rows)} pairs"
    return Answer(status, f"`--fail-if {condition.text}` {status.name.lower()}: {said} ({found.verdict}).")


def _said(row: ComparisonRow, comparison: ComparisonTable) -> str:
    location = location_text(row, comparison)
    if row.are_equal:
        return f"{row.metric.name} is the same in each pair of runs{location}"
    if row.effect is None:
        candidate, baseline = (label_of(row["axis"], row[side]) for side in ("candidate", "baseline"))
        return f"{candidate} and {baseline} were not compared{location}: {without_contention(row['reason'])}"
    estimate = row.effect.estimate
    return f"{_effect_text(row, estimate.value, estimate.interval)}{location} ({row['verdict']})"


def _effect_text(row: ComparisonRow, value: float, interval: Interval) -> str:
    candidate, baseline = (label_of(row["axis"], row[side]) for side in ("candidate", "baseline"))
    metric = row.metric
    by = "" if metric == THROUGHPUT else f" by {metric.name}"
    if metric.effect == "speedup":
        return f"{candidate} is {value:.3f} times as fast as {baseline}{by} [{interval.low:.3f}, {interval.high:.3f}]"
    texts = [metric.format_effect(value), *metric.format_ends(interval.low, interval.high)]
    how = "times" if metric.effect == "ratio" else "more than" if value >= 0 else "less than"
    return f"{metric.name} of {candidate} is {texts[0].removeprefix('-')} {how} {baseline}'s [{texts[1]}, {texts[2]}]"


def _line(condition: Condition, word: str, said: str, count: int, of: int) -> str:
    among = f"; {count} of {of} pairs" if of > 1 else ""
    return f"`--fail-if {condition.text}` {word}: {said}{among}."


def failed_runs(runs: Sequence[StoredRun]) -> list[str]:
    """Return a line for each run that ended badly: such a run fails every condition."""
    return [
        f"`--fail-if` failed: run {run.paths.root} {run.record.status.value}"
        + (f" ({run.record.reason.value})" if run.record.reason is not None else "")
        + (f": {run.record.message}" if run.record.message else "")
        for run in runs
        if run.record.status.is_ended and not run.record.status.is_success
    ]


def unknown_runs(contents: SweepContents) -> list[str]:
    """Return a line for each run that may still fail, or may have failed: no condition passes before it is known."""
    running = [run.paths.root for run in contents.runs if run.record.status is Status.RUNNING]
    unread = [each.message for each in contents.damaged if each.path.parent.name == "runs" and not each.is_duplicate]
    return [
        *(f"`--fail-if` not known: run {root} has not ended" for root in running),
        *(f"`--fail-if` not known: {message}" for message in unread),
    ]


def gate_status(answers: Sequence[Answer], failed: Sequence[str], unknown: Sequence[str] = ()) -> GateStatus:
    """Return the exit status of all conditions together: a failure first, then what is not known.

    `failed` and `unknown` are lines about runs, as of `failed_runs` and `unknown_runs`.
    """
    found = {answer.status for answer in answers}
    if failed or GateStatus.FAILED in found:
        return GateStatus.FAILED
    return GateStatus.NOT_KNOWN if unknown or GateStatus.NOT_KNOWN in found else GateStatus.PASSED

"""A metric that runs can be compared by: its values of a run, effect, and texts; and those of logged metrics."""

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from itertools import accumulate
from typing import Any, Literal

from runmanager.records.run.measurement import Effect
from runmanager.records.run.run_record import EpochRecord, Turn
from runmanager.records.storage.reader import StoredRun
from runmanager.results.load.run_summary import (
    last_with_outcome,
    metric_names,
    summary_metrics,
    unit_names,
    unit_rate,
)
from runmanager.results.table_model.columns import COMPARISON_COLUMNS
from runmanager.results.table_model.formatting import human

At = Literal["last", "best"]
LAST: At = "last"
"""The epoch whose value counts for a run, where another one is not requested."""

_ROUNDED = "baseline_value"  # a column of measurements by any metric
_MAX_DECIMALS = 15


@dataclass(frozen=True)
class Metric:
    """A metric of runs, and the effect by which two sides are compared.

    `effect` is the name of its column. A `speedup` is above 1 where the candidate is faster, also where the metric is a
    time; a `ratio` is candidate / baseline, a `difference` candidate - baseline. `per_epoch` metrics have a value for
    each measured epoch, the others one for the run. `lack` describes a run without a value. The values of `rounded`
    metrics, whose name is not that of a column, are shown with four digits.

    A metric of epochs with one value for the run has that of the epoch `at` (`last` or `best`). `of_epoch` is then the
    value of an epoch, None where it has none; `epoch_of` is the number of the run's epoch that counts, where that need
    not be the last one. `is_lost` says of a run that the value that should count, or the one of some epoch that might
    have counted as the best, was not finite.
    """

    name: str
    effect: Effect
    values: Callable[[StoredRun], list[float]]
    per_epoch: bool
    more_is_better: bool
    lack: str
    rounded: bool = False
    at: At = LAST
    of_epoch: Callable[[EpochRecord], float | None] | None = None
    epoch_of: Callable[[StoredRun], int | None] | None = None
    is_lost: Callable[[StoredRun], bool] | None = None

    @property
    def is_time(self) -> bool:
        """Whether smaller values are a speedup."""
        return self.effect == "speedup" and not self.more_is_better

    def format_value(self, value: Any) -> str:
        """Format a value of the metric for people, with the spread over runs where it has one."""
        return human(value, _ROUNDED if self.rounded else self.name)

    def format_effect(self, value: float | None) -> str:
        """Format an effect, or an end of its interval, for people; a difference is shown like the metric itself."""
        return self.format_value(value) if self.effect == "difference" else human(value, self.effect)

    def format_ends(self, low: float, high: float) -> tuple[str, str]:
        """Format the ends of an interval for people; none is rounded to no effect."""
        return self._format_end(low), self._format_end(high)

    def _format_end(self, value: float) -> str:
        text, none = self.format_effect(value), 0.0 if self.effect == "difference" else 1.0
        if value == none or text.removeprefix("-") != self.format_effect(none):
            return text
        longer = (f"{value:.{digits}f}" for digits in range(4, _MAX_DECIMALS + 1))
        return next((each for each in longer if float(each) != none), str(value))

    @property
    def columns(self) -> tuple[str, ...]:
        """The columns of a comparison by this metric; for the throughput those of comparison.csv."""
        if self == THROUGHPUT:
            return COMPARISON_COLUMNS
        return (
            *("axis", "baseline", "candidate", "metric", "baseline_value", "candidate_value", self.effect),
            *("ci_low", "ci_high", "verdict", "reason", *self.count_columns),
        )

    @property
    def value_columns(self) -> tuple[str, str]:
        """The columns of the two sides' own values."""
        if self == THROUGHPUT:
            return "baseline_samples_per_second", "candidate_samples_per_second"
        return "baseline_value", "candidate_value"

    @property
    def count_columns(self) -> tuple[str, str]:
        """The columns that count the measured values of each side."""
        counted = "epochs" if self.per_epoch else "runs"
        return f"baseline_{counted}", f"candidate_{counted}"


def _rates(run: StoredRun) -> list[float]:
    """Return the samples a second of each measured turn, or of each measured epoch for a run without turns."""
    measured: Sequence[Turn | EpochRecord] = run.turns or run.epochs
    return [rate for each in measured if not each.warmup and (rate := each.samples_per_second)]


THROUGHPUT = Metric("samples_per_second", "speedup", _rates, True, True, "no samples_per_second")


TIME_TO = "time_to_"

EpochValue = Callable[[EpochRecord], float | None]


def recorded_metrics(runs: Iterable[StoredRun]) -> list[str]:
    """Return the names of the logged metrics, in order of first appearance; those of epochs before a run's summary."""
    names = (name for run in runs for name in (*metric_names(run.epochs), *summary_metrics(run.record)))
    return list(dict.fromkeys(names))


def recorded_units(runs: Iterable[StoredRun]) -> list[str]:
    """Return the names of the counted units, in order of first appearance."""
    return unit_names(epoch for run in runs for epoch in run.epochs)


def epoch_metric(text: str, name: str, *, at: At, more_is_better: bool, logged: bool) -> Metric:
    """Return the metric of a run's epoch: of the last one, or of the `best` one of those with a finite value.

    The last value is that of the run's summary, if it has one; the best one, if no epoch has one.

    `text` is the metric's name in a comparison, `name` the one in the record. The last epoch of a logged metric is the
    last one that logged it: a value that was not finite is missing, as in a column of its own. That of a column is
    `last_with_outcome`.
    """
    of_epoch = _logged_value(name) if logged else _column_value(name)

    def chosen(run: StoredRun) -> EpochRecord | None:
        if at == LAST:
            return _last(run, name) if logged else last_with_outcome(run.record, run.epochs, name)
        known = [epoch for epoch in run.epochs if (value := of_epoch(epoch)) is not None and math.isfinite(value)]
        sign = 1 if more_is_better else -1
        return max(known, key=lambda epoch: sign * (of_epoch(epoch) or 0.0), default=None)

    def values(run: StoredRun) -> list[float]:
        epoch, summary = chosen(run), run.record.summary or {}
        if name in summary and (at == LAST or epoch is None):
            value = summary[name]
        else:
            value = None if epoch is None else of_epoch(epoch)
        return [] if value is None else [value]

    def number_of(run: StoredRun) -> int | None:
        if at == LAST and name in (run.record.summary or {}):
            return None
        epoch = chosen(run)
        return None if epoch is None or of_epoch(epoch) is None else epoch.epoch

    def is_lost(run: StoredRun) -> bool:
        if at == LAST and name in (run.record.summary or {}):
            return not values(run)
        if not logged:  # a column does not tell what was not measured from what was not finite
            return at == LAST and not values(run) and any(of_epoch(epoch) is not None for epoch in run.epochs)
        if at == LAST:
            return not values(run) and _last(run, name) is not None
        return any((epoch.metrics or {}).get(name, 0.0) is None for epoch in run.epochs)

    lack = f"no finite {text}" if logged else f"no {text}"
    return Metric(
        *(text, "difference", values, False, more_is_better, lack),
        rounded=logged,
        at=at,
        of_epoch=of_epoch,
        epoch_of=number_of if logged or at != LAST else None,
        is_lost=is_lost,
    )


def time_to(text: str, name: str, target: float, *, more_is_better: bool, logged: bool) -> Metric:
    """Return the time to a metric: seconds of training to the end of the first epoch that reaches `target`."""
    of_epoch = _logged_value(name) if logged else _column_value(name)
    return _time_to(f"{TIME_TO}{text}={target:g}", of_epoch, target, more_is_better=more_is_better, rounded=True)


def time_to_accuracy(target: float) -> Metric:
    """Return the time to an accuracy: `val_accuracy`, or the training accuracy where an epoch has no validation."""

    def of_epoch(epoch: EpochRecord) -> float | None:
        return epoch.accuracy if epoch.val_accuracy is None else epoch.val_accuracy

    return _time_to(f"{TIME_TO}accuracy={target:g}", of_epoch, target, more_is_better=True, rounded=False)


def _time_to(name: str, of_epoch: EpochValue, target: float, *, more_is_better: bool, rounded: bool) -> Metric:
    """Return the seconds of training (`epoch_seconds`, with warm-up) to the first epoch that reaches `target`.

    Those of a run that continues another one were measured there.
    """

    def values(run: StoredRun) -> list[float]:
        if run.continued_from:
            return []
        spent = accumulate(epoch.epoch_seconds or 0.0 for epoch in run.epochs)
        for epoch, seconds in zip(run.epochs, spent, strict=True):
            value = of_epoch(epoch)
            if value is not None and seconds > 0 and (value >= target if more_is_better else value <= target):
                return [seconds]
        return []

    return Metric(name, "speedup", values, False, False, f"never reached {target:g}", rounded=rounded)


def unit_rate_metric(text: str, unit: str) -> Metric:
    """Return the throughput of a unit, named `text`: its count over the training seconds of each measured epoch."""

    def values(run: StoredRun) -> list[float]:
        return [rate for epoch in run.epochs if not epoch.warmup and (rate := unit_rate(epoch, unit))]

    return Metric(text, "speedup", values, True, True, f"no {text}", rounded=True)


BATCH_SIZE = "infer.batch_size"
"""What tells the rows of a comparison by inference apart: the size of its batches."""

_OF_INFERENCE = {
    "latency_p50_seconds": False,
    "latency_p90_seconds": False,
    "latency_p99_seconds": False,
    "inference_samples_per_second": True,
}
"""The metrics of inference, and whether more is better."""


def inference_metric(name: str, batch_size: int | None = None) -> Metric | None:
    """Return the metric of inference of that name; None for another name.

    It is that of batches of one size, or without `batch_size` of the only size that a run has measured.
    """
    if (more_is_better := _OF_INFERENCE.get(name)) is None:
        return None

    def values(run: StoredRun) -> list[float]:
        found = [each for each in run.record.measurements.inference or () if batch_size in (None, each.batch_size)]
        return [getattr(each, name) for each in found] if len(found) == 1 else []

    lack = f"no {name} of {'a single batch size' if batch_size is None else f'batches of {batch_size}'}"
    return Metric(name, "speedup", values, False, more_is_better, lack, rounded=more_is_better)  # a latency has a unit


def inference_names(runs: Iterable[StoredRun]) -> list[str]:
    """Return the metrics of inference, if any of the runs has measured it."""
    return list(_OF_INFERENCE) if any(run.record.measurements.inference for run in runs) else []


def by_batch_size(metric: Metric, runs: Iterable[StoredRun]) -> list[tuple[int | None, Metric]]:
    """Return a metric of inference for each batch size that the runs have measured; any other metric as it is."""
    sizes = sorted({each.batch_size for run in runs for each in run.record.measurements.inference or ()})
    of_sizes = [(size, found) for size in sizes if (found := inference_metric(metric.name, size)) is not None]
    return [*of_sizes] or [(None, metric)]


def _last(run: StoredRun, name: str) -> EpochRecord | None:
    return next((epoch for epoch in reversed(run.epochs) if name in (epoch.metrics or {})), None)


def _logged_value(name: str) -> EpochValue:
    return lambda epoch: (epoch.metrics or {}).get(name)


def _column_value(name: str) -> EpochValue:
    def value(epoch: EpochRecord) -> float | None:
        found: float | None = getattr(epoch, name)
        return found

    return value

"""Metrics of epochs: what the epochs of a sweep recorded, and its value for a run; rates of any unit."""

import math
from collections.abc import Callable, Iterable
from itertools import accumulate

from runmanager.records.run.run_record import EpochRecord
from runmanager.records.storage.reader import StoredRun
from runmanager.results.load.run_summary import (
    last_with_outcome,
    metric_names,
    summary_metrics,
    unit_names,
    unit_rate,
)
from runmanager.results.metrics.metric import LAST, At, Metric

__all__ = [
    *("TIME_TO", "epoch_metric", "recorded_metrics", "recorded_units", "time_to", "time_to_accuracy"),
    "unit_rate_metric",
]

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


def _last(run: StoredRun, name: str) -> EpochRecord | None:
    return next((epoch for epoch in reversed(run.epochs) if name in (epoch.metrics or {})), None)


def _logged_value(name: str) -> EpochValue:
    return lambda epoch: (epoch.metrics or {}).get(name)


def _column_value(name: str) -> EpochValue:
    def value(epoch: EpochRecord) -> float | None:
        found: float | None = getattr(epoch, name)
        return found

    return value

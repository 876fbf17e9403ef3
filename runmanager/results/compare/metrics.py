"""The metrics that runs can be compared by: their values of a run, and which direction is better."""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import accumulate
from typing import Literal

from runmanager.errors import UsageError
from runmanager.records.run.run_record import EpochRecord
from runmanager.records.run.turn_record import Turn
from runmanager.records.storage.reader import StoredRun
from runmanager.results.load.run_summary import OVERALL_RATE, measured_epochs, overall_rate
from runmanager.results.table_model.columns import COMPARISON_COLUMNS
from runmanager.results.table_model.formatting import human
from runmanager.validation import did_you_mean

__all__ = ["MEMORY", "METRIC_NAMES", "PLAIN_METRICS", "RUN_TIME", "THROUGHPUT", "Effect", "Metric", "find_metric"]

Effect = Literal["speedup", "ratio", "difference"]
TIME_TO = "time_to_accuracy"


@dataclass(frozen=True)
class Metric:
    """A metric of runs, and the effect by which two sides are compared.

    `effect` is the name of its column. A `speedup` is above 1 where the candidate is faster, also where the metric is a
    time; a `ratio` is candidate / baseline, a `difference` candidate - baseline. `per_epoch` metrics have a value for
    each measured epoch, the others one for the run. `lack` describes a run without a value.
    """

    name: str
    effect: Effect
    values: Callable[[StoredRun], list[float]]
    per_epoch: bool
    more_is_better: bool
    lack: str

    @property
    def is_time(self) -> bool:
        """Whether smaller values are a speedup."""
        return self.effect == "speedup" and not self.more_is_better

    def verdict_word(self, direction: int) -> str:
        """Return the verdict on an effect above (1) or below (-1) no effect."""
        if self.effect == "speedup":
            return "faster" if direction > 0 else "slower"
        return "better" if (direction > 0) == self.more_is_better else "worse"

    def format_effect(self, value: float | None) -> str:
        """Format an effect, or an end of its interval, for people; a difference is shown like the metric itself."""
        return human(value, self.name if self.effect == "difference" else self.effect)

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


def _each_epoch(name: str, *, more_is_better: bool) -> Metric:
    def values(run: StoredRun) -> list[float]:
        return [value for epoch in run.epochs if not epoch.warmup and (value := getattr(epoch, name))]

    return Metric(name, "speedup", values, True, more_is_better, f"no {name}")


def _last_epoch(name: str, *, more_is_better: bool) -> Metric:
    def values(run: StoredRun) -> list[float]:
        value = getattr(run.epochs[-1], name) if run.epochs else None
        return [] if value is None else [value]

    return Metric(name, "difference", values, False, more_is_better, f"no {name}")


def _whole_run(name: str, effect: Effect) -> Metric:
    def values(run: StoredRun) -> list[float]:
        value = getattr(run.record, name)
        return [value] if value else []

    return Metric(name, effect, values, False, False, f"no {name}")


def _time_to(target: float) -> Metric:
    """Seconds of training (`epoch_seconds`, with warm-up) to the end of the first epoch that reaches `target`.

    The accuracy is `val_accuracy`, or the training accuracy where a run has no validation.
    """

    def values(run: StoredRun) -> list[float]:
        spent = accumulate(epoch.epoch_seconds or 0.0 for epoch in run.epochs)
        for epoch, seconds in zip(run.epochs, spent, strict=True):
            accuracy = epoch.accuracy if epoch.val_accuracy is None else epoch.val_accuracy
            if accuracy is not None and accuracy >= target and seconds > 0:
                return [seconds]
        return []

    return Metric(f"{TIME_TO}={target:g}", "speedup", values, False, False, f"never reached {target:g}")


def _rates(run: StoredRun) -> list[float]:
    """Return the samples a second of each measured turn, or of each measured epoch for a run without turns."""
    measured: Sequence[Turn | EpochRecord] = run.turns or run.epochs
    return [rate for each in measured if not each.warmup and (rate := each.samples_per_second)]


def _overall(run: StoredRun) -> list[float]:
    rate = overall_rate(measured_epochs(run))
    return [] if rate is None else [rate]


THROUGHPUT = Metric("samples_per_second", "speedup", _rates, True, True, "no samples_per_second")
OVERALL_THROUGHPUT = Metric(OVERALL_RATE, "speedup", _overall, False, True, f"no {OVERALL_RATE}")
RUN_TIME = _whole_run("run_seconds", "speedup")
MEMORY = _whole_run("peak_memory_bytes", "ratio")

_METRICS = (
    THROUGHPUT,
    OVERALL_THROUGHPUT,
    _each_epoch("epoch_seconds", more_is_better=False),
    _each_epoch("wall_seconds", more_is_better=False),
    RUN_TIME,
    *(_last_epoch(name, more_is_better=True) for name in ("accuracy", "val_accuracy")),
    *(_last_epoch(name, more_is_better=False) for name in ("loss", "val_loss")),
    MEMORY,
)
_BY_NAME = {metric.name: metric for metric in _METRICS}
PLAIN_METRICS: Sequence[str] = tuple(_BY_NAME)
METRIC_NAMES: Sequence[str] = (*PLAIN_METRICS, f"{TIME_TO}=SHARE")


def find_metric(text: str) -> Metric:
    """Return the metric of that name; `time_to_accuracy=0.95` includes its target.

    Raises `UsageError` for an unknown metric, and for a target that is not an accuracy.
    """
    name, separator, target = text.partition("=")
    if name == TIME_TO:
        return _time_to(_parse_accuracy(target, text))
    if separator or name not in _BY_NAME:
        way_out = did_you_mean(name, [*_BY_NAME, TIME_TO], max_names=1) or f"they are {', '.join(METRIC_NAMES)}."
        raise UsageError(f"`--metric` must be a metric of the runs, got '{text}'; {way_out}")
    return _BY_NAME[name]


def _parse_accuracy(target_text: str, text: str) -> float:
    try:
        target = float(target_text)
    except ValueError:
        target = math.nan
    if not 0 < target <= 1:
        raise UsageError(f"`--metric` must name an accuracy above 0 and at most 1, got '{text}'; as in {TIME_TO}=0.95.")
    return target

"""A metric that runs can be compared by: its values of a run, the effect of two sides, and how both are shown."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from runmanager.records.run.measurement import Effect
from runmanager.records.run.run_record import EpochRecord
from runmanager.records.run.turn_record import Turn
from runmanager.records.storage.reader import StoredRun
from runmanager.results.table_model.columns import COMPARISON_COLUMNS
from runmanager.results.table_model.formatting import human

__all__ = ["LAST", "THROUGHPUT", "At", "Metric"]

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

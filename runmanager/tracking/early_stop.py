"""When a run has stopped getting better."""

from dataclasses import dataclass, field

from runmanager.records.run.record import EpochRecord
from runmanager.validation import limits

__all__ = ["METRICS", "EarlyStop", "EarlyStopOptions", "is_better"]

METRICS = {"loss": -1, "accuracy": 1, "val_loss": -1, "val_accuracy": 1}
"""What can be watched, and which way is better: 1 up, -1 down."""


@dataclass(frozen=True)
class EarlyStopOptions:
    """Stop after `patience` epochs in which `metric` got better by no more than `min_delta`; null never stops."""

    metric: str | None = field(default=None, metadata=limits(choices=METRICS))
    patience: int = field(default=3, metadata=limits(ge=1))
    min_delta: float = field(default=0.0, metadata=limits(ge=0))


def is_better(metric: str, value: float, best: float | None, *, by: float = 0.0) -> bool:
    """Whether `value` of `metric` is better than the `best` before it by more than `by`; anything is, than None."""
    return best is None or METRICS[metric] * (value - best) > by


class EarlyStop:
    """Learns of one epoch after the other, so that a long run's last epochs cost no more than its first."""

    def __init__(self, options: EarlyStopOptions) -> None:
        self._options = options
        self._best: float | None = None
        self._best_epoch = 0

    def reason(self, record: EpochRecord) -> str | None:
        """Why to stop after this epoch, in words; None to go on. Epochs without the metric are passed over."""
        if self._options.metric is None:
            return None
        value = getattr(record, self._options.metric)
        by = self._options.min_delta
        if value is not None and record.epoch > 0 and is_better(self._options.metric, value, self._best, by=by):
            self._best, self._best_epoch = value, record.epoch
        if self._best is None or record.epoch - self._best_epoch < self._options.patience:
            return None
        return f"{self._options.metric} was best in epoch {self._best_epoch} ({self._best:.4g})"

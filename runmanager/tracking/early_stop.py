"""When a run has stopped getting better."""

from collections.abc import Sequence
from dataclasses import dataclass

from runmanager.records.run import EpochRecord

__all__ = ["METRICS", "EarlyStopOptions", "is_better", "reason_to_stop"]

METRICS = {"loss": -1, "accuracy": 1, "val_loss": -1, "val_accuracy": 1}
"""What can be watched, and which way is better: 1 up, -1 down."""


@dataclass(frozen=True)
class EarlyStopOptions:
    """Stop after `patience` epochs in which `metric` got better by no more than `min_delta`; null never stops."""

    metric: str | None = None
    patience: int = 3
    min_delta: float = 0.0


def is_better(metric: str, value: float, best: float | None, *, by: float = 0.0) -> bool:
    """Whether `value` of `metric` is better than the `best` before it by more than `by`; anything is, than None."""
    return best is None or METRICS[metric] * (value - best) > by


def reason_to_stop(history: Sequence[EpochRecord], options: EarlyStopOptions) -> str | None:
    """Why to stop after these epochs, in words; None to go on. Epochs without the metric are passed over."""
    if options.metric is None:
        return None
    best, best_epoch = None, 0
    for record in history:
        value = getattr(record, options.metric)
        if value is None or record.epoch == 0:
            continue
        if is_better(options.metric, value, best, by=options.min_delta):
            best, best_epoch = value, record.epoch
    if best is None or history[-1].epoch - best_epoch < options.patience:
        return None
    return f"{options.metric} was best in epoch {best_epoch} ({best:.4g})"

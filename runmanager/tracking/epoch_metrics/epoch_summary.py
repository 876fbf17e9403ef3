"""The record of a closed epoch, from its means, its times and what the program logged."""

import math
from collections.abc import Mapping

import msgspec

from runmanager.records.run.run_record import EpochRecord
from runmanager.tracking.epoch_metrics.epoch_totals import EpochTotals
from runmanager.tracking.timing.timer import TRAINING

__all__ = ["epoch_record"]

_LOSSES = ("loss", "val_loss")
_COLUMNS = (*_LOSSES, "accuracy", "val_accuracy")


def epoch_record(number: int, totals: EpochTotals) -> EpochRecord:
    """Return the record of an epoch that has measured `totals`."""
    train, evaluated, seconds = totals.train, totals.evaluated, totals.seconds
    least = 0.0 if totals.seen else None
    data, transfer, compute = (seconds.get(name, least) for name in ("data", "transfer", "compute"))
    if train.samples and "transfer" not in seconds:
        transfer = None  # the loop does not tell it from `data`
    rest = seconds.get(TRAINING, 0.0)
    epoch_seconds = sum((data or 0.0, transfer or 0.0, compute or 0.0, rest))
    if data is not None:  # with `batches`, the rest of the training time is computing
        compute = (compute or 0.0) + rest
    record = EpochRecord(
        epoch=number,
        loss=train.loss,
        accuracy=train.accuracy,
        val_loss=evaluated.loss,
        val_accuracy=evaluated.accuracy,
        epoch_seconds=epoch_seconds if number else None,
        samples=train.samples,
        data_seconds=data,
        transfer_seconds=transfer,
        compute_seconds=compute,
        eval_seconds=seconds.get("eval"),
        tracking_seconds=seconds.get("tracking", 0.0),
    )
    return _with_metrics(record, totals.values, totals.units)


def _with_metrics(record: EpochRecord, values: Mapping[str, float], units: Mapping[str, int]) -> EpochRecord:
    """Return the record with logged values and units.

    Values with the name of a column fill it, unless the run computed its own. Those that are not finite become None,
    except that of a loss, as it means that the run diverged.
    """
    columns = {name: values[name] for name in _COLUMNS if name in values and getattr(record, name) is None}
    filled = {name: value if name in _LOSSES else _finite(value) for name, value in columns.items()}
    metrics = {name: _finite(value) for name, value in values.items() if name not in columns}
    return msgspec.structs.replace(
        record, **filled, metrics=metrics or msgspec.UNSET, units=dict(units) or msgspec.UNSET
    )


def _finite(value: float) -> float | None:
    return value if math.isfinite(value) else None

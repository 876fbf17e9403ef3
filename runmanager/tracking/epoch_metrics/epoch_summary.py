"""The record of a closed epoch, of its parts too: from its means, its times and what the program logged."""

import math
import time
from collections.abc import Callable, Mapping
from typing import Any

import msgspec

from runmanager.records.run.measurement import LOSSES, METRICS
from runmanager.records.run.run_record import TRAINING_PHASES, EpochRecord
from runmanager.tracking.epoch_metrics.epoch_meter import EpochMeter
from runmanager.tracking.epoch_metrics.epoch_totals import EpochTotals
from runmanager.tracking.epoch_metrics.logged_metrics import EpochMetrics
from runmanager.tracking.epoch_part import EpochPart
from runmanager.tracking.timing.timer import TRAINING


class EpochParts:
    """Lets the meters of a new epoch continue after `earlier`, what it has given before a checkpoint within it."""

    def __init__(
        self, earlier: EpochPart | None, *, trained: EpochMeter, evaluated: EpochMeter, metrics: EpochMetrics
    ) -> None:
        self._earlier = earlier
        self._trained = trained
        self._evaluated = evaluated
        self._metrics = metrics
        if earlier is not None:
            trained.restore(earlier.trained)
            evaluated.restore(earlier.evaluated)
            metrics.restore(earlier.metrics, earlier.series, earlier.units)

    @property
    def are_several(self) -> bool:
        """Whether there is an earlier part."""
        return self._earlier is not None

    @property
    def earlier_steps(self) -> int:
        """The number of steps in the earlier part."""
        return self._earlier.num_steps if self._earlier else 0

    @property
    def earlier_seconds(self) -> float:
        """The wall time of the earlier part."""
        return self._earlier.wall_seconds if self._earlier else 0.0

    def total_seconds(self, seconds: Mapping[str, float]) -> dict[str, float]:
        """Return the seconds by phase, with those of the earlier part."""
        before = self._earlier.seconds if self._earlier else {}
        return {name: seconds.get(name, 0.0) + before.get(name, 0.0) for name in {**before, **seconds}}

    def so_far(self, number: int, *, num_steps: int, seconds: Mapping[str, float], begun_at: float) -> EpochPart:
        """Return what the epoch has given so far, for a checkpoint; waits for the device.

        `num_steps` and `seconds` by phase are those since `begun_at` in this process.
        """
        return EpochPart(
            number,
            num_steps=self.earlier_steps + num_steps,
            seconds=self.total_seconds(seconds),
            wall_seconds=self.earlier_seconds + time.perf_counter() - begun_at,
            trained=self._trained.state(),
            evaluated=self._evaluated.state(),
            metrics=self._metrics.state(),
            units=dict(self._metrics.units),
            series=self._metrics.series_state(),
        )

    def drop_partial_metrics(self, is_complete: Callable[[Any], bool]) -> list[str]:
        """Drop and reset logged accumulators that have not seen the earlier part; return their names."""
        return self._metrics.drop_partial(is_complete) if self._earlier else []


def epoch_record(number: int, totals: EpochTotals) -> EpochRecord:
    """Return the record of an epoch that has measured `totals`."""
    train, evaluated, seconds = totals.train, totals.evaluated, totals.seconds
    least = 0.0 if totals.seen else None
    data, transfer, compute = (seconds.get(name, least) for name in TRAINING_PHASES)
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
    columns = {name: values[name] for name in METRICS if name in values and getattr(record, name) is None}
    filled = {name: value if name in LOSSES else _finite(value) for name, value in columns.items()}
    metrics = {name: _finite(value) for name, value in values.items() if name not in columns}
    return msgspec.structs.replace(
        record, **filled, metrics=metrics or msgspec.UNSET, units=dict(units) or msgspec.UNSET
    )


def _finite(value: float) -> float | None:
    return value if math.isfinite(value) else None

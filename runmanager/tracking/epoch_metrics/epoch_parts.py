"""The parts of an epoch within which a run was resumed: continues the sums of the earlier ones, and adds them up."""

import time
from collections.abc import Callable, Mapping
from typing import Any

from runmanager.tracking.epoch_metrics.epoch_meter import EpochMeter
from runmanager.tracking.epoch_metrics.logged_metrics import EpochMetrics
from runmanager.tracking.epoch_part import EpochPart

__all__ = ["EpochParts"]


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

"""How long a run has run: over all its attempts, without what it waited for its turns."""

import time

from runmanager.records.run.record import EpochRecord
from runmanager.tracking.epoch import with_walls
from runmanager.tracking.timing.interleaving import Turns
from runmanager.tracking.timing.timer import PhaseTimer

__all__ = ["RunClock"]


class RunClock:
    """A run's seconds, from now on; `before` are those of its earlier attempts."""

    def __init__(self, timer: PhaseTimer, turns: Turns | None) -> None:
        self.before = 0.0
        self._timer = timer
        self._turns = turns
        self._begun_at = time.perf_counter()

    def seconds(self) -> float:
        """The run's seconds so far."""
        waited = self._turns.waited_seconds if self._turns else 0.0
        return self.before + time.perf_counter() - self._begun_at - waited

    def with_walls(self, record: EpochRecord) -> EpochRecord:
        """The record of the epoch that the timer was stopped for, with all that was done since (see `with_walls`)."""
        begun_at, ended_at = self._timer.begun_at, self._timer.ended_at
        return with_walls(record, begun_at=begun_at, ended_at=ended_at, run_seconds=self.seconds())

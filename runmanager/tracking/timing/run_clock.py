"""The elapsed time of a run: over all its attempts, without the time spent waiting for turns."""

import time

import msgspec

from runmanager.records.run.run_record import EpochRecord
from runmanager.tracking.timing.interleaving import RunTurns
from runmanager.tracking.timing.timer import PhaseTimer

__all__ = ["RunClock", "without_wall_times"]


class RunClock:
    """Counts a run's seconds from its creation; `earlier_seconds` are those of earlier attempts."""

    def __init__(self, timer: PhaseTimer, turns: RunTurns | None) -> None:
        self.earlier_seconds = 0.0
        self._timer = timer
        self._turns = turns
        self._begun_at = time.perf_counter()

    def seconds(self) -> float:
        """Return the run's seconds so far."""
        waited = self._turns.waited_seconds if self._turns else 0.0
        return self.earlier_seconds + time.perf_counter() - self._begun_at - waited

    def with_wall_times(
        self, record: EpochRecord, *, earlier_seconds: float = 0.0, waited_seconds: float = 0.0
    ) -> EpochRecord:
        """Complete the last epoch's record: everything since its last phase ended counts as tracking.

        `earlier_seconds` is the wall time of its part in an earlier process. `waited_seconds` of that time are in its
        phases already: those in which a slower rank trained.
        """
        run_seconds, now = self.seconds(), time.perf_counter()
        return msgspec.structs.replace(
            record,
            tracking_seconds=(record.tracking_seconds or 0.0) + now - self._timer.ended_at - waited_seconds,
            wall_seconds=earlier_seconds + now - self._timer.begun_at,
            run_seconds=run_seconds,
        )


def without_wall_times(record: EpochRecord) -> EpochRecord:
    """Return the record as sinks get it: their own time is not over yet."""
    return msgspec.structs.replace(record, tracking_seconds=None, wall_seconds=None)

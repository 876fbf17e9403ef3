"""Time limits of a job: its total time, and the time without a step."""

import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from runmanager.records.run.heartbeat import Beat, read_beat
from runmanager.records.run.status import Outcome, Reason, Status

__all__ = ["LimitWatch", "Limits"]

_MAX_SILENCE_SECONDS = 10.0  # a missing beat: a busy machine or a hanging job does not let its thread run


@dataclass(frozen=True)
class Limits:
    """Seconds after which a job is killed: since its start, and since its last step as in its `heartbeat` file."""

    timeout: float | None = None
    stall_timeout: float | None = None
    heartbeat: Path | None = None


class LimitWatch:
    """Watches one try of a job; created when it starts."""

    def __init__(self, limits: Limits, *, clock: Callable[[], float] = time.monotonic) -> None:
        self._limits = limits
        self._clock = clock
        self._started_at = self._advanced_at = clock()
        self._last_beat = self._read_beat()

    def verdict(self) -> Outcome | None:
        """Return the outcome for which the job is to be killed; None while it is within its limits."""
        now = self._clock()
        timeout = self._limits.timeout
        if timeout is not None and now - self._started_at >= timeout:
            return Outcome(Status.KILLED, Reason.TIMEOUT, f"longer than timeout={timeout:g} s")
        stall = self._limits.stall_timeout
        if stall is not None and self._stalled_seconds(now, stall) >= stall:
            return Outcome(Status.KILLED, Reason.STALLED, f"no step for stall_timeout={stall:g} s")
        return None

    def _read_beat(self) -> Beat | None:
        path = self._limits.heartbeat
        return read_beat(path) if path is not None and self._limits.stall_timeout is not None else None

    def _stalled_seconds(self, now: float, stall: float) -> float:
        beat = self._read_beat()
        if (beat and beat.progress) != (self._last_beat and self._last_beat.progress):
            self._last_beat, self._advanced_at = beat, now
        stalled = now - self._advanced_at
        if beat is not None and beat == self._last_beat and stalled < stall + _MAX_SILENCE_SECONDS:
            return 0.0  # no beat since the one with this progress: the next may show more
        return stalled

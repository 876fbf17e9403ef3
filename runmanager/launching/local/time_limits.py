"""How long a job may take, and how long it may make no step: when one of both is over, and in what words."""

import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from runmanager.records.run.heartbeat import Beat, read_beat
from runmanager.records.run.status import Outcome, Reason, Status

__all__ = ["LimitWatch", "Limits"]

_MISSED_SECONDS = 10.0  # without a beat at all: its thread is not let run, by a busy machine or by a job that hangs


@dataclass(frozen=True)
class Limits:
    """Seconds until a job is killed: since its start, and since its last step, as its `heartbeat` file tells."""

    timeout: float | None = None
    stall_timeout: float | None = None
    heartbeat: Path | None = None


class LimitWatch:
    """Watches one try of a job from its start on."""

    def __init__(self, limits: Limits, *, clock: Callable[[], float] = time.monotonic) -> None:
        self._limits = limits
        self._clock = clock
        self._began = self._advanced = clock()
        self._seen = self._heard()

    def verdict(self) -> Outcome | None:
        """What the job is to be killed for, None while it keeps within its limits."""
        now = self._clock()
        timeout = self._limits.timeout
        if timeout is not None and now - self._began >= timeout:
            return Outcome(Status.KILLED, Reason.TIMEOUT, f"longer than timeout={timeout:g} s")
        stall = self._limits.stall_timeout
        if stall is not None and self._still_seconds(now, stall) >= stall:
            return Outcome(Status.KILLED, Reason.STALLED, f"no step for stall_timeout={stall:g} s")
        return None

    def _heard(self) -> Beat | None:
        path = self._limits.heartbeat
        return read_beat(path) if path is not None and self._limits.stall_timeout is not None else None

    def _still_seconds(self, now: float, stall: float) -> float:
        beat = self._heard()
        if (beat and beat.progress) != (self._seen and self._seen.progress):
            self._seen, self._advanced = beat, now
        still = now - self._advanced
        if beat is not None and beat == self._seen and still < stall + _MISSED_SECONDS:
            return 0.0  # the beat that showed this progress is still the last: the next may show more
        return still

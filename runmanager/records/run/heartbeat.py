"""Heartbeats: a small file that a run's process rewrites every few seconds, and how readers judge it."""

import datetime
import math
import os
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from runmanager.records.files.atomic_files import read_bytes
from runmanager.records.files.paths import RunPaths
from runmanager.records.run.run_record import RunRecord
from runmanager.records.run.status import Outcome, Reason, Status

BEAT_SECONDS = 2.0
"""Interval of a run's heartbeats."""

SILENT_AFTER_SECONDS = 60.0
"""How long a reader on another host waits for a beat before it considers the run's process gone."""

_LEAST_TIMEOUT = 5 * BEAT_SECONDS  # a busy machine and a network file system may each delay a beat
_WIDTH = 20  # digits of the largest 64-bit number
_LATEST = int(datetime.datetime.max.replace(tzinfo=datetime.UTC).timestamp())


@dataclass(frozen=True)
class Beat:
    """One heartbeat: `counter` rises with every beat, `progress` with every batch and every end of an epoch.

    `unix_seconds` is the time of writing by the clock of the run's host.
    """

    counter: int
    progress: int
    unix_seconds: int = 0

    @property
    def at(self) -> datetime.datetime:
        """When the beat was written."""
        return datetime.datetime.fromtimestamp(self.unix_seconds, datetime.UTC)


def write_beat(path: Path, beat: Beat) -> None:
    """Overwrite the file with this beat. Raises `OSError`.

    The size of the file is fixed, so that a full disk does not matter. The file is closed each time, so that a network
    file system publishes it. It is not synced, because a beat matters only now.
    """
    text = " ".join(f"{number:0{_WIDTH}d}" for number in (beat.counter, beat.progress, beat.unix_seconds))
    handle = os.open(path, os.O_WRONLY | os.O_CREAT, 0o666)
    try:
        os.pwrite(handle, f"{text}\n".encode(), 0)
    finally:
        os.close(handle)


def read_beat(path: Path) -> Beat | None:
    """Read the last beat; None if the file is missing, incomplete or of an impossible time."""
    try:
        numbers = read_bytes(path).split()
        if [len(number) for number in numbers] == [_WIDTH] * 3:
            beat = Beat(*map(int, numbers))
            return beat if 0 <= beat.unix_seconds < _LATEST else None
    except (OSError, ValueError):
        pass
    return None


def describe_last_heartbeat(beat: Beat | None) -> str:
    """Describe when the last heartbeat of a run on another host was written."""
    return f"last heartbeat {beat.at:%Y-%m-%d %H:%M:%S} UTC" if beat else "no heartbeat"


def timeout_faults(name: str, seconds: float) -> list[str]:
    """Return error messages for an invalid heartbeat timeout."""
    if math.isfinite(seconds) and seconds >= _LEAST_TIMEOUT:
        return []
    return [
        f"`{name}` must be a number of seconds of at least {_LEAST_TIMEOUT:g}, got {seconds:g}; "
        f"a run beats every {BEAT_SECONDS:g} s."
    ]


def observed_by_heartbeat(record: RunRecord, *, silent_seconds: float, limit_seconds: float) -> RunRecord:
    """Return this record with its true status, on any host.

    On the run's own host its process decides immediately. On another host, a run that says `running` reads `crashed`
    if the reader has seen no beat for `limit_seconds`.
    """
    record = record.observed()
    if not record.is_running_elsewhere or silent_seconds < limit_seconds:
        return record
    assert record.owner is not None
    message = f"no sign of life from process {record.owner.pid} on {record.owner.host} for {limit_seconds:g} s"
    return record.ended(Outcome(Status.CRASHED, Reason.VANISHED, message), at=record.ended_at)


class HeartbeatObserver:
    """Watches the heartbeats of runs by the reader's own clock, because clocks of two machines never agree.

    `limit_seconds` without a beat mean that a run's process is gone. `wait` lets time pass between two readings.
    """

    def __init__(
        self,
        *,
        limit_seconds: float = SILENT_AFTER_SECONDS,
        clock: Callable[[], float] = time.monotonic,
        wait: Callable[[float], object] = time.sleep,
    ) -> None:
        self.limit_seconds = limit_seconds
        self.clock = clock
        self.wait = wait
        self._seen: dict[Path, tuple[tuple[int, Beat | None], float]] = {}

    def observed(self, paths: RunPaths, record: RunRecord) -> RunRecord:
        """Read the run's heartbeat again and return the record with its true status; call it every few seconds."""
        if not record.is_running_elsewhere:
            return record.observed()
        now = self.clock()
        state = (record.attempt, read_beat(paths.heartbeat))
        earlier, since = self._seen.get(paths.root, (None, now))
        if state != earlier:
            since = now
        self._seen[paths.root] = (state, since)
        return observed_by_heartbeat(record, silent_seconds=now - since, limit_seconds=self.limit_seconds)

"""A run's sign of life: a small file that its process writes anew every few seconds, and what a reader makes of it."""

import datetime
import math
import os
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from runmanager.records.files.atomic_files import read_bytes
from runmanager.records.files.paths import RunPaths
from runmanager.records.run.record import RunRecord
from runmanager.records.run.status import Outcome, Reason, Status

__all__ = [
    "BEAT_SECONDS",
    "SILENT_AFTER_SECONDS",
    "Beat",
    "HeartbeatObserver",
    "describe_last_heartbeat",
    "observed_by_heartbeat",
    "read_beat",
    "timeout_faults",
    "write_beat",
]

BEAT_SECONDS = 2.0
"""How often a run beats."""

SILENT_AFTER_SECONDS = 60.0
"""How long a reader on another machine sees no beat before it takes the run's process for gone."""

_LEAST_TIMEOUT = 5 * BEAT_SECONDS  # a busy machine and a network file system may each hold a beat back
_WIDTH = 20  # digits of the largest 64-bit number


@dataclass(frozen=True)
class Beat:
    """`counter` rises with every beat, `progress` with every batch handed out and every epoch's end.

    `unix_seconds` is when it was written, by the clock of the run's own host.
    """

    counter: int
    progress: int
    unix_seconds: int = 0

    @property
    def at(self) -> datetime.datetime:
        """When it was written."""
        return datetime.datetime.fromtimestamp(self.unix_seconds, datetime.UTC)


def write_beat(path: Path, beat: Beat) -> None:
    """Write the beat over the one before. Raises `OSError`.

    The file has one size, so a full disk does not stop it; closed each time, so that a network file system passes it
    on. No sync: a beat is for those who look now.
    """
    words = " ".join(f"{number:0{_WIDTH}d}" for number in (beat.counter, beat.progress, beat.unix_seconds))
    handle = os.open(path, os.O_WRONLY | os.O_CREAT, 0o644)
    try:
        os.pwrite(handle, f"{words}\n".encode(), 0)
    finally:
        os.close(handle)


def read_beat(path: Path) -> Beat | None:
    """The last beat; None where there is none, or only a part of one."""
    try:
        words = read_bytes(path).split()
        if [len(word) for word in words] == [_WIDTH] * 3:
            return Beat(*map(int, words))
    except (OSError, ValueError):
        pass
    return None


def describe_last_heartbeat(beat: Beat | None) -> str:
    """When a run that cannot be seen from here was last heard of, in words."""
    return f"last heartbeat {beat.at:%Y-%m-%d %H:%M:%S} UTC" if beat else "no heartbeat"


def timeout_faults(name: str, seconds: float) -> list[str]:
    """What is wrong with a time after which a silent run is taken for gone, as readable lines."""
    if math.isfinite(seconds) and seconds >= _LEAST_TIMEOUT:
        return []
    return [
        f"`{name}` must be a number of seconds of at least {_LEAST_TIMEOUT:g}, got {seconds:g}; "
        f"a run beats every {BEAT_SECONDS:g} s."
    ]


def observed_by_heartbeat(record: RunRecord, *, silent_seconds: float, limit_seconds: float) -> RunRecord:
    """This record as it truly stands, read on any machine.

    On the run's own machine its process decides at once. Elsewhere a run that says `running` reads `crashed` when the
    reader has seen no beat for `limit_seconds`.
    """
    record = record.observed()
    if not record.is_running_elsewhere or silent_seconds < limit_seconds:
        return record
    assert record.owner is not None
    message = f"no sign of life from process {record.owner.pid} on {record.owner.host} for {limit_seconds:g} s"
    return record.ended(Outcome(Status.CRASHED, Reason.VANISHED, message), at=record.ended_at)


class HeartbeatObserver:
    """Watches the heartbeats of runs by the reader's own clock: those of two machines never agree.

    `wait` is how the reader lets time pass between two looks.
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
        """The record as it stands after another look at the run's heartbeat; call it every few seconds."""
        if not record.is_running_elsewhere:
            return record.observed()
        now = self.clock()
        mark = (record.attempt, read_beat(paths.heartbeat))
        earlier, since = self._seen.get(paths.root, (None, now))
        if mark != earlier:
            since = now
        self._seen[paths.root] = (mark, since)
        return observed_by_heartbeat(record, silent_seconds=now - since, limit_seconds=self.limit_seconds)

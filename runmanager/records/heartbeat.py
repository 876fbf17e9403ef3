"""A run's sign of life: a small file that its process writes anew every few seconds, and what a reader makes of it."""

import os
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from runmanager.records.paths import RunPaths
from runmanager.records.run import RunRecord
from runmanager.records.states import Outcome, Reason, Status

__all__ = ["SILENT_AFTER_SECONDS", "Beat", "HeartbeatObserver", "judged_by_heartbeat", "read_beat", "write_beat"]

SILENT_AFTER_SECONDS = 60.0
"""How long a reader on another machine sees no beat before it takes the run's process for gone."""

_WIDTH = 20  # digits of the largest 64-bit number


@dataclass(frozen=True)
class Beat:
    """`counter` rises with every beat, `progress` with every batch handed out and every epoch's end."""

    counter: int
    progress: int


def write_beat(path: Path, beat: Beat) -> None:
    """Write the beat over the one before. Raises `OSError`.

    The file has one size, so a full disk does not stop it; closed each time, so that a network file system passes it
    on. No sync: a beat is for those who look now.
    """
    handle = os.open(path, os.O_WRONLY | os.O_CREAT, 0o644)
    try:
        os.pwrite(handle, f"{beat.counter:0{_WIDTH}d} {beat.progress:0{_WIDTH}d}\n".encode(), 0)
    finally:
        os.close(handle)


def read_beat(path: Path) -> Beat | None:
    """The last beat; None where there is none, or only a part of one."""
    try:
        counter, progress = path.read_bytes().split()
        if len(counter) == len(progress) == _WIDTH:
            return Beat(int(counter), int(progress))
    except (OSError, ValueError):
        pass
    return None


def judged_by_heartbeat(record: RunRecord, *, silent_seconds: float, limit_seconds: float) -> RunRecord:
    """This record as it truly stands, read on any machine.

    On the run's own machine its process decides at once. Elsewhere a run that says `running` reads `crashed` when the
    reader has seen no beat for `limit_seconds`.
    """
    record = record.observed()
    if record.status is not Status.RUNNING or record.owner is None or record.owner.is_alive() is not None:
        return record
    if silent_seconds < limit_seconds:
        return record
    message = f"no sign of life from process {record.owner.pid} on {record.owner.host} for {silent_seconds:.0f} s"
    return record.ended(Outcome(Status.CRASHED, Reason.VANISHED, message), at=record.ended_at)


class HeartbeatObserver:
    """Watches the heartbeats of runs by the reader's own clock: those of two machines never agree."""

    def __init__(
        self, *, limit_seconds: float = SILENT_AFTER_SECONDS, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._limit_seconds = limit_seconds
        self._clock = clock
        self._seen: dict[Path, tuple[tuple[int, Beat | None], float]] = {}

    def observed(self, paths: RunPaths, record: RunRecord) -> RunRecord:
        """The record as it stands after another look at the run's heartbeat; call it every few seconds."""
        now = self._clock()
        mark = (record.attempt, read_beat(paths.heartbeat))
        earlier, since = self._seen.get(paths.root, (None, now))
        if mark != earlier:
            since = now
        self._seen[paths.root] = (mark, since)
        return judged_by_heartbeat(record, silent_seconds=now - since, limit_seconds=self._limit_seconds)

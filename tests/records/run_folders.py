"""Run folders as other processes leave them, and an observer whose clock the test controls."""

from collections.abc import Callable

from runmanager.records.files.paths import RunPaths
from runmanager.records.run.heartbeat import HeartbeatObserver
from runmanager.records.run.run_record import EpochRecord, RunRecord
from runmanager.records.storage.ownership import claim_run
from runmanager.records.storage.run_folder import RunFolder

__all__ = ["Reader", "left_by"]


def left_by(paths: RunPaths, record: RunRecord) -> RunFolder:
    """Create a run folder as its owner left it."""
    folder = claim_run(paths, record)
    folder.append(EpochRecord(epoch=1, loss=0.5))
    folder.close()
    return folder


class Reader:
    """An observer whose time passes only while it waits; `while_it_waits` runs meanwhile, with the time."""

    def __init__(self, while_it_waits: Callable[[float], object] = lambda now: None) -> None:
        self.now = 0.0
        self._while_it_waits = while_it_waits
        self.observer = HeartbeatObserver(limit_seconds=60, clock=lambda: 1000.0 + self.now, wait=self._wait)

    def _wait(self, seconds: float) -> None:
        self.now += seconds
        assert self.now < 200, "watched for longer than the limit"
        self._while_it_waits(self.now)

"""Which cells of a sweep Slurm has: what no run's folder can tell of a job that waits, or is put back to wait."""

import shutil
import time
from collections.abc import Callable, Mapping

from runmanager.launching.slurm.job_registry import read_job_registry, states_in_queue
from runmanager.launching.slurm.queue import SlurmQueue
from runmanager.records.files.paths import SweepPaths

__all__ = ["QueuedCells", "slurm_here"]

_ASK_SECONDS = 5.0


def slurm_here() -> SlurmQueue | None:
    """Slurm's queue, None where its commands are not on PATH."""
    return SlurmQueue() if shutil.which("squeue") else None


class QueuedCells:
    """Looks again and again which cells are in Slurm's hands; asks Slurm itself every five seconds at most."""

    def __init__(
        self, sweep: SweepPaths, queue: SlurmQueue | None, *, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._sweep = sweep
        self._queue = queue
        self._clock = clock
        self._seen: dict[str, str | None] = {}
        self.asked_at = -float("inf")

    def look(self) -> Mapping[str, str | None]:
        """The state of the job of each cell that was ever handed to Slurm, by its run's name; empty where it is gone.

        None where Slurm cannot be asked. Raises `RecordError` where the book of jobs is damaged.
        """
        now = self._clock()
        if now - self.asked_at >= _ASK_SECONDS:
            self.asked_at = now
            book = read_job_registry(self._sweep)
            states = states_in_queue(book, self._queue) if book and self._queue else None
            if states is not None:
                self._seen = {name: states.get(name, "") for name in book}
            else:  # no answer says nothing about the jobs
                self._seen = {name: self._seen.get(name) for name in book}
        return self._seen

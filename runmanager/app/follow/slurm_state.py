"""The Slurm jobs of a sweep's cells: run folders do not show that a job is queued or requeued."""

import shutil
import time
from collections.abc import Callable, Mapping

from runmanager.launching.slurm.job_registry import read_job_registry, states_in_queue
from runmanager.launching.slurm.queue import SlurmQueue
from runmanager.records.files.paths import SweepPaths

__all__ = ["SlurmCells", "local_slurm_queue"]

_QUERY_SECONDS = 5.0


def local_slurm_queue() -> SlurmQueue | None:
    """Return Slurm's queue, or None if its commands are not on PATH."""
    return SlurmQueue() if shutil.which("squeue") else None


class SlurmCells:
    """Reads which cells have Slurm jobs; queries Slurm at most every five seconds."""

    def __init__(
        self, sweep: SweepPaths, queue: SlurmQueue | None, *, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._sweep = sweep
        self._queue = queue
        self._clock = clock
        self._states: dict[str, str | None] = {}
        self.queried_at = -float("inf")

    def read(self) -> Mapping[str, str | None]:
        """Return the job state of each cell that was submitted to Slurm, by run name; "" if the job is gone.

        A state is None if Slurm does not answer. Raises `RecordError` if the job registry is damaged.
        """
        now = self._clock()
        if now - self.queried_at >= _QUERY_SECONDS:
            self.queried_at = now
            jobs = read_job_registry(self._sweep)
            states = states_in_queue(jobs, self._queue) if jobs and self._queue else None
            if states is not None:
                self._states = {name: states.get(name, "") for name in jobs}
            else:  # without an answer the jobs' states are unknown
                self._states = {name: self._states.get(name) for name in jobs}
        return self._states

"""The queue of jobs: in order, except that jobs waiting for a GPU are overtaken."""

from collections.abc import Iterable
from dataclasses import dataclass

from runmanager.launching.local.gpus import GpuSlots, Lease
from runmanager.launching.local.jobs import Job

__all__ = ["JobQueue", "Try"]

_MAX_WAITING = 1000  # jobs that wait for a GPU while a later one may start


@dataclass(frozen=True)
class Try:
    """A job and the number of this try of it, from 1."""

    job: Job
    number: int = 1


class JobQueue:
    """Takes each of `jobs` only when there is room for it."""

    def __init__(self, jobs: Iterable[Job], slots: GpuSlots) -> None:
        self._jobs = iter(jobs)
        self._slots = slots
        self._waiting: list[Try] = []

    def take(self) -> tuple[Try, Lease] | None:
        """Return the next job that may start now, with its GPU slots; None if there is none."""
        for index, each in enumerate(self._waiting):
            lease = self._lease(each)
            if lease is not None:
                del self._waiting[index]
                return each, lease
        while len(self._waiting) < _MAX_WAITING:
            job = next(self._jobs, None)
            if job is None:
                return None
            lease = self._lease(Try(job))
            if lease is not None:
                return Try(job), lease
            self._waiting.append(Try(job))
        return None

    def put_back(self, ended: Try) -> None:
        """Queue a job for its next try, before all jobs that have not started."""
        self._waiting.insert(0, Try(ended.job, ended.number + 1))

    def _lease(self, each: Try) -> Lease | None:
        return Lease() if each.job.gpus is None else self._slots.take(each.job.gpus)

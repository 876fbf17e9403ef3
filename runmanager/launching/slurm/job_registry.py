"""Which job of Slurm's each cell was last handed to, kept in the sweep's folder so that no cell is submitted twice."""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager

import msgspec

from runmanager.launching.slurm.queue import SlurmQueue
from runmanager.records.files.atomic_files import locked_folder, read_bytes, replace_file
from runmanager.records.files.damaged_files import UNREADABLE, damaged
from runmanager.records.files.paths import SweepPaths

__all__ = ["locked_job_registry", "read_job_registry", "states_in_queue"]


def read_job_registry(sweep: SweepPaths) -> dict[str, str]:
    """The job of each cell that was ever submitted, by the cell's key. Raises `RecordError` if the file is damaged."""
    try:
        return msgspec.json.decode(read_bytes(sweep.slurm_jobs), type=dict[str, str])
    except FileNotFoundError:
        return {}
    except UNREADABLE as error:
        raise damaged(sweep.slurm_jobs, error, way_out="; remove it when no job is queued.") from error


def states_in_queue(book: Mapping[str, str], queue: SlurmQueue) -> dict[str, str] | None:
    """The state of each cell's job that is in Slurm's queue, waiting or running; None where Slurm does not answer."""
    states = queue.states(book.values())
    return None if states is None else {name: states[job] for name, job in book.items() if job in states}


@contextmanager
def locked_job_registry(sweep: SweepPaths) -> Iterator[dict[str, str]]:
    """The same, to be changed: what is in it at the end is written, and no other driver submits meanwhile."""
    sweep.slurm.mkdir(parents=True, exist_ok=True)
    with locked_folder(sweep.slurm):
        book = read_job_registry(sweep)
        before = dict(book)
        try:
            yield book
        finally:
            if book != before:  # a job that was submitted is noted, whatever went wrong after it
                replace_file(sweep.slurm_jobs, msgspec.json.format(msgspec.json.encode(book), indent=1) + b"\n")

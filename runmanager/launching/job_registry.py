"""The job of each cell that was handed to a queue, stored in the sweep's folder: no cell is submitted twice."""

from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Protocol

import msgspec

from runmanager.records.files.atomic_files import locked_folder, read_bytes, replace_file
from runmanager.records.files.file_errors import UNREADABLE, damaged_file_error
from runmanager.records.files.paths import SweepPaths

QUEUE_NAME = "Slurm"
"""What people call the queue."""
_FILE = "jobs.json"


class JobQueue(Protocol):
    """What is asked of the queue; `waiting` are the states of jobs that do not run."""

    waiting: frozenset[str]

    def states(self, jobs: Iterable[str]) -> dict[str, str] | None:
        """Return the state of each of `jobs` in the queue; None where it does not answer."""
        ...


def jobs_folder(sweep: SweepPaths) -> Path:
    """Return the folder with the requests, reports and output of the jobs."""
    return sweep.root / "slurm"


def read_job_registry(sweep: SweepPaths) -> dict[str, str]:
    """Return the last job of each submitted cell, by the cell's name. Raises `RecordError` if the file is damaged."""
    file = jobs_folder(sweep) / _FILE
    try:
        return msgspec.json.decode(read_bytes(file), type=dict[str, str])
    except FileNotFoundError:
        return {}
    except UNREADABLE as error:
        raise damaged_file_error(file, error, way_out="; remove it when no job is queued.") from error


def states_in_queue(registry: Mapping[str, str], queue: JobQueue) -> dict[str, str] | None:
    """Return the state of each cell's job that waits or runs; None where the queue does not answer."""
    states = queue.states(registry.values())
    return None if states is None else {name: states[job] for name, job in registry.items() if job in states}


@contextmanager
def locked_job_registry(sweep: SweepPaths) -> Iterator[dict[str, str]]:
    """Lock the registry against other drivers, yield it for changes, and write it at the end."""
    folder = jobs_folder(sweep)
    folder.mkdir(parents=True, exist_ok=True)
    with locked_folder(folder):
        registry = read_job_registry(sweep)
        before = dict(registry)
        try:
            yield registry
        finally:
            if registry != before:  # after an error too: a submitted job must be stored
                replace_file(folder / _FILE, msgspec.json.format(msgspec.json.encode(registry), indent=1) + b"\n")

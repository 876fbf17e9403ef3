"""The Slurm job of each cell, stored in the sweep's folder so that no cell is submitted twice."""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager

import msgspec

from runmanager.launching.slurm.queue import SlurmQueue
from runmanager.records.files.atomic_files import locked_folder, read_bytes, replace_file
from runmanager.records.files.file_errors import UNREADABLE, damaged_file_error
from runmanager.records.files.paths import SweepPaths

__all__ = ["locked_job_registry", "read_job_registry", "states_in_queue"]


def read_job_registry(sweep: SweepPaths) -> dict[str, str]:
    """Return the last job of each submitted cell, by the cell's name. Raises `RecordError` if the file is damaged."""
    try:
        return msgspec.json.decode(read_bytes(sweep.slurm_jobs), type=dict[str, str])
    except FileNotFoundError:
        return {}
    except UNREADABLE as error:
        raise damaged_file_error(sweep.slurm_jobs, error, way_out="; remove it when no job is queued.") from error


def states_in_queue(registry: Mapping[str, str], queue: SlurmQueue) -> dict[str, str] | None:
    """Return the state of each cell's job that waits or runs in Slurm; None where Slurm does not answer."""
    states = queue.states(registry.values())
    return None if states is None else {name: states[job] for name, job in registry.items() if job in states}


@contextmanager
def locked_job_registry(sweep: SweepPaths) -> Iterator[dict[str, str]]:
    """Lock the registry against other drivers, yield it for changes, and write it at the end."""
    sweep.slurm.mkdir(parents=True, exist_ok=True)
    with locked_folder(sweep.slurm):
        registry = read_job_registry(sweep)
        before = dict(registry)
        try:
            yield registry
        finally:
            if registry != before:  # after an error too: a submitted job must be stored
                replace_file(sweep.slurm_jobs, msgspec.json.format(msgspec.json.encode(registry), indent=1) + b"\n")

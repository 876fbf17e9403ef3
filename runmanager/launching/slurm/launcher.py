"""Hydra launcher for Slurm: `hydra/launcher=slurm`, for this application and other Hydra applications.

Other applications call `runmanager.launching.slurm.register_slurm()` before their `main()`.
"""

import os
import pickle
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import groupby
from pathlib import Path
from typing import Any

from hydra.core.utils import JobReturn, JobStatus, setup_globals

from runmanager.errors import RunManagerError
from runmanager.launching.hydra_launcher import (
    ProcessLauncher,
    ReturnRecorder,
    refuse_several_processes,
    refuse_stall_timeout,
    unstarted_return,
)
from runmanager.launching.local.engine import Listener
from runmanager.launching.local.multiprocessing_internals import interpreter_state
from runmanager.launching.local.time_limits import Limits
from runmanager.launching.plan import Action, PlannedRun
from runmanager.launching.slurm.job import SlurmRequest
from runmanager.launching.slurm.job_follower import SubmittedCell, follow, outcome_of_job
from runmanager.launching.slurm.job_registry import locked_job_registry, read_job_registry, states_in_queue
from runmanager.launching.slurm.options import SlurmOptions
from runmanager.launching.slurm.queue import SlurmQueue
from runmanager.launching.slurm.submit import require_slurm, require_submitit, submit
from runmanager.launching.work import Work
from runmanager.records.files.paths import SweepPaths
from runmanager.records.storage.run_end import end_gone_run

__all__ = ["SlurmLauncher"]

# The variables with this prefix reach a job also where the cluster passes on no environment.
_ENVIRONMENT_PREFIX = "RUNMANAGER_"


@dataclass(frozen=True)
class _Cell:
    """A cell to submit: its key in a listener, its name in the job registry, and the request for its job."""

    key: int
    name: str
    request: SlurmRequest


class SlurmLauncher(ProcessLauncher):
    """Runs each cell as a job of a Slurm array: one submission, and Slurm limits how many run at a time.

    Cells of other numbers of ranks are other arrays, as all jobs of an array ask for the same.

    An application with run folders sets `runs`, `work_for` and `when_ended`: the run of each job, in order; a function
    that is called with the job's key for its work; and a function (`module:name`) that writes the sweep's tables where
    no driver waits.
    """

    options: SlurmOptions

    def __init__(self, **settings: Any) -> None:
        self.options = SlurmOptions.checked(**settings)
        require_submitit()  # before anything is written
        self.listener = Listener()
        self.runs: Sequence[PlannedRun] | None = None
        self.work_for: Callable[[int], Work] | None = None
        self.when_ended: str | None = None
        self._queue = SlurmQueue()

    def launch(self, job_overrides: Sequence[Sequence[str]], initial_job_idx: int) -> Sequence[JobReturn]:
        """Submit the cells that have no job in the queue, and wait for all of them unless `wait=false`."""
        setup_globals()
        if self.runs is None:
            refuse_stall_timeout(self.options.stall_timeout)
            refuse_several_processes(self, "a job of another sweeper")
        cells = [self._cell(list(overrides), index, initial_job_idx) for index, overrides in enumerate(job_overrides)]
        returns = [unstarted_return(overrides) for overrides in job_overrides]
        if not cells:
            return returns
        submitted = self._submit_all(cells)
        if not self.options.wait:
            for each in returns:
                each.status, each.return_value = JobStatus.COMPLETED, None
            return returns
        by_key = {cell.key: cell for cell in cells}
        interrupted = follow(
            submitted,
            ReturnRecorder(returns, initial_job_idx, self.listener),
            queue=self._queue,
            options=self.options,
            folder=cells[0].request.sweep.slurm,
            submit_again=lambda each: self._submit_again(by_key[each.key]),
        )
        if interrupted:
            raise KeyboardInterrupt
        return returns

    def check(self) -> None:
        """Raise `RunManagerError` for what would keep `launch` from submitting anything; nothing is written."""
        require_slurm(self.options)
        if self._queue.states(()) is None:
            _require_answer(None)

    def settle(self, plan: Sequence[PlannedRun], sweep: SweepPaths) -> bool:
        """Write the end of each run whose job is gone without having written it; return whether there were any.

        A later driver cannot see whether a process on another node lives; Slurm can.
        """
        registry = read_job_registry(sweep)
        jobs = {each.paths.name: registry[each.paths.name] for each in plan if each.paths.name in registry}
        running = {each.paths.name: each for each in plan if each.action is Action.LEAVE and each.paths.name in jobs}
        states = self._queue.states(jobs[name] for name in running) if running else {}
        gone = [] if states is None else [run for name, run in running.items() if jobs[name] not in states]
        for run in gone:
            log = sweep.slurm / f"{jobs[run.paths.name]}_0_log.out"
            end = self._queue.end_of(jobs[run.paths.name])
            outcome = outcome_of_job(end, options=self.options, log=log)
            end_gone_run(run.paths, outcome, pending=run.pending_record())
        return bool(gone)

    def queued(self, sweep: SweepPaths) -> dict[str, str]:
        """Return the job of each cell that is in the queue, by its run's name."""
        registry = read_job_registry(sweep)
        return {name: registry[name] for name in _require_answer(states_in_queue(registry, self._queue))}

    def _cell(self, overrides: list[str], index: int, first: int) -> _Cell:
        key = first + index
        run = None if self.runs is None else self.runs[index]
        if run is None or self.work_for is None:
            work = self.work_with_return(overrides, key)
            config = work.arguments[-1]
            # A run's name contains its signature; another application may reuse a folder for other settings later.
            name, sweep = " ".join([str(config.hydra.sweep.subdir), *overrides]), Path(config.hydra.sweep.dir)
        else:
            work, name, sweep = self.work_for(key), run.paths.name, run.paths.root.parent.parent
        request = SlurmRequest(
            work=pickle.dumps(work),
            driver_state=interpreter_state(),
            environment={name: value for name, value in os.environ.items() if name.startswith(_ENVIRONMENT_PREFIX)},
            sweep=SweepPaths(sweep.absolute()),
            run=run,
            limits=Limits(self.options.timeout, self.options.stall_timeout, run.paths.heartbeat if run else None),
            time_limit_minutes=self.options.time,
            is_resumed=False,
            is_detached=not self.options.wait,
            processes=1 if run is None else run.cell.processes,
            when_ended=self.when_ended,
        )
        return _Cell(key, name, request)

    def _submit_all(self, cells: Sequence[_Cell]) -> list[SubmittedCell]:
        """Return the cells with their jobs: those that an earlier command has queued, and new ones for the others."""
        sweep = cells[0].request.sweep
        with locked_job_registry(sweep) as registry:
            earlier = {cell.name: registry[cell.name] for cell in cells if cell.name in registry}
            states = _require_answer(self._queue.states(earlier.values()))
            cells = [cell for cell in cells if earlier.get(cell.name) in states or self.listener.wants(cell.key)]
            new = [cell for cell in cells if earlier.get(cell.name) not in states]
            size = self._queue.max_array_size() if len(new) > 1 else 1
            previous: str | None = None
            for part in _arrays(new, size):
                jobs = submit([cell.request for cell in part], self.options, after=previous)
                for cell, job in zip(part, jobs, strict=True):
                    registry[cell.name] = job
                previous = registry[part[-1].name].partition("_")[0]
            return [SubmittedCell(cell.key, registry[cell.name], cell.request.run) for cell in cells]

    def _submit_again(self, cell: _Cell) -> str:
        with locked_job_registry(cell.request.sweep) as registry:
            (registry[cell.name],) = submit([replace(cell.request, is_resumed=True)], self.options, after=None)
            return registry[cell.name]


def _arrays(cells: Sequence[_Cell], size: int) -> Iterator[Sequence[_Cell]]:
    """Yield the cells in arrays of at most `size`, each of cells with the same number of ranks."""
    by_ranks = sorted(cells, key=lambda cell: cell.request.processes)
    for _, group in groupby(by_ranks, key=lambda cell: cell.request.processes):
        equal = list(group)
        yield from (equal[begin : begin + size] for begin in range(0, len(equal), size))


def _require_answer(jobs: dict[str, str] | None) -> dict[str, str]:
    if jobs is None:
        raise RunManagerError("Slurm must answer `squeue`, got no answer; try again when it does.")
    return jobs

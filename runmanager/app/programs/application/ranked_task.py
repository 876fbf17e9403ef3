"""The task of a Hydra application in a cell of ours: supervised, or in several ranks that torchrun starts."""

import functools
import os
import pickle
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from hydra.core.hydra_config import HydraConfig
from hydra.types import TaskFunction
from omegaconf import DictConfig

from runmanager.app.programs.application import rank_main
from runmanager.app.programs.application.rank_main import RETURNED, RankCall, read_returned
from runmanager.app.programs.application.started_again import telling_job
from runmanager.app.programs.cell_metrics import returned_metrics
from runmanager.app.programs.cell_supervisor import CellSpec, ProgramEnd, supervise_cell
from runmanager.app.programs.script.output.child_process import has_reported_failure
from runmanager.app.programs.script.torchrun import outcome_of_ranks, rank_files, run_ranks
from runmanager.launching.local.multiprocessing_internals import interpreter_state
from runmanager.launching.work import Work, do_work
from runmanager.records.run.status import Status
from runmanager.records.storage.run_folder import RunFolder


def run_supervised(spec: CellSpec, job: Work) -> float | None:
    """Run a job of Hydra under the supervisor of its cell, in the cell's own process; return its number for Hydra."""

    def run_program(folder: RunFolder) -> ProgramEnd:
        with telling_job(job.arguments[1].hydra):
            return ProgramEnd(metrics=returned_metrics(do_work(job), name=spec.metric))

    return supervise_task(spec, run_program)


def supervise_task(spec: CellSpec, run_program: Callable[[RunFolder], ProgramEnd]) -> float | None:
    """Run a cell's program under its supervisor; return the number that it returned.

    The driver reads how it ended from its record.
    """
    end = supervise_cell(spec, run_program)
    return None if end is None else end.metrics.value


class SupervisedTask:
    """A task function for launchers that call it in a process of theirs, inside Hydra's own work.

    `specs` has the cells to run, by the name of their run folder.
    """

    def __init__(self, task: TaskFunction) -> None:
        functools.update_wrapper(self, task)  # our launchers ship the function itself, by its name
        self._task = task
        self.specs: dict[str, CellSpec] = {}

    def __call__(self, config: DictConfig) -> Any:
        """Run the task in the run folder of this job. Raises what the task raises."""
        spec = self.specs[Path(HydraConfig.get().runtime.output_dir).name]
        returned: list[Any] = []

        def run_program(folder: RunFolder) -> ProgramEnd:
            with telling_job(HydraConfig.get()):
                returned.append(self._task(config))
            return ProgramEnd(metrics=returned_metrics(returned[0], name=spec.metric))

        end = supervise_cell(replace(spec, has_files=True), run_program)
        if end is not None and end.error is not None:
            raise end.error
        return returned[0] if returned else None


@dataclass(frozen=True)
class _RankedTask:
    """A job of Hydra in so many ranks; `state` is the driver's import path, arguments and main module. Picklable."""

    job: Work
    processes: int
    state: Mapping[str, Any]


def ranked_work(spec: CellSpec, job: Work, *, processes: int) -> Work:
    """Return the work of a cell whose job of Hydra runs in so many ranks, with this process's main module."""
    return Work(_run_supervised, (spec, _RankedTask(job, processes, interpreter_state())))


def _run_supervised(spec: CellSpec, task: _RankedTask) -> float | None:
    """Run the ranks of a cell under its supervisor, in the cell's own process; return the number of rank 0 for Hydra.

    The driver reads how they ended from the run's record.
    """
    return supervise_task(spec, lambda folder: _run(folder, task, spec.metric))


def _run(folder: RunFolder, task: _RankedTask, metric: str | None) -> ProgramEnd:
    run = folder.paths
    folder.write(world_size=task.processes)
    files = rank_files(run)
    files.mkdir(exist_ok=True)
    returned, call = files / RETURNED, files / "call.pickle"
    returned.unlink(missing_ok=True)  # of an attempt that was killed
    call.write_bytes(pickle.dumps(RankCall(task.state, pickle.dumps(task.job), returned, metric)))
    try:
        end = run_ranks(
            [sys.executable, "-m", rank_main.__name__, str(call)],
            run,
            processes=task.processes,
            folder=Path.cwd(),
            environment=os.environ,
        )
    finally:
        call.unlink(missing_ok=True)
    metrics = read_returned(returned)
    returned.unlink(missing_ok=True)
    outcome, traceback, rank = outcome_of_ranks(end, run)
    # What rank 0 reports itself says more, unless another rank failed: then it tells only what came of that.
    is_known_better = outcome.status is Status.FAILED and not rank and has_reported_failure(folder)
    known = None if is_known_better else outcome
    return ProgramEnd(outcome=known, traceback=traceback, metrics=metrics, child=end.process)

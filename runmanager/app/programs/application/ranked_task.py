"""The task of a Hydra application in several ranks, which torchrun starts: one cell, one run."""

import os
import pickle
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from runmanager.app.programs.application import rank_main
from runmanager.app.programs.application.rank_main import RETURNED, RankCall, read_returned
from runmanager.app.programs.application.supervised_task import supervise_task
from runmanager.app.programs.cell_supervisor import CellSpec, ProgramEnd
from runmanager.app.programs.script.output.script_outcome import has_reported_failure
from runmanager.app.programs.script.torchrun import outcome_of_ranks, rank_files, run_ranks
from runmanager.launching.local.multiprocessing_internals import interpreter_state
from runmanager.launching.work import Work
from runmanager.records.run.status import Status
from runmanager.records.storage.run_folder import RunFolder

__all__ = ["ranked_work"]


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

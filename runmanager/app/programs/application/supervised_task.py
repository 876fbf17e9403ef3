"""The task of a Hydra application under the supervisor of its cell."""

import functools
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

from hydra.core.hydra_config import HydraConfig
from hydra.types import TaskFunction
from omegaconf import DictConfig

from runmanager.app.programs.application.started_again import telling_job
from runmanager.app.programs.cell_metrics import returned_metrics
from runmanager.app.programs.cell_supervisor import CellSpec, ProgramEnd, supervise_cell
from runmanager.launching.work import Work, do_work
from runmanager.records.storage.run_folder import RunFolder

__all__ = ["SupervisedTask", "run_supervised", "supervise_task"]


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

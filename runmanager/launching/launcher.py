"""What the driver of a sweep asks of a launcher: always by name, never which one it is."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from functools import cached_property
from itertools import takewhile
from typing import TYPE_CHECKING, Any, cast

from hydra.core.utils import JobReturn, JobStatus
from hydra.plugins.launcher import Launcher
from hydra.types import HydraContext, TaskFunction
from omegaconf import DictConfig

from runmanager.errors import ConfigurationError, RunManagerError
from runmanager.launching.hydra_internals import job_exception
from runmanager.launching.local.engine import LocalEngine
from runmanager.launching.local.jobs import Listener
from runmanager.launching.local.turns import Turns
from runmanager.launching.work import Work
from runmanager.records.files.paths import SweepPaths
from runmanager.records.host.process import free_memory, usable_cores
from runmanager.records.run.status import Outcome, Reason, Status
from runmanager.text import error_line
from runmanager.validation import fault

if TYPE_CHECKING:  # the server of the cells' processes starts before the driver's parts are imported
    from runmanager.launching.plan import PlannedRun


class Trait(StrEnum):
    """What a driver must know of a launcher."""

    HERE = "here"  # its cells run on this machine, as children of the driver, and may take turns
    ELSEWHERE = "elsewhere"  # they find devices of other machines; with neither of the two it is not known
    DETACHED = "detached"  # they continue without the driver
    STORES_WORK = "stores work"  # settings reach a cell's process through files, or are printed
    IN_BATCHES = "in batches"  # it is told all cells at once, and tells of none before the last has ended


@dataclass(frozen=True)
class Place:
    """Where cells run: how many at once, the cores for them, and the free memory; None if unknown."""

    at_once: int
    cores: int
    free_bytes: int | None


@dataclass(frozen=True)
class CellJob:
    """A job: its key in a listener, and the function that makes its work just before a try, given the try's number.

    `overrides` are those that make its configuration, `device` is what it asks for (None if unknown). `run` is None
    for a job without a run folder.
    """

    key: int
    overrides: Sequence[str]
    work: Callable[[int], Work]
    device: str | None = None
    run: "PlannedRun | None" = None


class CellLauncher(Launcher):
    """A launcher as the driver sees it, with its settings as `options`; a run may have several ranks.

    What the base class answers is true of any launcher of Hydra.
    """

    traits = frozenset({Trait.IN_BATCHES, Trait.STORES_WORK})
    options: Any = None
    processes_per_run = 1

    @property
    def place(self) -> Place:
        return Place(1, usable_cores(), free_memory())

    @property
    def num_handed(self) -> int:
        """How many cells are handed to it before the first of them has ended, where later ones depend on those."""
        return self.place.at_once

    @cached_property
    def engine(self) -> LocalEngine:
        """The engine for what is asked of this machine before the first run."""
        return LocalEngine(preload=["torch"])

    def run(
        self, jobs: Iterable[CellJob | None], listener: Listener, turns: Turns | None = None
    ) -> dict[int, JobReturn]:
        """Run jobs until the last has ended, or is left to itself; return results by key, failed where a job died.

        Each is taken from `jobs` when there is room for it, so that the caller decides late which it is; None stands
        for none now, and more are asked for when something has happened to those that run. With `turns` all live
        together, regardless of how many run at once otherwise, and take turns.
        """
        raise NotImplementedError

    def check(self) -> None:
        """Raise `RunManagerError` for what would keep `run` from starting anything; nothing is written."""

    def require_gpus(self, devices: Iterable[str | None]) -> None:
        """Raise `ConfigurationError` where a job on one of these devices would get no GPU."""

    def settle(self, plan: "Sequence[PlannedRun]", sweep: SweepPaths) -> bool:
        """Write the end of each run of an earlier driver whose job is gone; return whether there were any."""
        return False

    def queued(self, sweep: SweepPaths) -> Mapping[str, str]:
        """Return the jobs of earlier drivers that are still to run or running, in words, by the folder of the run."""
        return {}

    def with_each_run_once(self, **settings: Any) -> "CellLauncher":
        """Return a launcher of the same task with some other settings, whose runs end no other and are tried once.

        Only a launcher that runs cells here has such settings.
        """
        raise NotImplementedError

    def refuse_several_processes(self, whose: str) -> None:
        """Raise `ConfigurationError` for several `processes_per_run` where the jobs run in one process each."""
        if self.processes_per_run > 1:
            rule = f"be 1 for {whose}, which runs in one process"
            way_out = "a script under `runmanager sweep --processes`, or a Hydra application, may have several ranks"
            raise ConfigurationError([fault("hydra.launcher.processes_per_run", rule, self.processes_per_run, way_out)])


class BatchLauncher(CellLauncher):
    """Any other launcher of Hydra: it composes its jobs itself, and leaves their ends to the driver."""

    num_handed = 8  # how many it runs at a time is not known

    def __init__(self, launcher: Launcher) -> None:
        self._launcher = launcher

    def setup(self, *, hydra_context: HydraContext, task_function: TaskFunction, config: DictConfig) -> None:
        """Do nothing: the launcher has been set up."""

    def launch(self, job_overrides: Sequence[Sequence[str]], initial_job_idx: int) -> Sequence[JobReturn]:
        """Launch the jobs as Hydra does."""
        return self._launcher.launch(job_overrides, initial_job_idx=initial_job_idx)

    def run(
        self, jobs: Iterable[CellJob | None], listener: Listener, turns: Turns | None = None
    ) -> dict[int, JobReturn]:
        returns, queue = dict[int, JobReturn](), iter(jobs)
        while batch := [job for job in takewhile(lambda job: job is not None, queue) if job]:
            returns |= self._run_batch(batch)
        return returns

    def _run_batch(self, jobs: Sequence[CellJob]) -> dict[int, JobReturn]:
        from runmanager.launching.plan import stored_record
        from runmanager.records.storage.run_end import end_gone_run

        returns = self.launch([job.overrides for job in jobs], jobs[0].key)
        for job, result in zip(jobs, returns, strict=True):
            if (run := job.run) is None or result.status is not JobStatus.FAILED:
                continue
            if (record := stored_record(run)) is None or record.status is Status.CRASHED:  # it could not record its end
                outcome = Outcome(Status.FAILED, Reason.EXCEPTION, error_line(job_exception(result)))
                end_gone_run(run.paths, outcome, pending=run.pending_record())
        return {job.key: result for job, result in zip(jobs, returns, strict=True)}


def never_started(overrides: Sequence[str]) -> JobReturn:
    """Return the result of a job that was never started."""
    error = RunManagerError("the job was never started")
    result = JobReturn(overrides=list(overrides), status=JobStatus.FAILED)
    result.return_value = error
    return result


def with_traits(launcher: Launcher) -> CellLauncher:
    """Return a launcher that Hydra has created as the driver sees it."""
    return cast(CellLauncher, launcher) if hasattr(launcher, "traits") else BatchLauncher(launcher)

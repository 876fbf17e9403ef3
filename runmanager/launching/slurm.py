"""Hydra's side of Slurm: `hydra/launcher=slurm`, for this application and anybody else's.

An application of its own imports this module and calls `register_slurm()` before its `main()`.
"""

import contextlib
import io
import multiprocessing.spawn
import os
import pickle
import warnings
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from hydra.core.config_store import ConfigStore
from hydra.core.utils import JobReturn, JobStatus, setup_globals
from hydra.plugins.launcher import Launcher
from hydra.types import HydraContext, TaskFunction
from omegaconf import DictConfig, OmegaConf, open_dict

from runmanager.errors import ConfigurationError, RunManagerError
from runmanager.launching.endings import write_missing_end
from runmanager.launching.engine import Listener
from runmanager.launching.hydra_launcher import Recorder, register_plugin, unfinished
from runmanager.launching.limits import Limits
from runmanager.launching.plan import Action, PlannedRun
from runmanager.launching.slurm_book import locked_book, read_book
from runmanager.launching.slurm_following import Submitted, follow, outcome_of_job
from runmanager.launching.slurm_job import SlurmRequest, run_slurm_job
from runmanager.launching.slurm_options import SlurmOptions
from runmanager.launching.slurm_queue import SlurmQueue
from runmanager.records.paths import SweepPaths

__all__ = ["SlurmLauncher", "register_slurm"]

# What a job is to know of its driver, also where the cluster passes no environment on.
_SHIPPED = "RUNMANAGER_"
# What a job's own process needs of what multiprocessing tells its children.
_WORLD = ("sys_path", "sys_argv", "orig_dir", "dir", "init_main_from_name", "init_main_from_path")


@dataclass(frozen=True)
class _Cell:
    """A cell as it is handed to Slurm: its key in a listener and in the book of jobs, and what its job is to do."""

    key: int
    name: str
    request: SlurmRequest


class SlurmLauncher(Launcher):
    """Runs each cell as a job of a Slurm array: one submission, and Slurm itself lets only so many run at once.

    `runs` and `when_ended` are set by an application that keeps run folders: the run of each job, in order, and a
    function (`module:name`) that writes the sweep's tables where no driver waits to do so.
    """

    def __init__(self, **settings: Any) -> None:
        self.options = SlurmOptions.checked(**settings)
        self.listener = Listener()
        self.runs: Sequence[PlannedRun] | None = None
        self.when_ended: str | None = None
        self._queue = SlurmQueue()

    def setup(self, *, hydra_context: HydraContext, task_function: TaskFunction, config: DictConfig) -> None:
        """Called by Hydra."""
        self._context = hydra_context
        self._task = task_function
        self._config = config

    def launch(self, job_overrides: Sequence[Sequence[str]], initial_job_idx: int) -> Sequence[JobReturn]:
        """Submit the cells that are in no job yet, and wait for all of them, if so wanted."""
        setup_globals()
        if self.options.stall_timeout is not None and self.runs is None:
            raise ConfigurationError(
                ["`hydra.launcher.stall_timeout` must be null where nobody says what a step is; use timeout."]
            )
        cells = [self._cell(list(words), index, initial_job_idx) for index, words in enumerate(job_overrides)]
        returns = [unfinished(overrides) for overrides in job_overrides]
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
            Recorder(returns, initial_job_idx, self.listener),
            queue=self._queue,
            options=self.options,
            folder=_folder(cells[0]),
            submit_again=lambda each: self._submit_again(by_key[each.key]),
        )
        if interrupted:
            raise KeyboardInterrupt
        return returns

    def settle(self, plan: Sequence[PlannedRun], sweep: SweepPaths) -> bool:
        """Write the end of each run whose job is gone, where nobody else could; whether there were any.

        A driver that comes later cannot see whether a process on another node lives; Slurm can.
        """
        book = read_book(sweep)
        jobs = {each.paths.name: book[each.paths.name] for each in plan if each.paths.name in book}
        left = {each.paths.name: each for each in plan if each.action is Action.LEAVE and each.paths.name in jobs}
        states = self._queue.states(jobs[name] for name in left) if left else {}
        gone = [] if states is None else [run for name, run in left.items() if jobs[name] not in states]
        for run in gone:
            log = sweep.slurm / f"{jobs[run.paths.name]}_0_log.out"
            end = self._queue.end_of(jobs[run.paths.name])
            write_missing_end(run, outcome_of_job(end, options=self.options, log=log))
        return bool(gone)

    def queued(self, sweep: SweepPaths) -> dict[str, str]:
        """The job of each cell that is in the queue, by its run's name."""
        book = read_book(sweep)
        states = self._queue.states(book.values()) if book else {}
        if states is None:
            raise RunManagerError("Slurm must answer `squeue`, got no answer; try again when it does.")
        return {name: job for name, job in book.items() if job in states}

    def _cell(self, overrides: list[str], index: int, first: int) -> _Cell:
        config = self._context.config_loader.load_sweep_config(self._config, overrides)
        key = first + index
        with open_dict(config):
            config.hydra.job.id = str(key)
            config.hydra.job.num = key
        run = None if self.runs is None else self.runs[index]
        # A run's name holds its signature; another application's folders may be given to other settings later.
        name = " ".join([str(config.hydra.sweep.subdir), *overrides]) if run is None else run.paths.name
        request = SlurmRequest(
            task=pickle.dumps((self._task.__module__, self._task.__qualname__, config)),
            world=_world(),
            environment={name: value for name, value in os.environ.items() if name.startswith(_SHIPPED)},
            sweep=SweepPaths(Path(config.hydra.sweep.dir).absolute()),
            run=run,
            limits=Limits(self.options.timeout, self.options.stall_timeout, run.paths.heartbeat if run else None),
            time_limit_minutes=self.options.time,
            goes_on=False,
            is_detached=not self.options.wait,
            when_ended=self.when_ended,
        )
        return _Cell(key, name, request)

    def _submit_all(self, cells: Sequence[_Cell]) -> list[Submitted]:
        """The cells with their jobs: those that an earlier command has queued, and new ones for the others."""
        sweep = cells[0].request.sweep
        with locked_book(sweep) as book:
            earlier = {cell.name: book[cell.name] for cell in cells if cell.name in book}
            states = self._queue.states(earlier.values())
            if states is None:
                raise RunManagerError("Slurm must answer `squeue`, got no answer; try again when it does.")
            cells = [cell for cell in cells if earlier.get(cell.name) in states or self.listener.wants(cell.key)]
            new = [cell for cell in cells if earlier.get(cell.name) not in states]
            size = self._queue.max_array_size() if len(new) > 1 else 1
            before: str | None = None
            for begin in range(0, len(new), size):
                part = new[begin : begin + size]
                for cell, job in zip(part, self._submit(part, after=before), strict=True):
                    book[cell.name] = job
                before = book[part[-1].name].partition("_")[0]
            return [Submitted(cell.key, book[cell.name], cell.request.run) for cell in cells]

    def _submit_again(self, cell: _Cell) -> str:
        with locked_book(cell.request.sweep) as book:
            again = replace(cell, request=replace(cell.request, goes_on=True))
            (book[cell.name],) = self._submit([again], after=None)
            return book[cell.name]

    def _submit(self, cells: Sequence[_Cell], *, after: str | None) -> list[str]:
        """One submission: an array, or a single job. Of several arrays each comes `after` the one before."""
        import submitit

        # submitit prints what sbatch says, which is said again in a line of ours.
        with _outside_of_any_job(), contextlib.redirect_stderr(io.StringIO()), warnings.catch_warnings():
            warnings.simplefilter("ignore")  # submitit's own, about what is not used here
            try:
                executor = submitit.SlurmExecutor(_folder(cells[0]))
                executor.update_parameters(**self._parameters(cells[0].request.sweep.name, after))
                with executor.batch():
                    jobs = [executor.submit(run_slurm_job, cell.request) for cell in cells]
            except (submitit.core.utils.FailedJobError, submitit.core.utils.FailedSubmissionError) as error:
                said = str(error).strip().splitlines() or [type(error).__name__]
                raise RunManagerError(f"Slurm must take the jobs, got: {said[-1]}") from error
            except RuntimeError as error:
                raise RunManagerError(
                    f"`hydra/launcher=slurm` must run where Slurm's commands are, got: {error} Use a login node of the "
                    "cluster, or `hydra/launcher=local`."
                ) from error
        return [str(job.job_id) for job in jobs]

    def _parameters(self, name: str, after: str | None) -> dict[str, Any]:
        options = self.options
        memory = None if options.memory_gb is None else f"{max(1, round(options.memory_gb * 1024))}M"
        asked = {
            "partition": options.partition,
            "mem": memory,
            "gpus_per_node": options.gpus_per_node,
            "gres": options.gres,
            "account": options.account,
            "qos": options.qos,
            "constraint": options.constraint,
        }
        more = {key.replace("_", "-"): value for key, value in options.additional_parameters.items()}
        if after is not None:
            more["dependency"] = ",".join(filter(None, [more.get("dependency"), f"afterany:{after}"]))
        return {
            "job_name": f"runmanager-{name}",
            "time": options.time,
            "cpus_per_task": options.cpus_per_task,
            "ntasks_per_node": 1,
            "array_parallelism": options.array_parallelism,
            "signal_delay_s": options.signal_seconds,
            "stderr_to_stdout": True,
            "additional_parameters": more,
            **{key: value for key, value in asked.items() if value is not None},
        }


def _folder(cell: _Cell) -> Path:
    return cell.request.sweep.slurm


def _world() -> dict[str, Any]:
    """Where this process stands, as multiprocessing tells its children: folder, path, and the main module."""
    return {key: value for key, value in multiprocessing.spawn.get_preparation_data("").items() if key in _WORLD}


@contextlib.contextmanager
def _outside_of_any_job() -> Iterator[None]:
    """Hide meanwhile that this driver is itself in a job of Slurm's, or its jobs would inherit what it was given."""
    inside = "SLURM_JOB_ID" in os.environ
    names = [name for name in os.environ if name.startswith(("SLURM_", "SUBMITIT_")) and name != "SLURM_CONF"]
    hidden = {name: os.environ.pop(name) for name in names} if inside else {}
    try:
        yield
    finally:
        os.environ.update(hidden)


def register_slurm() -> None:
    """Make `hydra/launcher=slurm` known to Hydra."""
    register_plugin(SlurmLauncher)
    node = OmegaConf.structured(SlurmOptions)
    OmegaConf.set_readonly(node, None)  # Hydra's overrides still change it
    ConfigStore.instance().store(group="hydra/launcher", name="slurm", node=node, provider="runmanager")

"""Hydra launcher for Slurm: `hydra/launcher=slurm`, for this application and other Hydra applications.

Other applications call `runmanager.launching.slurm.register_slurm()` before their `main()`.
"""

import contextlib
import io
import os
import re
import warnings
from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import replace
from functools import partial
from itertools import groupby
from pathlib import Path
from typing import Any

from hydra.core.utils import JobReturn, JobStatus, setup_globals

from runmanager.errors import RunManagerError
from runmanager.launching.hydra_launcher import ProcessLauncher, ReturnRecorder, checked, require_package
from runmanager.launching.job_registry import jobs_folder, locked_job_registry, read_job_registry, states_in_queue
from runmanager.launching.launcher import CellJob, Place, Trait
from runmanager.launching.local.jobs import Listener, Retries
from runmanager.launching.local.turns import Turns
from runmanager.launching.local.worker import send_work
from runmanager.launching.plan import Action, PlannedRun
from runmanager.launching.slurm.job import SlurmRequest, run_slurm_job
from runmanager.launching.slurm.job_follower import SlurmJobs, SubmittedCell, outcome_of_job
from runmanager.launching.slurm.options import SlurmOptions
from runmanager.launching.slurm.queue import SlurmQueue
from runmanager.records.files.paths import SweepPaths
from runmanager.records.storage.run_end import end_gone_run

# The variables with this prefix reach a job also where the cluster passes on no environment.
_ENVIRONMENT_PREFIX = "RUNMANAGER_"


# Files that submitit writes before it calls sbatch, and renames when the job has a number.
_UNNUMBERED_FILE = re.compile(r"[0-9a-f]{32}\.pkl|\.submission_file_[0-9a-f]{32}\.sh")

# Variables of a shell that Slurm, srun, sbatch, submitit and MPI read or set: the job gets its own.
_OF_SLURM = re.compile(r"(?:SLURM|SRUN|SBATCH|SUBMITIT|PMI\w?)_.*")
_CONFIGURATION = "SLURM_CONF"
_FOR_SBATCH = re.compile(r"SBATCH_\w+|SLURM_CLUSTERS|SLURM_JWT", re.ASCII)  # which cluster, and as whom
# Of GPUs that Slurm gave to the job in which the driver runs; where the user has set them, they are the jobs' too.
_OF_GPUS = ("CUDA_VISIBLE_DEVICES", "ROCR_VISIBLE_DEVICES", "GPU_DEVICE_ORDINAL", "ZE_AFFINITY_MASK")
_GPUS_WERE_GIVEN = ("SLURM_JOB_GPUS", "SLURM_STEP_GPUS")

# The variables by which sbatch takes an option, or one that excludes it, where it is not `SBATCH_<option>` alone.
_MEMORY = ("MEM_PER_NODE", "MEM_PER_CPU", "MEM_PER_GPU")
_GPUS = ("GRES", "GPUS", "GPUS_PER_NODE", "GPUS_PER_SOCKET", "GPUS_PER_TASK")
_VARIABLES = {
    "time": ("TIMELIMIT",),
    "cpus_per_task": ("CPUS_PER_TASK", "CPUS_PER_GPU"),
    **dict.fromkeys(("mem", "mem_per_cpu", "mem_per_gpu"), _MEMORY),
    **dict.fromkeys(("gres", "gpus", "gpus_per_node", "gpus_per_socket", "gpus_per_task"), _GPUS),
    **dict.fromkeys(("requeue", "no_requeue"), ("REQUEUE", "NO_REQUEUE")),
    "switches": ("REQ_SWITCH", "WAIT4SWITCH"),
    "cpu_freq": ("CPU_FREQ_REQ",),
    "bb": ("BURST_BUFFER",),
}
_ALWAYS_OURS = ("ARRAY_INX", "OUTPUT", "ERROR", "OPEN_MODE", "SIGNAL", "WAIT")


@contextlib.contextmanager
def _commands_required() -> Iterator[None]:
    try:
        yield
    except RuntimeError as error:
        raise RunManagerError(
            f"`hydra/launcher=slurm` must run where Slurm's commands are, got: {error} Use a login node of the "
            "cluster, or `hydra/launcher=local`."
        ) from error


def submit(requests: Sequence[SlurmRequest], options: SlurmOptions, *, after: str | None) -> list[str]:
    """Submit an array or a single job, to start after the job or array `after`, and return each job's number.

    All runs of an array have as many ranks as the first. Raises `RunManagerError` where Slurm rejects it; then the
    files written for it are removed.
    """
    import submitit

    sweep = requests[0].sweep
    parameters = _parameters(sweep.name, options, after=after, processes=requests[0].processes)
    # submitit prints sbatch's error, which the exception below repeats.
    with (
        _removing_files_on_failure(jobs_folder(sweep)),
        _environment_of_sbatch([*parameters, *parameters["additional_parameters"]]) as for_sbatch,
        contextlib.redirect_stderr(io.StringIO()),
        warnings.catch_warnings(),
        _commands_required(),
    ):
        warnings.simplefilter("ignore")  # submitit's, about what is not used here
        try:
            executor = submitit.SlurmExecutor(jobs_folder(sweep))
            setup = {"setup": [f"unset {' '.join(for_sbatch)}"]} if for_sbatch else {}
            executor.update_parameters(**parameters, **setup)
            with executor.batch():
                jobs = [executor.submit(run_slurm_job, request) for request in requests]
        except (submitit.core.utils.FailedJobError, submitit.core.utils.FailedSubmissionError) as error:
            lines = str(error).strip().splitlines() or [type(error).__name__]
            raise RunManagerError(f"Slurm must accept the jobs, got: {lines[-1]}") from error
    return [str(job.job_id) for job in jobs]


def _parameters(name: str, options: SlurmOptions, *, after: str | None, processes: int) -> dict[str, Any]:
    memory = None if options.memory_gb is None else f"{max(1, round(options.memory_gb * 1024))}M"
    optional = {
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
        "cpus_per_task": options.cpus_per_task * processes,
        "ntasks_per_node": 1,
        "array_parallelism": options.array_parallelism,
        "signal_delay_s": options.signal_seconds,
        "stderr_to_stdout": True,
        "additional_parameters": more,
        **{key: value for key, value in optional.items() if value is not None},
    }


@contextlib.contextmanager
def _removing_files_on_failure(folder: Path) -> Iterator[None]:
    try:
        yield
    except BaseException:
        for path in folder.iterdir() if folder.is_dir() else ():
            # After the renaming this name is a link to the numbered script.
            if _UNNUMBERED_FILE.fullmatch(path.name) and not path.is_symlink():
                path.unlink(missing_ok=True)
        raise


@contextlib.contextmanager
def _environment_of_sbatch(options: Collection[str]) -> Iterator[list[str]]:
    """Hide the shell's variables of Slurm, which the jobs would inherit, and with which `srun` would start them.

    sbatch prefers a variable to an option of its script, so those of our `options` are hidden too. What a site or a
    user tells sbatch alone (`SBATCH_ACCOUNT`) stays; the names of these are yielded, for the script to unset them.
    """
    variables = (_VARIABLES.get(name, (name.upper(),)) for name in (each.replace("-", "_") for each in options))
    ours = {f"SBATCH_{name}" for names in (_ALWAYS_OURS, *variables) for name in names}
    names = [name for name in os.environ if _OF_SLURM.fullmatch(name) and name != _CONFIGURATION]
    for_sbatch = sorted(name for name in names if _FOR_SBATCH.fullmatch(name) and name not in ours)
    of_gpus = _OF_GPUS if any(name in os.environ for name in _GPUS_WERE_GIVEN) else ()
    hidden = {name for name in (*names, *of_gpus) if name in os.environ}.difference(for_sbatch)
    earlier = {name: os.environ.pop(name) for name in hidden}
    try:
        yield for_sbatch
    finally:
        os.environ.update(earlier)


class SlurmLauncher(ProcessLauncher):
    """Runs each cell as a job of a Slurm array: one submission, and Slurm limits how many run at a time.

    Cells of other numbers of ranks are other arrays, as all jobs of an array ask for the same.
    """

    options: SlurmOptions

    def __init__(self, **settings: Any) -> None:
        more = dict(settings.pop("additional_parameters", None) or {})
        self.options = checked(SlurmOptions(**settings, additional_parameters=more))
        require_package("submitit", extra="slurm")
        self._queue = SlurmQueue()
        self.processes_per_run = self.options.processes_per_run
        detached = [] if self.options.wait else [Trait.DETACHED]
        self.traits = frozenset({Trait.ELSEWHERE, Trait.STORES_WORK, *detached})

    @property
    def place(self) -> Place:
        """That of a single cell: each job has its own allocation."""
        memory_gb = self.options.memory_gb
        return Place(1, self.options.cpus_per_task, None if memory_gb is None else int(memory_gb * 2**30))

    @property
    def num_handed(self) -> int:
        return self.options.array_parallelism

    def run(
        self, jobs: Iterable[CellJob | None], listener: Listener, turns: Turns | None = None
    ) -> dict[int, JobReturn]:
        """Submit the cells that have no job in the queue, and wait for all of them unless `wait=false`."""
        setup_globals()
        recorder = ReturnRecorder(listener)
        cell_of = partial(self._cell, when_ended=listener.when_ended)
        cells = recorder.taken(jobs, cell_of, lambda _: True)  # those in the queue are followed, wanted or not
        if Trait.DETACHED in self.traits:
            self._submit_all(list(filter(None, cells)), listener)
            for each in recorder.returns.values():
                each.status, each.return_value = JobStatus.COMPLETED, None
            return recorder.returns
        engine = SlurmJobs(
            self.options,
            self._queue,
            submit=lambda handed: self._submit_all(handed, listener),
            submit_again=self._submit_again,
        )
        to_run = (cell and engine.job(cell) for cell in cells)
        retries = Retries(self.options.retries, displaced=self.options.resubmissions)
        if engine.run(to_run, recorder, retries=retries):
            raise KeyboardInterrupt
        return recorder.returns

    def check(self) -> None:
        import submitit

        with _commands_required():
            parameters = _parameters("check", self.options, after=None, processes=1)
            submitit.SlurmExecutor(Path("slurm")).update_parameters(**parameters)

    def settle(self, plan: Sequence[PlannedRun], sweep: SweepPaths) -> bool:
        """Write the end of each run whose job is gone: whether a process on another node lives, Slurm alone can see."""
        jobs = read_job_registry(sweep)
        running = {each.paths.name: each for each in plan if each.action is Action.LEAVE and each.paths.name in jobs}
        states = self._queue.states(jobs[name] for name in running) if running else {}
        gone = [] if states is None else [run for name, run in running.items() if jobs[name] not in states]
        for run in gone:
            log = jobs_folder(sweep) / f"{jobs[run.paths.name]}_0_log.out"
            end = self._queue.end_of(jobs[run.paths.name])
            outcome = outcome_of_job(end, options=self.options, log=log)
            end_gone_run(run.paths, outcome, pending=run.pending_record())
        return bool(gone)

    def queued(self, sweep: SweepPaths) -> dict[str, str]:
        registry = read_job_registry(sweep)
        return {name: f"Slurm job {registry[name]}" for name in _require_answer(states_in_queue(registry, self._queue))}

    def _cell(self, job: CellJob, when_ended: str | None) -> SubmittedCell:
        work, run = job.work(1), job.run
        if run is None:
            config = work.arguments[-1]
            # A run's name contains its signature; another application may reuse a folder for other settings later.
            name, sweep = " ".join([str(config.hydra.sweep.subdir), *job.overrides]), Path(config.hydra.sweep.dir)
        else:
            name, sweep = run.paths.name, run.paths.root.parent.parent
        driver_state, sent = send_work(work)
        request = SlurmRequest(
            work=sent,
            driver_state=driver_state,
            environment={name: value for name, value in os.environ.items() if name.startswith(_ENVIRONMENT_PREFIX)},
            sweep=SweepPaths(sweep.absolute()),
            run=run,
            limits=self.limits(job),
            time_limit_minutes=self.options.time,
            is_resumed=False,
            is_detached=not self.options.wait,
            processes=1 if run is None else run.cell.processes,
            when_ended=when_ended,
        )
        return SubmittedCell(job.key, name, request)

    def _submit_all(self, cells: Sequence[SubmittedCell], listener: Listener) -> list[SubmittedCell]:
        """Return the cells with their jobs: those that an earlier command has queued, and new ones for the others."""
        with locked_job_registry(cells[0].request.sweep) as registry:
            earlier = {cell.name: registry[cell.name] for cell in cells if cell.name in registry}
            states = _require_answer(self._queue.states(earlier.values()))
            cells = [cell for cell in cells if earlier.get(cell.name) in states or listener.wants(cell.key)]
            new = [cell for cell in cells if earlier.get(cell.name) not in states]
            size = self._queue.max_array_size() if len(new) > 1 else 1
            previous: str | None = None
            for part in _arrays(new, size):
                jobs = submit([cell.request for cell in part], self.options, after=previous)
                registry.update((cell.name, job) for cell, job in zip(part, jobs, strict=True))
                previous = jobs[-1].partition("_")[0]
            for cell in cells:
                cell.job = registry[cell.name]
            return cells

    def _submit_again(self, cell: SubmittedCell) -> None:
        with locked_job_registry(cell.request.sweep) as registry:
            (cell.job,) = submit([replace(cell.request, is_resumed=True)], self.options, after=None)
            registry[cell.name] = cell.job


def _arrays(cells: Sequence[SubmittedCell], size: int) -> Iterator[Sequence[SubmittedCell]]:
    """Yield the cells in arrays of at most `size`, each of cells with the same number of ranks."""
    by_ranks = sorted(cells, key=lambda cell: cell.request.processes)
    for _, group in groupby(by_ranks, key=lambda cell: cell.request.processes):
        equal = list(group)
        yield from (equal[begin : begin + size] for begin in range(0, len(equal), size))


def _require_answer(jobs: dict[str, str] | None) -> dict[str, str]:
    if jobs is None:
        raise RunManagerError("Slurm must answer `squeue`, got no answer; try again when it does.")
    return jobs

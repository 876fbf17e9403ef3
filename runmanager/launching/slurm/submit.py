"""Submitting cells to Slurm as one array of jobs through submitit, which writes the script and pickles the task."""

import contextlib
import importlib.util
import io
import os
import re
import warnings
from collections.abc import Collection, Iterator, Sequence
from pathlib import Path
from typing import Any

from runmanager.errors import RunManagerError, UsageError
from runmanager.launching.slurm.job import SlurmRequest, run_slurm_job
from runmanager.launching.slurm.options import SlurmOptions

__all__ = ["require_slurm", "require_submitit", "submit"]

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


def require_submitit() -> None:
    """Raise `UsageError` where submitit is not installed."""
    if importlib.util.find_spec("submitit") is None:
        raise UsageError(
            "`hydra/launcher=slurm` must find the package submitit, got none; pip install 'torch-runmanager[slurm]'."
        )


def require_slurm(options: SlurmOptions) -> None:
    """Raise what `submit` would before it asks Slurm: where its commands are missing, and for impossible options."""
    import submitit

    with _commands_required():
        parameters = _parameters("check", options, after=None, processes=1)
        submitit.SlurmExecutor(Path("slurm")).update_parameters(**parameters)


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
        _removing_files_on_failure(sweep.slurm),
        _environment_of_sbatch([*parameters, *parameters["additional_parameters"]]) as for_sbatch,
        contextlib.redirect_stderr(io.StringIO()),
        warnings.catch_warnings(),
        _commands_required(),
    ):
        warnings.simplefilter("ignore")  # submitit's, about what is not used here
        try:
            executor = submitit.SlurmExecutor(sweep.slurm)
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

"""Submitting cells to Slurm as one array of jobs through submitit, which writes the script and pickles the task."""

import contextlib
import importlib.util
import io
import os
import re
import warnings
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from runmanager.errors import RunManagerError, UsageError
from runmanager.launching.slurm.job import SlurmRequest, run_slurm_job
from runmanager.launching.slurm.options import SlurmOptions

__all__ = ["require_slurm", "require_submitit", "submit"]

# Files that submitit writes before it calls sbatch, and renames when the job has a number.
_UNNUMBERED_FILE = re.compile(r"[0-9a-f]{32}\.pkl|\.submission_file_[0-9a-f]{32}\.sh")


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
    # submitit prints sbatch's error, which the exception below repeats.
    with (
        _removing_files_on_failure(sweep.slurm),
        _job_environment_hidden(),
        contextlib.redirect_stderr(io.StringIO()),
        warnings.catch_warnings(),
        _commands_required(),
    ):
        warnings.simplefilter("ignore")  # submitit's, about what is not used here
        try:
            executor = submitit.SlurmExecutor(sweep.slurm)
            parameters = _parameters(sweep.name, options, after=after, processes=requests[0].processes)
            executor.update_parameters(**parameters)
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
def _job_environment_hidden() -> Iterator[None]:
    """Hide the variables of the Slurm job in which this driver runs, if any; its jobs would inherit their values."""
    inside = "SLURM_JOB_ID" in os.environ
    names = [name for name in os.environ if name.startswith(("SLURM_", "SUBMITIT_")) and name != "SLURM_CONF"]
    hidden = {name: os.environ.pop(name) for name in names} if inside else {}
    try:
        yield
    finally:
        os.environ.update(hidden)

"""Slurm's commands: states and ends of jobs, cancelling, signalling and requeuing. Uses no accounting."""

import os
import re
import subprocess
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from runmanager.errors import RunManagerError
from runmanager.launching.job_registry import JobQueue

_COMMAND_SECONDS = 60.0
# Variables of a shell that leave jobs out of an answer, and jobs that are missing there count as gone.
_FILTERS = re.compile(r"(?:SQUEUE|SCANCEL)_(?!ALL$|FEDERATION$|LOCAL$|SIB).*")


@dataclass(frozen=True)
class JobEnd:
    """The end of a job as Slurm reports it: its state (TIMEOUT, CANCELLED, …; empty if Slurm no longer knows it).

    `signal` is the one that killed the job's script or what it ran, 0 for none.
    """

    state: str = ""
    exit_code: int = 0
    signal: int = 0


class SlurmQueue(JobQueue):
    """Slurm's commands. Its controller answers them, which knows a job until some minutes after its end."""

    waiting = frozenset({"PENDING", "CONFIGURING", "REQUEUED", "REQUEUE_HOLD", "REQUEUE_FED"})

    def states(self, jobs: Iterable[str]) -> dict[str, str] | None:
        """Return the state of each of `jobs` in the queue (PENDING, RUNNING, …); None where Slurm does not answer.

        The jobs of an array are named `<array>_<index>`.
        """
        wanted = set(jobs)
        if not wanted:
            return {}
        arrays = sorted({job.partition("_")[0] for job in wanted})
        done = _run(["squeue", "--noheader", "--array", "--jobs", ",".join(arrays), "--format", "%i %T"])
        if done.returncode != 0:
            return {} if "Invalid job id" in done.stderr else None
        return {job: state for job, state in read_states(done.stdout).items() if job in wanted}

    def end_of(self, job: str) -> JobEnd:
        """Return how a job ended, as far as Slurm still knows."""
        done = _run(["scontrol", "--oneliner", "show", "job", job])
        return read_end(done.stdout) if done.returncode == 0 else JobEnd()

    def max_array_size(self) -> int:
        """Return how many jobs an array may have."""
        found = re.search(r"MaxArraySize\s*=\s*(\d+)", _run(["scontrol", "show", "config"]).stdout)
        return max(1, int(found.group(1)) - 1) if found else 1000

    def cancel(self, jobs: Sequence[str]) -> None:
        """Cancel jobs that have not started; the others continue."""
        if jobs:
            _run(["scancel", "--state=PENDING", *jobs])

    def kill(self, jobs: Sequence[str]) -> None:
        """Kill jobs immediately."""
        if jobs:
            _run(["scancel", "--signal=KILL", *jobs])

    def signal(self, jobs: Sequence[str], name: str) -> None:
        """Send a signal to every process of running jobs, possibly several times."""
        # To the step that submitit's script starts: for a whole job of an array, scancel sends the signal, reports an
        # error and retries for ten seconds while other jobs of the array wait (seen with Slurm 22.05).
        if jobs:
            _run(["scancel", f"--signal={name}", *(f"{job}.0" for job in jobs)])

    def requeue(self, job: str) -> bool:
        """Put a running job back into the queue; return whether Slurm did."""
        return _run(["scontrol", "requeue", job]).returncode == 0


def read_states(text: str) -> dict[str, str]:
    """Parse the output of `squeue --format "%i %T"`: the state of each job."""
    pairs = (line.split() for line in text.splitlines())
    return {pair[0]: pair[1] for pair in pairs if len(pair) == 2}


def read_end(text: str) -> JobEnd:
    """Parse the end of a job from a line of `scontrol --oneliner show job`."""
    state = re.search(r"\bJobState=(\w+)", text)
    code = re.search(r"\bExitCode=(\d+):(\d+)", text)
    exit_code, number = (int(code.group(1)), int(code.group(2))) if code else (0, 0)
    if exit_code > 128 and not number:
        number = exit_code - 128  # how srun reports that a signal killed what it ran
    return JobEnd(state.group(1) if state else "", exit_code, number)


def _run(command: Sequence[str]) -> subprocess.CompletedProcess[str]:
    try:
        return subprocess.run(
            command,
            env={name: value for name, value in os.environ.items() if not _FILTERS.fullmatch(name)},
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=_COMMAND_SECONDS,
            check=False,
        )
    except subprocess.TimeoutExpired:
        return subprocess.CompletedProcess(command, 1, "", "no answer")
    except FileNotFoundError:
        raise RunManagerError(
            f"`hydra/launcher=slurm` must find Slurm's commands on PATH, got no `{command[0]}`; run this on a login "
            "node of the cluster, or use `hydra/launcher=local`."
        ) from None

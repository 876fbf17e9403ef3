"""Asking Slurm which jobs it has, how one ended, and telling it to signal or end some; without its accounting."""

import re
import subprocess
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from runmanager.errors import RunManagerError

__all__ = ["WAITING_STATES", "JobEnd", "SlurmQueue", "read_end", "read_states"]

WAITING_STATES = frozenset({"PENDING", "CONFIGURING", "REQUEUED", "REQUEUE_HOLD", "REQUEUE_FED"})
"""States in which a job is in the queue and does nothing yet, or nothing any more."""

_PATIENCE_SECONDS = 60.0


@dataclass(frozen=True)
class JobEnd:
    """How Slurm says that a job ended: its state (TIMEOUT, CANCELLED, …; empty if Slurm no longer knows it).

    `signal` is the one that killed the job's script or what it ran, 0 for none.
    """

    state: str = ""
    exit_code: int = 0
    signal: int = 0


class SlurmQueue:
    """Slurm's own commands. They answer from its controller, which knows a job until some minutes after its end."""

    def states(self, jobs: Iterable[str]) -> dict[str, str] | None:
        """The state of each of `jobs` that is in the queue (PENDING, RUNNING, …); None where Slurm does not answer.

        An array's jobs are named `<array>_<index>`.
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
        """How a job ended, as far as Slurm still knows."""
        done = _run(["scontrol", "--oneliner", "show", "job", job])
        return read_end(done.stdout) if done.returncode == 0 else JobEnd()

    def max_array_size(self) -> int:
        """How many jobs an array may have."""
        found = re.search(r"MaxArraySize\s*=\s*(\d+)", _run(["scontrol", "show", "config"]).stdout)
        return max(1, int(found.group(1)) - 1) if found else 1000

    def cancel(self, jobs: Sequence[str]) -> None:
        """Take jobs that have not begun out of the queue; the others run on."""
        if jobs:
            _run(["scancel", "--state=PENDING", *jobs])

    def kill(self, jobs: Sequence[str]) -> None:
        """Kill jobs at once, whatever they are at."""
        if jobs:
            _run(["scancel", "--signal=KILL", *jobs])

    def signal(self, jobs: Sequence[str], name: str) -> None:
        """Send a signal to every process of running jobs, maybe several times."""
        # To the step that submitit's script starts: signalling an array's job as a whole is refused, after it has been
        # done, and tried again for ten seconds, while other jobs of the array wait (seen with Slurm 22.05).
        if jobs:
            _run(["scancel", f"--signal={name}", *(f"{job}.0" for job in jobs)])

    def requeue(self, job: str) -> bool:
        """Put a running job back into the queue; whether Slurm did."""
        return _run(["scontrol", "requeue", job]).returncode == 0


def read_states(text: str) -> dict[str, str]:
    """The lines of `squeue --format "%i %T"` by job."""
    pairs = (line.split() for line in text.splitlines())
    return {pair[0]: pair[1] for pair in pairs if len(pair) == 2}


def read_end(text: str) -> JobEnd:
    """What one line of `scontrol show job` says of a job's end."""
    state = re.search(r"\bJobState=(\w+)", text)
    code = re.search(r"\bExitCode=(\d+):(\d+)", text)
    exit_code, number = (int(code.group(1)), int(code.group(2))) if code else (0, 0)
    if exit_code > 128 and not number:
        number = exit_code - 128  # srun's own way to say that a signal ended what it ran
    return JobEnd(state.group(1) if state else "", exit_code, number)


def _run(command: Sequence[str]) -> subprocess.CompletedProcess[str]:
    try:
        return subprocess.run(
            command, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=_PATIENCE_SECONDS, check=False
        )
    except subprocess.TimeoutExpired:
        return subprocess.CompletedProcess(command, 1, "", "no answer")
    except FileNotFoundError:
        raise RunManagerError(
            f"`hydra/launcher=slurm` must find Slurm's commands on PATH, got no `{command[0]}`; run this on a login "
            "node of the cluster, or use `hydra/launcher=local`."
        ) from None

"""A real Slurm of one node on loopback, within a `with` block."""

import importlib.util
import os
import shutil
import signal
import socket
import subprocess
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

_COMMAND_SECONDS = 120
_START_SECONDS = 150
_STOP_SECONDS = 60
_TRIES = 3

NEEDED = ("slurmctld", "slurmd", "munged", "sbatch", "srun", "squeue", "scontrol", "scancel", "sinfo")


@dataclass(frozen=True)
class Slurm:
    """A running Slurm; its commands find it through `variables`."""

    variables: dict[str, str]

    def __call__(self, *command: str) -> str:
        """Run one of Slurm's commands and return its output."""
        environment = {**os.environ, **self.variables}
        done = subprocess.run(
            command, env=environment, capture_output=True, text=True, check=True, timeout=_COMMAND_SECONDS
        )
        return done.stdout

    def jobs(self) -> dict[str, str]:
        """Return the state of each job in the queue."""
        lines = self("squeue", "--noheader", "--array", "--format", "%i %T").splitlines()
        return dict(line.split() for line in lines)


def unavailable_reason() -> str | None:
    """Return why Slurm cannot be started on this machine; None where it can."""
    missing = [name for name in NEEDED if shutil.which(name) is None]
    if missing:
        return f"{missing[0]} is not installed (Debian: apt install slurm-wlm munge)"
    if os.geteuid() != 0:
        return "only root can start its daemons"
    if importlib.util.find_spec("submitit") is None:
        return "submitit is not installed (pip install torch-runmanager[slurm])"
    return None


@contextmanager
def running_slurm(folder: Path) -> Iterator[Slurm]:
    """Start slurmctld and slurmd, and stop them at the end. Raises `RuntimeError` where they do not start."""
    for number in range(_TRIES):  # another program may take one of the free ports first
        subfolder = folder / str(number)
        subfolder.mkdir()
        with _daemons(subfolder) as are_ready:
            if are_ready:
                yield Slurm({"SLURM_CONF": str(subfolder / "slurm.conf")})
                return
    raise RuntimeError(f"Slurm did not start:\n{(subfolder / 'faults').read_text()}")


@contextmanager
def _daemons(folder: Path) -> Iterator[bool]:
    """Start both through a script; yield whether they accept jobs in time; stop them afterwards."""
    command = [str(Path(__file__).with_name("start_slurm.sh")), str(folder), *map(str, _free_ports(2))]
    # The script stops Slurm when its standard input closes, so that Slurm does not outlive this process.
    with (folder / "faults").open("w") as faults:
        process = subprocess.Popen(
            command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=faults,
            text=True,
            start_new_session=True,
        )
    assert process.stdin is not None and process.stdout is not None
    timer = threading.Timer(_START_SECONDS, _kill, [process])
    timer.daemon = True
    timer.start()
    try:
        are_ready = process.stdout.readline().strip() == "ready"
        timer.cancel()
        yield are_ready
    finally:
        process.stdin.close()
        process.stdout.close()
        process.terminate()  # a process that was forked meanwhile may still hold its standard input open
        try:
            process.wait(timeout=_STOP_SECONDS)
        except subprocess.TimeoutExpired:
            _kill(process)
            process.wait(timeout=_STOP_SECONDS)


def _kill(process: subprocess.Popen[str]) -> None:
    """Kill the script and its daemons, if it still runs."""
    if process.poll() is None:
        os.killpg(process.pid, signal.SIGKILL)


def _free_ports(count: int) -> list[int]:
    sockets = [socket.socket() for _ in range(count)]
    try:
        for each in sockets:
            each.bind(("127.0.0.1", 0))
        return [each.getsockname()[1] for each in sockets]
    finally:
        for each in sockets:
            each.close()

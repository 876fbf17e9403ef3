"""Run commands as users do, in a new process, and measure their time and peak memory."""

import os
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path

__all__ = ["RUNMANAGER", "CompletedCommand", "clean_environment", "run_python"]

RUNMANAGER = ("-c", "import sys; from runmanager.cli.main import main; sys.exit(main())")
"""Arguments to Python that make it the command `runmanager`."""

_ROOT = Path(__file__).resolve().parents[1]
# Variables that would make a command behave differently from a fresh installation.
_REMOVED_VARIABLES = ("OMP_NUM_THREADS", "OMP_WAIT_POLICY", "PYTHONDONTWRITEBYTECODE", "RUNMANAGER_DATA")


@dataclass(frozen=True)
class CompletedCommand:
    """A command that succeeded.

    `peak_bytes` is the peak resident memory of the process itself, without its children. `cpu_seconds` is the processor
    time of all its threads, which other load on the machine hardly changes.
    """

    seconds: float
    peak_bytes: int
    output: str
    cpu_seconds: float


def run_python(*args: str, folder: Path) -> CompletedCommand:
    """Run `python ARGS` in `folder`. Raises `RuntimeError` if the exit status is not 0."""
    output = folder / ".output"
    with output.open("w+") as stream:
        start = time.perf_counter()
        process = subprocess.Popen(
            [sys.executable, *args],
            cwd=folder,
            env=clean_environment(),
            stdin=subprocess.DEVNULL,
            stdout=stream,
            stderr=subprocess.STDOUT,
        )
        _, status, usage = os.wait4(process.pid, 0)
        seconds = time.perf_counter() - start
        process.returncode = os.waitstatus_to_exitcode(status)
    text = output.read_text(errors="replace")
    if process.returncode != 0:
        raise RuntimeError(f"python {' '.join(args)} ended with status {process.returncode}:\n{text}")
    peak_bytes = usage.ru_maxrss * (1 if sys.platform == "darwin" else 1024)
    return CompletedCommand(seconds, peak_bytes, text, usage.ru_utime + usage.ru_stime)


def clean_environment() -> dict[str, str]:
    """Return the environment without variables that affect measurements, with this checkout first in PYTHONPATH."""
    environment = {name: value for name, value in os.environ.items() if name not in _REMOVED_VARIABLES}
    inherited = os.environ.get("PYTHONPATH", "").split(os.pathsep)  # may hold unpacked wheels (see gpu.sh)
    return {**environment, "PYTHONPATH": os.pathsep.join([str(_ROOT), *filter(None, inherited)])}

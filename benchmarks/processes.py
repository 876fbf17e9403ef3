"""Commands as people give them: a process of their own, its seconds, and the most memory that it had."""

import os
import subprocess
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

__all__ = ["Finished", "clean_environment", "run_python"]

_ROOT = Path(__file__).resolve().parents[1]
# Variables that would let a command do other than it does for somebody who has just installed it.
_LEFT_OUT = ("OMP_NUM_THREADS", "OMP_WAIT_POLICY", "PYTHONDONTWRITEBYTECODE", "RUNMANAGER_DATA")


@dataclass(frozen=True)
class Finished:
    """A command that came to its end.

    `peak_bytes` is the resident memory of its own process, not of those it began; `cpu_seconds` is what all its threads
    took of the processors, which other load on the machine hardly changes.
    """

    seconds: float
    peak_bytes: int
    output: str
    cpu_seconds: float


def run_python(*words: str, folder: Path) -> Finished:
    """Run `python WORDS` in `folder`. Raises `RuntimeError` where it does not end with status 0."""
    output = folder / ".output"
    with output.open("w+") as said:
        begin = time.perf_counter()
        process = subprocess.Popen(
            [sys.executable, *words],
            cwd=folder,
            env=clean_environment(),
            stdin=subprocess.DEVNULL,
            stdout=said,
            stderr=subprocess.STDOUT,
        )
        _, status, usage = os.wait4(process.pid, 0)
        seconds = time.perf_counter() - begin
        process.returncode = os.waitstatus_to_exitcode(status)
    text = output.read_text(errors="replace")
    if process.returncode != 0:
        raise RuntimeError(f"python {_shown(words)} ended with status {process.returncode}:\n{text}")
    peak_bytes = usage.ru_maxrss * (1 if sys.platform == "darwin" else 1024)
    return Finished(seconds, peak_bytes, text, usage.ru_utime + usage.ru_stime)


def clean_environment() -> dict[str, str]:
    """This process's variables without those that would change what is measured; this checkout is imported first."""
    environment = {name: value for name, value in os.environ.items() if name not in _LEFT_OUT}
    beside = os.environ.get("PYTHONPATH", "").split(os.pathsep)  # where a bare machine has the packages that it lacks
    return {**environment, "PYTHONPATH": os.pathsep.join([str(_ROOT), *filter(None, beside)])}


def _shown(words: Sequence[str]) -> str:
    return " ".join(words)

"""Commands of the application as processes of their own, and what is waited for while they run."""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
DEADLINE_SECONDS = 300  # of a sweep, on a machine that has much else to do
LOOK_SECONDS = 0.01


def start(folder: Path, *words: str, log: Path, variables: Mapping[str, str] | None = None) -> subprocess.Popen[bytes]:
    """`python -m runmanager` in a process group of its own; what it says is added to the file `log`."""
    return start_python(folder, "-m", "runmanager", *words, log=log, variables=variables)


def start_python(
    folder: Path, *words: str, log: Path, variables: Mapping[str, str] | None = None
) -> subprocess.Popen[bytes]:
    """Another Python program, likewise."""
    ours = {"CUDA_VISIBLE_DEVICES": "", "OMP_NUM_THREADS": "1", "COLUMNS": "240", "PYTHONPATH": str(ROOT)}
    with log.open("ab") as file:
        return subprocess.Popen(
            [sys.executable, *words],
            cwd=folder,
            env={**os.environ, **ours, **(variables or {})},
            stdin=subprocess.DEVNULL,
            stdout=file,
            stderr=file,
            start_new_session=True,
        )


@contextmanager
def ended(process: subprocess.Popen[bytes]) -> Iterator[None]:
    """Nothing of the command outlives this, whatever went wrong."""
    try:
        yield
    finally:
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGKILL)
        process.wait(60)


def wait_until(condition: Callable[[], Any], what: str) -> None:
    """Wait until it holds. Raises `TimeoutError`."""
    until = time.monotonic() + DEADLINE_SECONDS
    while not condition():
        if time.monotonic() > until:
            raise TimeoutError(f"{what}: waited for in vain")
        time.sleep(LOOK_SECONDS)

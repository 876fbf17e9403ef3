"""Commands of the application as separate processes, and waiting for conditions while they run."""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
sys.path.append(str(ROOT / "tests"))  # as in all commands of this folder
DEADLINE_SECONDS = 300  # of a sweep, on a busy machine
POLL_SECONDS = 0.01


def environment(variables: Mapping[str, str] | None = None) -> dict[str, str]:
    """Return the environment of a program, with further variables."""
    defaults = {"CUDA_VISIBLE_DEVICES": "", "OMP_NUM_THREADS": "1", "COLUMNS": "240", "PYTHONPATH": str(ROOT)}
    return {**os.environ, **defaults, **(variables or {})}


def start(
    folder: Path,
    *words: str,
    log: Path,
    variables: Mapping[str, str] | None = None,
    wrapper: Sequence[str] = (),
) -> subprocess.Popen[bytes]:
    """Start `python -m runmanager` in a new process group; its output is appended to the file `log`.

    `wrapper` is a command that calls the one that follows it.
    """
    return start_python(folder, "-m", "runmanager", *words, log=log, variables=variables, wrapper=wrapper)


def start_python(
    folder: Path,
    *words: str,
    log: Path,
    variables: Mapping[str, str] | None = None,
    wrapper: Sequence[str] = (),
) -> subprocess.Popen[bytes]:
    """Start another Python program in the same way."""
    with log.open("ab") as file:
        return subprocess.Popen(
            [*wrapper, sys.executable, *words],
            cwd=folder,
            env=environment(variables),
            stdin=subprocess.DEVNULL,
            stdout=file,
            stderr=file,
            start_new_session=True,
        )


@contextmanager
def killed_at_exit(process: subprocess.Popen[bytes]) -> Iterator[None]:
    """Kill the process group at exit if the command still runs."""
    try:
        yield
    finally:
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGKILL)
        process.wait(60)


def wait_until(condition: Callable[[], Any], what: str) -> None:
    """Wait until the condition holds. Raises `TimeoutError` after `DEADLINE_SECONDS`."""
    until = time.monotonic() + DEADLINE_SECONDS
    while not condition():
        if time.monotonic() > until:
            raise TimeoutError(f"timed out waiting for {what}")
        time.sleep(POLL_SECONDS)

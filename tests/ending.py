"""What a test has started comes to its end, with all that this has started in turn, in time or with a word why not."""

import contextlib
import subprocess
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import psutil
import pytest

__all__ = ["PATIENCE_SECONDS", "discard", "end_of", "kill_all", "time_since"]

PATIENCE_SECONDS = 120.0
_SECONDS_TO_DIE = 30.0


def kill_all(process: subprocess.Popen[Any]) -> None:
    """Kill a process and its descendants: who reads its pipe waits for each of them that lives on."""
    descendants: list[psutil.Process] = []
    if process.poll() is None:
        with contextlib.suppress(psutil.NoSuchProcess):
            descendants = psutil.Process(process.pid).children(recursive=True)
    process.kill()
    for each in descendants:
        with contextlib.suppress(psutil.NoSuchProcess):
            each.kill()


def discard(process: subprocess.Popen[Any]) -> None:
    """End what a test has left. Nothing is read any more: who outlived the process may hold the other side."""
    kill_all(process)
    process.wait(_SECONDS_TO_DIE)
    for stream in (process.stdin, process.stdout, process.stderr):
        if stream is not None:
            with contextlib.suppress(BrokenPipeError):  # what was written and never taken
                stream.close()


def end_of(process: subprocess.Popen[str], *, seconds: float = PATIENCE_SECONDS) -> tuple[str, str]:
    """All that a process says to its end; where that does not come in time it is ended, and the test fails."""
    try:
        return process.communicate(timeout=seconds)
    except subprocess.TimeoutExpired:
        kill_all(process)
        try:
            said = "\n".join(process.communicate(timeout=_SECONDS_TO_DIE))
        except subprocess.TimeoutExpired as late:
            said = f"{late.stdout!r}\n{late.stderr!r}\nand who was started by it still holds its pipes"
        discard(process)
        pytest.fail(f"the command came to no end in {seconds:g} s:\n{said}")


def time_since(path: Path) -> Callable[[], float]:
    """A clock that stands still until the file is there: what a busy machine takes until then counts for nothing."""
    began: list[float] = []

    def clock() -> float:
        if not path.exists():
            return 0.0
        if not began:
            began.append(time.monotonic())
        return time.monotonic() - began[0]

    return clock

"""Processes that tests start: they end in time, with all their descendants, or the test fails with a message."""

import contextlib
import subprocess
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import psutil
import pytest

__all__ = ["TIMEOUT_SECONDS", "discard", "kill_all", "time_since", "wait_for_output", "wait_until"]

TIMEOUT_SECONDS = 240.0  # a busy machine may take a hundred
_KILL_SECONDS = 30.0


def kill_all(process: subprocess.Popen[Any]) -> None:
    """Kill a process and its descendants, which would keep its pipes open."""
    descendants: list[psutil.Process] = []
    if process.poll() is None:
        with contextlib.suppress(psutil.NoSuchProcess):
            descendants = psutil.Process(process.pid).children(recursive=True)
    process.kill()
    for each in descendants:
        with contextlib.suppress(psutil.NoSuchProcess):
            each.kill()


def discard(process: subprocess.Popen[Any]) -> None:
    """Kill a process that a test has left and close its pipes unread, as a surviving descendant may hold them."""
    kill_all(process)
    process.wait(_KILL_SECONDS)
    for stream in (process.stdin, process.stdout, process.stderr):
        if stream is not None:
            with contextlib.suppress(BrokenPipeError):  # buffered input that was never read
                stream.close()


def wait_for_output(process: subprocess.Popen[str], *, seconds: float = TIMEOUT_SECONDS) -> tuple[str, str]:
    """Return the output of a process until its end; after the timeout the process is killed and the test fails."""
    try:
        return process.communicate(timeout=seconds)
    except subprocess.TimeoutExpired:
        kill_all(process)
        try:
            output = "\n".join(process.communicate(timeout=_KILL_SECONDS))
        except subprocess.TimeoutExpired as late:
            output = f"{late.stdout!r}\n{late.stderr!r}\nand a descendant still holds its pipes"
        discard(process)
        pytest.fail(f"the command did not end in {seconds:g} s:\n{output}")


def wait_until(condition: Callable[[], Any], what: str = "a condition", *, seconds: float = TIMEOUT_SECONDS) -> Any:
    """Return the value of `condition` as soon as it is true; after the timeout the test fails."""
    until = time.monotonic() + seconds
    while not (value := condition()):
        if time.monotonic() > until:
            pytest.fail(f"{what}: waited for in vain")
        time.sleep(0.01)  # between two polls
    return value


def time_since(path: Path) -> Callable[[], float]:
    """Return a clock that starts when the file appears, so that delays of a busy machine before that do not count."""
    began: list[float] = []

    def clock() -> float:
        if not path.exists():
            return 0.0
        if not began:
            began.append(time.monotonic())
        return time.monotonic() - began[0]

    return clock

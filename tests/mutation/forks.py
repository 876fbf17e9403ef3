"""Work in a forked process: its answer, or why it has none. Nothing that it started is left."""

import ctypes
import json
import os
import resource
import select
import sys
import time
from collections.abc import Callable
from contextlib import suppress
from typing import Any

import psutil

__all__ = ["DIED", "TIMED_OUT", "adopt_orphans", "answer_of_fork", "end_descendants"]

TIMED_OUT, DIED = "timed out", "died"
_SUBREAPER = 36  # of prctl(2)
_MAX_MEMORY_BYTES = 8 * 2**30
_POLL_SECONDS = 0.2


def adopt_orphans() -> None:
    """Become the parent of all descendants whose parent dies, where the system can do that."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_SUBREAPER, 1, 0, 0, 0)


def answer_of_fork(work: Callable[[], Any], *, limit_seconds: float) -> Any:
    """Return what `work` returns in a forked process, as JSON can hold it; `TIMED_OUT` or `DIED` without an answer."""
    readable, writable = os.pipe()
    pid = os.fork()
    if not pid:
        _answer(work, writable)
    os.close(writable)
    try:
        return _read_answer(readable, pid, time.monotonic() + limit_seconds)
    finally:
        os.close(readable)
        end_descendants()


def _answer(work: Callable[[], Any], writable: int) -> None:
    try:
        null = os.open(os.devnull, os.O_RDWR)
        for number in range(3):
            os.dup2(null, number)
        resource.setrlimit(resource.RLIMIT_DATA, (_MAX_MEMORY_BYTES, _MAX_MEMORY_BYTES))
        os.write(writable, json.dumps(work()).encode() + b"\n")
    finally:
        os._exit(0)  # the threads and the exit handlers are those of the parent


def _read_answer(readable: int, pid: int, until: float) -> Any:
    data = b""
    while not data.endswith(b"\n"):
        if time.monotonic() > until:
            return TIMED_OUT
        has_ended = os.waitpid(pid, os.WNOHANG)[0] == pid  # before the look: it may write and exit in between
        if select.select([readable], [], [], 0 if has_ended else _POLL_SECONDS)[0]:
            data += os.read(readable, 1 << 16)
        if has_ended and not data.endswith(b"\n"):
            return DIED
    return json.loads(data)


def end_descendants() -> None:
    """Kill and collect all processes that this one and its descendants have started."""
    while processes := psutil.Process().children(recursive=True):
        for process in processes:
            with suppress(psutil.Error):
                process.kill()
        with suppress(ChildProcessError):
            while os.waitpid(-1, os.WNOHANG)[0]:
                pass
        time.sleep(0.01)

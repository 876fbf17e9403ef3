"""The end of what a program has started: processes in sessions of their own, which no signal to a group reaches."""

import contextlib
import ctypes
import os
import signal
import sys
import time
from collections.abc import Iterator

import psutil

__all__ = ["ending_left_processes"]

_PR_SET_CHILD_SUBREAPER = 36  # linux/prctl.h
_LIBC = ctypes.CDLL(None) if sys.platform == "linux" else None
_PAUSE_SECONDS = 0.01
_KILL_SECONDS = 30.0  # until killed processes are dead: one in a call of a driver may take longer


@contextlib.contextmanager
def ending_left_processes() -> Iterator[None]:
    """Kill, at the end of the block, what is left of all that was started in it, and wait until it is dead.

    The kernel gives this process the orphans among its descendants, so none is missed, whichever died first. Children
    that it had before are left alone. Linux only: elsewhere nothing is done.
    """
    if _LIBC is None:
        yield
        return
    before = _children()
    _LIBC.prctl(_PR_SET_CHILD_SUBREAPER, 1)
    try:
        yield
    finally:
        deadline = time.monotonic() + _KILL_SECONDS
        while (left := _children() - before) and time.monotonic() < deadline:
            for pid in left:
                _kill(pid)
            time.sleep(_PAUSE_SECONDS)  # the children of what was killed arrive here in turn
        _LIBC.prctl(_PR_SET_CHILD_SUBREAPER, 0)


def _children() -> set[int]:
    return {child.pid for child in psutil.Process().children()}


def _kill(pid: int) -> None:
    """Kill a child, and collect it if it is dead."""
    with contextlib.suppress(ProcessLookupError, ChildProcessError):
        os.kill(pid, signal.SIGKILL)
        os.waitpid(pid, os.WNOHANG)

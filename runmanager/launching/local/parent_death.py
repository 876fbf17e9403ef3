"""Tying a process to its parent: when the parent is gone, however it went, the process goes too.

The kernel sees to it (PR_SET_PDEATHSIG), so it holds in a long C call too. It watches the *thread* that started the
process, and knows nothing of a parent that was gone before it was asked: both are looked after here.
"""

import ctypes
import os
import signal
import sys
import threading
import time
from collections.abc import Callable
from multiprocessing import connection, parent_process

from runmanager.launching.local.multiprocessing_internals import register_after_fork

__all__ = ["bind_next_forks", "bind_workers", "call_when_orphaned", "die_with_parent", "watch_driver"]

_PR_SET_PDEATHSIG = 1  # linux/prctl.h
_LOOK_SECONDS = 0.2
_LIBC = ctypes.CDLL(None) if sys.platform == "linux" else None  # loaded before a fork: a child is to do little


def die_with_parent(parent: int) -> None:
    """Let the kernel end this process when the thread that started it ends; leave now if `parent` is gone already.

    On Linux. The pid is compared, and not whether it is 1: in a container the driver itself may be process 1.
    """
    assert _LIBC is not None
    _LIBC.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != parent:
        os._exit(1)


def bind_next_forks() -> None:
    """Tie what this process forks to it from the first instruction on, but nothing that those fork in turn."""
    forker = os.getpid()

    def tie() -> None:
        nonlocal forker
        if forker:
            forker, parent = 0, forker
            die_with_parent(parent)

    os.register_at_fork(after_in_child=tie)


def watch_driver() -> None:
    """Where the kernel ties nothing (macOS), have a thread wait for the driver's end.

    It cannot end a process that is inside a long C call, which the kernel can.
    """
    threading.Thread(target=_exit_after_parent, daemon=True).start()


def _exit_after_parent() -> None:
    parent = parent_process()
    if parent is not None:
        connection.wait([parent.sentinel])
        os._exit(1)


class _Forker:
    """Who forked last, and whether it did so in its main thread: a child finds here what its parent left."""

    pid: int | None = None  # None: nothing is tied yet
    in_main_thread = True

    def note(self) -> None:
        self.pid = os.getpid()
        self.in_main_thread = threading.current_thread() is threading.main_thread()

    def tie(self) -> None:
        """In a child, as its first lines."""
        assert self.pid is not None
        if sys.platform == "linux" and self.in_main_thread:
            die_with_parent(self.pid)
        else:  # the thread that started it may end long before the process does
            parent = self.pid
            threading.Thread(target=call_when_orphaned, args=(parent, lambda: os._exit(1)), daemon=True).start()


_forker = _Forker()


def bind_workers() -> None:
    """Tie what multiprocessing forks from this process on, and from those: a loader's workers above all.

    PyTorch's workers look for their parent every five seconds only. What is forked otherwise is let be: it may be meant
    to stay.
    """
    if _forker.pid is None:
        _forker.note()
        os.register_at_fork(before=_forker.note)
        register_after_fork(_forker, _Forker.tie)


def call_when_orphaned(parent: int, act: Callable[[], object]) -> None:
    """Wait until this process has another parent than `parent`, then `act`. For a thread of its own."""
    while os.getppid() == parent:
        time.sleep(_LOOK_SECONDS)
    act()

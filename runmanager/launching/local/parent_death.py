"""Binding a process to its parent: it ends when the parent ends.

The kernel does it (PR_SET_PDEATHSIG), so it works during a long C call too. But the kernel watches the *thread* that
started the process, and ignores a parent that ended before the call: both cases are handled here.
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

_PR_SET_PDEATHSIG = 1  # linux/prctl.h
_POLL_SECONDS = 0.2
_LIBC = ctypes.CDLL(None) if sys.platform == "linux" else None  # loaded before a fork: a child should do little


def die_with_parent(parent: int) -> None:
    """Let the kernel kill this process when the thread that started it ends. Exit now if `parent` has ended already.

    Linux only. Compares pids instead of testing for 1, as in a container the driver itself may be process 1.
    """
    assert _LIBC is not None
    _LIBC.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != parent:
        os._exit(1)


def bind_next_forks() -> None:
    """Bind each process that this one forks to it from the first instruction on, but not what those fork in turn."""
    forker = os.getpid()

    def bind() -> None:
        nonlocal forker
        if forker:
            forker, parent = 0, forker
            die_with_parent(parent)

    os.register_at_fork(after_in_child=bind)


def watch_driver() -> None:
    """Start a thread that ends this process when the driver ends, where the kernel cannot (macOS).

    Unlike the kernel, it cannot end a process during a long C call.
    """
    threading.Thread(target=_exit_after_parent, daemon=True).start()


def _exit_after_parent() -> None:
    parent = parent_process()
    if parent is not None:
        connection.wait([parent.sentinel])
        os._exit(1)


class _Forker:
    """The process that forked last, and whether its main thread did; a child reads here what its parent wrote."""

    pid: int | None = None  # None: nothing is bound yet
    in_main_thread = True

    def note(self) -> None:
        self.pid = os.getpid()
        self.in_main_thread = threading.current_thread() is threading.main_thread()

    def bind(self) -> None:
        """Bind this process, a child, to the one that forked it."""
        assert self.pid is not None
        if sys.platform == "linux" and self.in_main_thread:
            die_with_parent(self.pid)
        else:  # the thread that started it may end long before the process does
            parent = self.pid
            threading.Thread(target=call_when_orphaned, args=(parent, lambda: os._exit(1)), daemon=True).start()


_forker = _Forker()


def bind_workers() -> None:
    """Bind the processes that multiprocessing forks from this one and from its children, above all a loader's workers.

    PyTorch's workers check for their parent every five seconds only. Other forks are left alone: they may be meant to
    outlive this process.
    """
    if _forker.pid is None:
        _forker.note()
        os.register_at_fork(before=_forker.note)
        register_after_fork(_forker, _Forker.bind)


def call_when_orphaned(parent: int, act: Callable[[], object]) -> None:
    """Wait until this process has another parent than `parent`, then call `act`. Meant for a thread."""
    while os.getppid() == parent:
        time.sleep(_POLL_SECONDS)
    act()

"""Tying a process to its parent: when the parent is gone, however it went, the process goes too."""

import ctypes
import os
import signal
import sys
import threading
from multiprocessing import connection, parent_process

__all__ = ["die_with_parent"]

_PR_SET_PDEATHSIG = 1  # linux/prctl.h


def die_with_parent() -> None:
    """Let the kernel end this process when the thread that started it ends.

    Where there is no such call (macOS), a thread waits for the driver's end instead; it cannot end a process that is
    inside a long C call, which the kernel can.
    """
    if sys.platform == "linux":
        ctypes.CDLL(None, use_errno=True).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
        # It may have gone before the call. Its pid would not tell: in a container the driver itself may be process 1.
        parent = parent_process()
        if parent is not None and connection.wait([parent.sentinel], timeout=0):
            os._exit(1)
    else:
        threading.Thread(target=_exit_after_parent, daemon=True).start()


def _exit_after_parent() -> None:
    parent = parent_process()
    if parent is not None:
        connection.wait([parent.sentinel])
        os._exit(1)

"""The first lines of a rank that torchrun starts: it ends when torchrun does, and becomes the script.

torchrun gives each rank a session of its own, so killing the cell's process group would leave the ranks running. Any
interpreter runs this file by its path: it imports nothing of this package.
"""

import ctypes
import os
import signal
import sys

_PR_SET_PDEATHSIG = 1  # linux/prctl.h; holds for the program that this process becomes

if __name__ == "__main__":
    parent = os.getppid()
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
        if os.getppid() != parent:
            os._exit(1)
    os.execv(sys.executable, [sys.executable, *sys.argv[1:]])  # noqa: S606  # the words of the command

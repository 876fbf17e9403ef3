"""`python -m runmanager.app.tied PID WORDS`: the application for a program that wants it to end with itself.

A notebook's kernel that is restarted, or dies, would else leave a driver behind that nobody can reach. The runs end as
by SIGTERM: each finishes its epoch, and the same command goes on with them.
"""

import os
import signal
import sys
import threading
import time

from runmanager.app.main import main

_LOOK_SECONDS = 1.0


def end_with(parent: int) -> None:
    """Have this process told to end when its parent is no longer the process `parent`."""
    threading.Thread(target=_wait_for_end_of, args=(parent,), daemon=True).start()


def _wait_for_end_of(parent: int) -> None:
    while os.getppid() == parent:
        time.sleep(_LOOK_SECONDS)
    os.kill(os.getpid(), signal.SIGTERM)


if __name__ == "__main__":
    end_with(int(sys.argv[1]))
    sys.exit(main(sys.argv[2:]))

"""`python -m runmanager.app.subprocess_main PID WORDS`: the application for a program that wants it to end with itself.

A notebook's kernel that is restarted, or dies, would else leave a driver behind that nobody can reach. Its runs end at
once, as by Ctrl-C twice; the tables are written, and the same command goes on from the checkpoints.
"""

import os
import signal
import sys
import threading

from runmanager.app.main import main
from runmanager.launching.local.parent_death import when_orphaned


def end_with(parent: int) -> None:
    """Have this process told to end at once when its parent is no longer the process `parent`."""
    threading.Thread(target=when_orphaned, args=(parent, _end_at_once), daemon=True).start()


def _end_at_once() -> None:
    for number in (signal.SIGINT, signal.SIGTERM):  # the first lets epochs end; two of one kind may count as one
        os.kill(os.getpid(), number)


if __name__ == "__main__":
    signal.signal(signal.SIGINT, signal.default_int_handler)  # a kernel may be deaf to it, and pass that on
    end_with(int(sys.argv[1]))
    sys.exit(main(sys.argv[2:]))

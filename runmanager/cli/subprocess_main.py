"""`python -m runmanager.cli.subprocess_main PID ARGUMENTS`: a command that ends together with its parent PID.

A notebook kernel that is restarted or dies would otherwise leave an unreachable driver behind. The runs end at once, as
after two Ctrl-C; the tables are written, and the same command resumes from the checkpoints.
"""

import os
import signal
import sys
import threading

from runmanager.cli.main import run_command
from runmanager.launching.local.parent_death import call_when_orphaned


def end_with_parent(parent: int) -> None:
    """Interrupt this process twice once the process `parent` is not its parent any more."""
    threading.Thread(target=call_when_orphaned, args=(parent, _end_at_once), daemon=True).start()


def _end_at_once() -> None:
    for number in (signal.SIGINT, signal.SIGTERM):  # the first lets epochs end; two equal signals may merge into one
        os.kill(os.getpid(), number)


if __name__ == "__main__":
    signal.signal(signal.SIGINT, signal.default_int_handler)  # a kernel may ignore it, which is inherited
    end_with_parent(int(sys.argv[1]))
    sys.exit(run_command(sys.argv[2:]))

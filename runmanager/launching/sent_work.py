"""The work of a job as it is sent to another machine, and done in a process there."""

import os
import pickle
import signal
from collections.abc import Mapping
from typing import Any

from runmanager.launching.hydra_internals import keep_imported_main_quiet
from runmanager.launching.local.multiprocessing_internals import interpreter_state, restore_interpreter_state
from runmanager.launching.work import Work, do_work


def send_work(work: Work) -> tuple[Mapping[str, Any], bytes]:
    """Return the arguments of `do_sent_work` that do this work as the driver would, with its folder and main module."""
    return interpreter_state(), pickle.dumps(work)


def do_sent_work(driver_state: Mapping[str, Any], work: bytes) -> Any:
    """Restore the driver's state in the run's own process, and do the pickled `Work`."""
    os.register_at_fork(after_in_child=_block_termination)
    signal.signal(signal.SIGTERM, signal.SIG_DFL)  # a supervisor may ignore it, by inheritance; the task may handle it
    keep_imported_main_quiet()
    restore_interpreter_state(driver_state)
    return do_work(pickle.loads(work))  # noqa: S301  # what the driver sent


def _block_termination() -> None:
    # torch gives a loader's workers a handler that makes them die of a SIGTERM that is not their parent's. A run that
    # should end after its epoch would fail. When the run is over, its whole group is killed.
    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGTERM})

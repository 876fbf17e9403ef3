"""What is still to be written when somebody drops a run or a manager, or the process ends with it."""

import contextlib
from collections.abc import Callable
from multiprocessing.util import Finalize
from typing import Any

from runmanager.records.run.status import Outcome, Reason, Status
from runmanager.records.storage.run_end import end_own_run
from runmanager.records.storage.run_folder import RunFolder
from runmanager.tracking.environment.heartbeat_writer import Heartbeat

__all__ = ["end_run_when_dropped", "when_dropped"]

_RUNS_FIRST, _OTHERS = 20, 10
_NEVER_ENDED = Outcome(Status.KILLED, Reason.INTERRUPTED, "begun and never ended")


def when_dropped(
    owner: object | None, act: Callable[..., object], *arguments: Any, priority: int = _OTHERS
) -> Finalize:
    """Call `act` once: when nobody holds `owner` any more, or at this process's end (only then for None); in no fork.

    The processes of `multiprocessing` end without Python's own finalizers, so it is that module's which is used.
    """
    return Finalize(owner, act, args=arguments, exitpriority=priority)


def end_run_when_dropped(
    run: object, folder: RunFolder, heartbeat: Heartbeat, outcome: Outcome = _NEVER_ENDED
) -> Finalize:
    """Let a run without an end in its record read `outcome` when it is dropped, as in a notebook's cell that raises."""
    return when_dropped(run, _end_run, folder, heartbeat, outcome, priority=_RUNS_FIRST)


def _end_run(folder: RunFolder, heartbeat: Heartbeat, outcome: Outcome) -> None:
    is_lost = folder.is_lost()
    heartbeat.stop(keeps_file=is_lost)
    if is_lost or not folder.is_ours:
        return
    with contextlib.suppress(OSError):  # the folder may be gone
        end_own_run(folder, outcome)
    folder.leave()

"""The runs that are open in this process, for calls that name none."""

import os
import threading
import weakref
from typing import TYPE_CHECKING

from runmanager.errors import UsageError

if TYPE_CHECKING:
    from runmanager.tracking.run import ActiveRun

__all__ = ["last_run_begun_here", "open_run_of_thread", "register", "unregister"]

_lock = threading.RLock()  # a signal may come while its own thread holds it
_open: list[tuple[int, int, "weakref.ref[ActiveRun]"]] = []  # process, thread, run; in order of their beginning


def register(run: "ActiveRun") -> None:
    """Add a run that this thread begins."""
    with _lock:
        _open.append((os.getpid(), threading.get_ident(), weakref.ref(run)))


def unregister(run: "ActiveRun") -> None:
    """Remove a run that has ended."""
    with _lock:
        _open[:] = [entry for entry in _open if entry[2]() not in (run, None)]


def last_run_begun_here() -> "ActiveRun | None":
    """Return the last open run that this thread of this process began."""
    here = os.getpid(), threading.get_ident()
    with _lock:
        known = [run for process, thread, ref in _open if (process, thread) == here and (run := ref()) is not None]
    return known[-1] if known else None


def open_run_of_thread() -> "ActiveRun | None":
    """Return the last run that this thread began, else the only open one of this process, or of the one it forked from.

    Raises `UsageError` if other threads have several.
    """
    if (own := last_run_begun_here()) is not None:
        return own
    with _lock:
        known = [run for _, _, ref in _open if (run := ref()) is not None]
    if len(known) > 1:
        raise UsageError(f"log() must be called in a thread that has a run, got {len(known)} runs of other threads.")
    return known[0] if known else None

"""Active runs, and finalizers: record the end of a dropped run, and write the tables of a dropped manager."""

import contextlib
import os
import shutil
import sys
import tempfile
import threading
import weakref
from collections.abc import Callable, Sequence
from functools import cache, partial
from multiprocessing.util import Finalize
from pathlib import Path
from typing import TYPE_CHECKING, Any

from runmanager.errors import RecordError, UsageError
from runmanager.records.files.paths import RunPaths, SweepPaths
from runmanager.records.host.standard_streams import show_line
from runmanager.records.run.status import Outcome, Reason, Status
from runmanager.records.storage.run_end import end_own_run
from runmanager.records.storage.run_folder import RunFolder
from runmanager.records.sweep.lookup import command_on
from runmanager.tracking.monitoring.heartbeat_writer import Heartbeat

if TYPE_CHECKING:
    from runmanager.tracking.run import ActiveRun

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


_RUNS_FIRST, _OTHERS, _LAST = 20, 10, 5
_NEVER_ENDED = Outcome(Status.KILLED, Reason.INTERRUPTED, "begun and never ended")


def _when_dropped(
    owner: object | None, act: Callable[..., object], *arguments: Any, priority: int = _OTHERS
) -> Finalize:
    """Call `act` once: when `owner` is garbage, or at this process's end (only then for None); never in a fork.

    Processes of `multiprocessing` end without running Python's own finalizers, so this uses that module's.
    """
    return Finalize(owner, act, args=arguments, exitpriority=priority)


def end_run_when_dropped(
    run: object, folder: RunFolder, heartbeat: Heartbeat, outcome: Outcome = _NEVER_ENDED
) -> Finalize:
    """Record `outcome` when a run is dropped without an end, for example by a notebook cell that raises."""
    return _when_dropped(run, _end_run, folder, heartbeat, outcome, priority=_RUNS_FIRST)


def _end_run(folder: RunFolder, heartbeat: Heartbeat, outcome: Outcome) -> None:
    try:
        is_lost = folder.is_lost()
    except RecordError:  # the folder is gone, as the run or its driver has told
        is_lost = True
    heartbeat.stop(keeps_file=is_lost)
    if is_lost or not folder.is_ours:
        return
    with contextlib.suppress(OSError):  # the folder may be gone
        end_own_run(folder, outcome)
    folder.leave()


def temporary_folder(owner: object | None = None) -> Path:
    """Return a new folder that is removed when `owner` is garbage, or at this process's end."""
    folder = Path(tempfile.mkdtemp(prefix="runmanager-"))
    _when_dropped(owner, partial(shutil.rmtree, folder, ignore_errors=True))
    return folder


def write_tables_if_begun(paths: SweepPaths, begun: Sequence[RunPaths]) -> None:
    """Write a sweep's tables and report if any run has begun and its folder still exists."""
    if begun and paths.root.exists():
        from runmanager.results.result_files import write_tables

        write_tables(paths)


def write_tables_when_dropped(manager: object, paths: SweepPaths, begun: Sequence[RunPaths], *, shows: bool) -> None:
    """Write the tables and report once, when the manager is dropped.

    `shows`: at the end of the process, if it wrote this sweep alone, print in a terminal where the results are.
    """
    _when_dropped(manager, _write_tables_now_or_at_exit, paths, begun, shows)
    if shows:
        _show_where_at_exit(os.getpid())


def _write_tables_now_or_at_exit(paths: SweepPaths, begun: Sequence[RunPaths], shows: bool) -> None:
    """Write the tables, or retry at the process's end: garbage may be collected in the middle of an import."""
    try:
        write_tables_if_begun(paths, begun)
    except Exception:
        _when_dropped(None, write_tables_if_begun, paths, begun)
    if shows and begun:
        _written.add(paths.root)


_written: set[Path] = set()
"""The folders of the sweeps that this process, or one that it was forked from, has written and is to show."""


@cache
def _show_where_at_exit(_process: int) -> None:
    """Show the results after all managers are dropped; once in each process."""
    _when_dropped(None, _show_where, priority=_LAST)


def _show_where() -> None:
    if len(_written) != 1 or sys.stdout is None or sys.stdout.closed or not sys.stdout.isatty():
        return
    with contextlib.suppress(OSError):  # no current folder
        here, (root,) = Path.cwd(), _written
        root = root.relative_to(here) if root.is_relative_to(here) else root
        if root.exists():
            show_line(f"The results are in {root}; `{command_on(SweepPaths(root), 'table')}` shows them.")

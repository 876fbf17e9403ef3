"""Following a sweep from its files: shows which cells start, advance and end, until the last has ended."""

import contextlib
import datetime
import time
from collections import Counter
from collections.abc import Callable

from rich.console import Console, RenderableType

from runmanager.app.display.final_summary import show_results
from runmanager.app.display.live_region import LiveRegion, terminal_region
from runmanager.app.display.progress import RunDisplay
from runmanager.app.display.run_line import paired_measure_seconds, planned_epochs, progress_text, run_label, run_line
from runmanager.app.display.run_times import RunTimes, RunToCome
from runmanager.app.follow.sweep_state import CellState, SweepReader, SweepState
from runmanager.errors import RecordError
from runmanager.launching.slurm.queue import SlurmQueue
from runmanager.records.files.paths import RunPaths, SweepPaths
from runmanager.records.run.heartbeat import HeartbeatObserver, describe_last_heartbeat, read_beat
from runmanager.records.run.run_record import RunRecord
from runmanager.records.run.status import Status
from runmanager.records.storage.reader import read_epochs, read_record
from runmanager.text import pluralize, printable_line

__all__ = ["POLL_SECONDS", "Follower", "follow_runs", "follow_sweep", "show_state", "write_missing_report"]

POLL_SECONDS = 0.5
_NOT_ENDED = object()


def show_state(sweep: SweepPaths, console: Console, *, queue: SlurmQueue | None = None) -> int:
    """Print the sweep's state, with a line for each run that is running or ended badly; return its exit status."""
    state = SweepReader(sweep, queue=queue).read()
    console.print(printable_line(f"{sweep.root}: {state.in_words()}"))
    for number, cell in enumerate(state.cells, start=1):
        if cell.is_damaged:
            console.print(printable_line(_damage_message(cell.paths)), soft_wrap=not console.is_terminal)
        if cell.record is None or cell.record.status.is_success:
            continue
        try:
            epochs = read_epochs(cell.paths)
        except RecordError:
            epochs = []
        line = run_line(cell.record, epochs, counted=f"{number}/{len(state.cells)}")
        if cell.is_running:
            line.append(f"  {progress_text(cell.record, epochs)}")
        if cell.record.is_running_elsewhere:
            line.append(f"  on another host, {describe_last_heartbeat(read_beat(cell.paths.heartbeat))}")
        console.print(line, soft_wrap=not console.is_terminal)
    return state.status


def _damage_message(paths: RunPaths) -> str:
    try:
        read_record(paths)
    except RecordError as error:
        return str(error)
    return f"{paths.record} could not be read at first"


def follow_sweep(
    sweep: SweepPaths,
    console: Console,
    *,
    queue: SlurmQueue | None = None,
    observer: HeartbeatObserver | None = None,
    metric: str | None = None,
) -> int:
    """Show the sweep's runs until every cell has ended, then its tables; return its exit status.

    Only files are read, so this works with a driver, after it, and without one. `queue` is queried for cells that were
    submitted to Slurm. The report of such a sweep is written at the end if it is missing. `observer` judges runs on
    other hosts, and waits between two polls. The live table has a column of `metric`, if the runs log it.
    """
    observer = observer or HeartbeatObserver()
    reader = SweepReader(sweep, observer=observer, queue=queue)
    state = follow_runs(reader, console, observer=observer, metric=metric)
    write_missing_report(sweep, state)
    show_results(sweep, console, observer=observer)
    return state.status


def follow_runs(
    reader: SweepReader,
    console: Console,
    *,
    observer: HeartbeatObserver,
    live_region: Callable[[Console, Callable[[], RenderableType]], LiveRegion] = terminal_region,
    has_left: Callable[[], bool] | None = None,
    since: float | None = None,
    metric: str | None = None,
) -> SweepState:
    """Show the runs that `reader` reads until every cell has ended; return the last state.

    With `has_left`, following ends instead when it returns True: the caller's driver has exited. `live_region` creates
    the region for the running rows. The live table has a column of `metric`, if the runs log it. Runs that ended before
    `since`, in seconds since 1970 and by default now, are only counted.
    """
    state = reader.read()
    labels = [run_label(cell.name) for cell in state.cells]
    times, settings = RunTimes(), reader.settings_by_run()
    names = [name for cell in state.cells if (name := cell.paths.name) in settings]
    display = RunDisplay(
        console,
        num_runs=len(state.cells),
        labels=labels,
        metric=metric,
        to_come={name: RunToCome(times.work(settings[name])) for name in names},
        times=times,
        live_region=live_region,
    )
    # A live display counts the cells by state itself; a count printed now would soon be wrong.
    shows_counts = display.is_live and not state.is_ended
    display.say(f"{reader.root}: {state.size_in_words() if shows_counts else state.in_words()}")
    follower = Follower(display)
    follower.count_earlier_ends(state, before=time.time() if since is None else since)

    def read() -> tuple[SweepState, bool]:
        is_last = has_left is not None and has_left()  # before reading, so that its last changes are seen
        state = reader.read()
        display.count_to(len(state.cells))
        return state, is_last or (has_left is None and state.is_ended)

    with display:
        return follower.follow(read, wait=lambda: observer.wait(POLL_SECONDS))


def write_missing_report(sweep: SweepPaths, state: SweepState) -> None:
    """Write the report of a detached Slurm sweep if its last job was killed before it could."""
    if not sweep.slurm_jobs.exists():
        return  # its driver writes the report
    written = sweep.report.stat().st_mtime_ns if sweep.report.exists() else 0
    ends = [cell.paths.record.stat().st_mtime_ns for cell in state.cells if cell.record is not None]
    if max(ends, default=0) <= written:
        return
    from runmanager.results.result_files import write_tables

    with contextlib.suppress(OSError):  # the folder may be read-only for this user
        write_tables(sweep)


class Follower:
    """Shows on a display the changes between successive states of a sweep."""

    def __init__(self, display: RunDisplay) -> None:
        self._display = display
        self._running: dict[str, RunPaths] = {}
        self._ended: dict[str, RunRecord | None] = {}
        self._vanished: set[str] = set()
        self._superseded: set[str] = set()
        self._printed_reasons: set[tuple[str, str]] = set()

    def follow(self, read: Callable[[], tuple[SweepState, bool]], *, wait: Callable[[], object]) -> SweepState:
        """Show one state after another, with a `wait` between two; return the last.

        `read` returns the current state, and whether it is the last.
        """
        while True:
            state, is_last = read()
            self._show(state)
            if is_last:
                return state
            self._show_waiting_cells(state)
            wait()

    def count_earlier_ends(self, state: SweepState, *, before: float) -> None:
        """Count the runs that ended before this time, in seconds since 1970, and show those that ended badly."""
        ended = [cell for cell in state.cells if cell.is_ended and not _has_just_vanished(cell, state)]
        ended = [cell for cell in ended if not _ended_since(cell, before)]
        for cell in ended:
            self._ended[cell.paths.name] = cell.record
            self._display.counted(cell.paths, cell.record)
        for cell in ended:
            if cell.record is None or not cell.record.status.is_success:
                self._display.ended(cell.paths, cell.record)

    def _show(self, state: SweepState) -> None:
        """Show what has changed."""
        for cell in state.cells:
            name = cell.paths.name
            if cell.is_running and name not in self._running:
                assert cell.record is not None
                self._superseded |= {each.paths.name for each in state.cells if each.is_ended}
                self._running[name] = cell.paths
                self._ended.pop(name, None)
                seconds = paired_measure_seconds(cell.record.config)
                began = cell.record.resumed_at or cell.record.started_at
                since = datetime.datetime.fromisoformat(began).timestamp() if began else None
                planned = planned_epochs(cell.record)
                is_resumed = cell.record.resumed_at is not None
                self._display.started(
                    cell.name, cell.paths, planned, measure_seconds=seconds, since=since, is_resumed=is_resumed
                )
            elif (
                cell.is_ended
                and self._ended.get(name, _NOT_ENDED) != cell.record
                and not self._is_in_doubt(cell, state)
            ):
                self._running.pop(name, None)
                self._ended[name] = cell.record
                self._display.ended(cell.paths, cell.record)
        self._display.follow(list(self._running.values()))

    def _is_in_doubt(self, cell: CellState, state: SweepState) -> bool:
        """Whether the driver may still record how the process ended, or start another process of a paired run."""
        if state.is_driven and _is_finished_paired_run(cell) and cell.paths.name not in self._superseded:
            return True
        if not _has_just_vanished(cell, state) or cell.paths.name in self._vanished:
            return False
        self._vanished.add(cell.paths.name)
        return True

    def _show_waiting_cells(self, state: SweepState) -> None:
        """While no run and no driver is at work, show what the waiting cells wait for; a line for each change."""
        is_idle = state.is_driven is False and not self._running
        waiting = [cell for cell in state.cells if cell.is_waiting] if is_idle else []
        reasons = Counter(_WAITS_FOR[cell.is_queued] for cell in waiting)
        if self._display.is_live or reasons.keys() != self._printed_reasons:
            line = "; ".join(pluralize(number, *words) for words, number in reasons.items())
            self._display.waiting(f"{line}; Ctrl-C leaves." if line else "")
        self._printed_reasons = set(reasons)


_SUBMITTED = "handed to Slurm, which cannot be queried from here"
_WAITS_FOR = {
    True: ("cell waits in Slurm's queue", "cells wait in Slurm's queue"),
    False: ("cell waits for a driver", "cells wait for a driver"),
    None: (f"cell was {_SUBMITTED}", f"cells were {_SUBMITTED}"),
}


def _is_finished_paired_run(cell: CellState) -> bool:
    record = cell.record
    return record is not None and record.status is Status.FINISHED and paired_measure_seconds(record.config) > 0


def _ended_since(cell: CellState, time_since_1970: float) -> bool:
    """Whether a run is known to have ended since then."""
    ended_at = None if cell.record is None else cell.record.ended_at
    return ended_at is not None and datetime.datetime.fromisoformat(ended_at).timestamp() >= time_since_1970


def _has_just_vanished(cell: CellState, state: SweepState) -> bool:
    has_driver_or_job = state.is_driven is True or cell.is_queued is True
    return cell.record is not None and cell.record.status is Status.CRASHED and has_driver_or_job

"""Following a sweep from its files: shows which cells start, advance and end, until the last has ended."""

import contextlib
import time
from collections.abc import Callable

from rich.console import Console

from runmanager.app.display.final_summary import show_results
from runmanager.app.display.output import ConsoleOutput
from runmanager.app.display.progress import RunDisplay, ShownMetric
from runmanager.app.display.run_line import progress_text, run_label, run_line
from runmanager.app.display.run_times import RunTimes, RunToCome
from runmanager.app.follow.sweep_feed import SweepFeed
from runmanager.app.follow.sweep_state import SweepReader, SweepState
from runmanager.errors import RecordError
from runmanager.launching.job_registry import JobQueue, read_job_registry
from runmanager.records.files.paths import SweepPaths
from runmanager.records.run.heartbeat import HeartbeatObserver, describe_last_heartbeat, read_beat
from runmanager.records.storage.reader import read_epochs
from runmanager.text import printable_line

POLL_SECONDS = 0.5


def show_state(sweep: SweepPaths, console: Console, *, queue: JobQueue | None = None) -> int:
    """Print the sweep's state, with a line for each run that is running or ended badly; return its exit status."""
    state = SweepReader(sweep, queue=queue).read()
    console.print(printable_line(f"{sweep.root}: {state.in_words()}"))
    for number, cell in enumerate(state.cells, start=1):
        if cell.damage:
            console.print(printable_line(cell.damage), soft_wrap=not console.is_terminal)
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


def follow_sweep(
    sweep: SweepPaths,
    console: Console,
    *,
    queue: JobQueue | None = None,
    observer: HeartbeatObserver | None = None,
    metric: str | None = None,
) -> int:
    """Show the sweep's runs until every cell has ended, then its tables; return its exit status.

    Only files are read, so this works with a driver, after it, and without one. `queue` is queried for cells that were
    submitted to one. The report of such a sweep is written at the end if it is missing. `observer` judges runs on
    other hosts, and waits between two polls. The live table has a column of `metric`, if the runs log it.
    """
    observer = observer or HeartbeatObserver()
    reader = SweepReader(sweep, observer=observer, queue=queue)
    state = follow_runs(reader, ConsoleOutput(console), metric=metric)
    show_results(sweep, console, observer=observer)
    return state.status


def follow_runs(
    reader: SweepReader,
    output: ConsoleOutput,
    *,
    has_left: Callable[[], bool] | None = None,
    since: float | None = None,
    metric: str | None = None,
) -> SweepState:
    """Show the runs that `reader` reads until every cell has ended; return the last state. Its observer waits.

    With `has_left`, following ends instead when it returns True: the caller's driver has exited. The live table has a
    column of `metric`, if the runs log it. Runs that ended before `since`, in seconds since 1970 and by default now,
    are only counted.
    """
    feed = SweepFeed(reader)
    earlier = feed.first_look(since=time.time() if since is None else since)
    times, settings = RunTimes(), reader.settings_by_run()
    names = [name for cell in feed.state.cells if (name := cell.paths.name) in settings]
    display = RunDisplay(
        output,
        labels=[run_label(cell.name) for cell in feed.state.cells],
        metric=ShownMetric(metric),
        to_come={name: RunToCome(times.work(settings[name])) for name in names},
        times=times,
    )
    # A live display counts the cells by state itself; a count printed now would soon be wrong.
    shows_counts = display.is_live and not feed.state.is_ended
    display.say(f"{reader.paths.root}: {feed.state.size_in_words() if shows_counts else feed.state.in_words()}")
    display.show(earlier)
    with display.redrawn():
        while True:
            is_last = has_left is not None and has_left()  # before reading, so that its last changes are seen
            changes = feed.poll()
            display.num_runs = len(feed.state.cells)
            display.show(changes)
            if is_last or (has_left is None and feed.state.is_ended):
                break
            display.show(feed.waiting())
            reader.observer.wait(POLL_SECONDS)
    if has_left is None:
        _write_missing_report(reader.paths, feed.state)
    return feed.state


def _write_missing_report(sweep: SweepPaths, state: SweepState) -> None:
    """Write the report of a sweep without a driver if its last job was killed before it could."""
    if not read_job_registry(sweep):
        return  # its driver writes the report
    written = sweep.report.stat().st_mtime_ns if sweep.report.exists() else 0
    ends = [cell.paths.record.stat().st_mtime_ns for cell in state.cells if cell.record is not None]
    if max(ends, default=0) <= written:
        return
    from runmanager.results.result_files import write_tables

    with contextlib.suppress(OSError):  # the folder may be read-only for this user
        write_tables(sweep)

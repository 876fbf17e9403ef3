"""`runmanager watch`: a sweep followed from its files, in another terminal, detached, or afterwards."""

from typing import Annotated

import typer

from runmanager.cli.arguments import RunFormat, SweepName
from runmanager.cli.printing import print_document
from runmanager.errors import UsageError
from runmanager.records.files.paths import SweepPaths
from runmanager.records.run.heartbeat import SILENT_AFTER_SECONDS, HeartbeatObserver, timeout_faults
from runmanager.records.sweep.lookup import find_sweep
from runmanager.signals import INTERRUPTED_STATUS


def watch(
    sweep: SweepName,
    once: Annotated[bool, typer.Option("--once", help="Print the current state and exit.")] = False,
    metric: Annotated[
        str | None,
        typer.Option(help="The logged metric to show first. Default: what there is room for, in order of appearance."),
    ] = None,
    format_: Annotated[RunFormat, typer.Option("--format", help="JSON goes with --once.")] = RunFormat.TEXT,
    heartbeat_timeout: Annotated[
        float,
        typer.Option(
            metavar="SECONDS", help="Seconds without a heartbeat after which a run on another host counts as crashed."
        ),
    ] = SILENT_AFTER_SECONDS,
) -> int:
    """Follow a sweep while it runs, and show its tables when every cell has ended. Ctrl-C leaves the sweep running.

    Exit status as the sweep's: 0 if every cell is finished or skipped, 1 if a run ended badly.
    """
    from runmanager.app.display.output import make_console
    from runmanager.app.display.watching import follow_sweep, show_state
    from runmanager.launching.launchers import local_queue

    if faults := timeout_faults("--heartbeat-timeout", heartbeat_timeout):
        raise UsageError(faults[0])
    if format_ is RunFormat.JSON and not once:
        raise UsageError("`--format json` must come with --once, got it without; a sweep that runs on has no document.")
    paths = find_sweep(sweep)
    if format_ is RunFormat.JSON:
        return _print_state(paths)
    console = make_console()
    if once:
        return show_state(paths, console, queue=local_queue())
    try:
        return follow_sweep(
            paths,
            console,
            queue=local_queue(),
            observer=HeartbeatObserver(limit_seconds=heartbeat_timeout),
            metric=metric,
        )
    except KeyboardInterrupt:
        return INTERRUPTED_STATUS


def _print_state(sweep: SweepPaths) -> int:
    from runmanager.app.follow.sweep_state import SweepReader
    from runmanager.cli.output_schemas import WatchedCell, WatchedSweep
    from runmanager.launching.launchers import local_queue

    state = SweepReader(sweep, queue=local_queue()).read()
    cells = [
        WatchedCell(
            each.name,
            each.label,
            each.record.reason if each.record else None,
            each.record.message if each.record else each.damage,
            str(each.paths.root),
        )
        for each in state.cells
    ]
    print_document(WatchedSweep(str(sweep.root), state.is_ended, state.status, cells))
    return state.status

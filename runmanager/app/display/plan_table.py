"""`--dry-run`: the plan as a table, with counts and an estimate of the time."""

from collections import Counter
from collections.abc import Sequence
from statistics import median

from rich.console import Group, RenderableType
from rich.table import Table

from runmanager.app.display.eta import sweep_seconds_left
from runmanager.app.display.live_table import duration
from runmanager.launching.plan import PlannedRun
from runmanager.records.files.paths import SweepPaths
from runmanager.records.run.status import Status
from runmanager.records.storage.reader import read_sweep
from runmanager.text import pluralize

__all__ = ["plan_table"]


def plan_table(
    plan: Sequence[PlannedRun], sweep: SweepPaths | None, *, workers: int = 1, to_find: Sequence[str] = ()
) -> RenderableType:
    """The cells with what is to be done with each, why and where; nothing is run.

    `workers` run at once. `to_find` says what a comparison of them can find.
    """
    table = Table(box=None, pad_edge=False)
    for heading in ("run", "plan", "why"):
        table.add_column(heading, overflow="fold")
    for run in plan:
        table.add_row(run.paths.name, run.action, run.why)
    counts = Counter(str(run.action) for run in plan)
    said = ", ".join(f"{number} {action}" for action, number in counts.items())
    where = f"Where: {sweep.runs}" if sweep else "Where: a fresh folder"
    return Group(table, "", f"{pluralize(len(plan), 'cell')}: {said}", where, _estimate(plan, sweep, workers), *to_find)


def _estimate(plan: Sequence[PlannedRun], sweep: SweepPaths | None, workers: int) -> str:
    left = sum(run.is_to_run for run in plan)
    if not left:
        return ""
    measured = [
        run.record.run_seconds
        for run in (read_sweep(sweep, epochs_of=lambda _: False).runs if sweep else ())
        if run.record.status is Status.FINISHED and run.record.run_seconds is not None
    ]
    if not measured:
        return "No run of this sweep is measured yet, so there is no estimate of the time."
    at_once = min(workers, left)
    seconds = sweep_seconds_left([], num_waiting=left, run_seconds=measured, at_once=at_once) or 0.0
    how = "one after the other" if at_once == 1 else f"with {at_once} at once"
    return f"About {duration(seconds)} {how}, at {duration(median(measured))} a run so far."

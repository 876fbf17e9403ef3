"""The table of `--dry-run`: the plan, counts and an estimate of the time."""

from collections import Counter
from collections.abc import Sequence

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from runmanager.app.display.live_table import duration
from runmanager.app.display.run_times import RunTimes, sweep_seconds_left
from runmanager.launching.plan import Action, PlannedRun
from runmanager.records.files.paths import SweepPaths
from runmanager.records.storage.reader import read_sweep
from runmanager.text import pluralize, printable_line, wrapped

__all__ = ["plan_table"]

_GAPS = 4  # between three columns
_WHOLE = 10_000  # characters, wider than any line


def plan_table(
    plan: Sequence[PlannedRun],
    sweep: SweepPaths | None,
    *,
    workers: int = 1,
    to_find: Sequence[str] = (),
    limit: int | None = None,
    is_duel: bool = False,
    width: int = _WHOLE,
) -> RenderableType:
    """Return the planned action of each cell with its reason, the counts, the folder and an estimate of the time.

    `workers` run at once. `to_find`: sentences on what a comparison of the cells can detect. More rows than `limit` are
    folded into a line. The sides of a duel take as long as they may, so their time is not estimated. Lines below the
    table are wrapped at `width`.
    """
    shown = [(printable_line(run.name), str(run.action), printable_line(run.why)) for run in plan[:limit]]
    table = Table(box=None, pad_edge=False)
    name, action = (max(map(len, texts), default=0) for texts in ([name for name, *_ in shown], Action))
    name = min(name, width * 3 // 5)
    table.add_column("run", overflow="fold", min_width=name)
    table.add_column("plan", overflow="fold")
    table.add_column("why", overflow="fold", max_width=width - name - action - _GAPS)  # a reason is broken first
    for fields in shown:
        table.add_row(*map(Text, fields))
    counts = Counter(str(run.action) for run in plan)
    summary = ", ".join(f"{number} {action}" for action, number in counts.items())
    where = f"Where: {sweep.runs}" if sweep else "Where: a fresh folder"
    noun = "side" if is_duel else "cell"
    lines = [f"{pluralize(len(plan), noun)}: {summary}", where, "" if is_duel else _estimate(plan, sweep, workers)]
    lines += [*_not_here(plan), *to_find]
    rest = (
        [f"… and {len(plan) - len(shown):,} more; the same command with `| cat` shows all."]
        if len(shown) < len(plan)
        else []
    )
    return Group(table, *rest, "", *(Text(wrapped(printable_line(line), width)) for line in lines if line))


def _not_here(plan: Sequence[PlannedRun]) -> list[str]:
    """Say which devices the comparison will lack."""
    devices = dict.fromkeys(str(run.cell.device) for run in plan if run.action is Action.SKIP)
    if not devices:
        return []
    return [f"Nothing can be said of {' and '.join(devices)}, which this machine lacks: those cells are skipped."]


def _estimate(plan: Sequence[PlannedRun], sweep: SweepPaths | None, workers: int) -> str:
    """How long the runs take that are to come, by those that have finished."""
    to_run = [run for run in plan if run.is_to_run]
    if not to_run:
        return ""
    times = RunTimes()
    for run in read_sweep(sweep, epochs_of=lambda _: False).runs if sweep else ():
        times.note_stored(run.paths, run.record)
    waiting = [times.expected(times.to_come(run, sweep)) for run in to_run]
    known = [seconds for seconds in waiting if seconds is not None]
    if not known:
        return "No run like these is measured in this sweep yet, so the time cannot be estimated."
    at_once = min(workers, len(known))
    how = "one after the other" if at_once == 1 else f"with {at_once} at once"
    about = f"About {duration(sweep_seconds_left([], waiting=known, at_once=at_once) or 0.0)} {how}"
    by = "judging by the runs of this sweep"
    if len(known) == len(to_run):
        return f"{about}, {by}."
    some = f"{len(known)} of the {len(to_run)} runs"
    return f"{about} for {some}, {by}; no run like the others is measured yet."

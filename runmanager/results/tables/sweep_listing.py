"""The table of `runmanager ls`: a row for each sweep."""

import contextlib
import datetime
from collections import Counter
from collections.abc import Hashable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from runmanager.records.files.paths import SweepPaths
from runmanager.records.run.measurement import LOSSES, OUTCOMES
from runmanager.records.run.metric_names import by_preference
from runmanager.records.run.status import Status
from runmanager.records.settings.values import hashable
from runmanager.records.sweep.sweep_record import SweepRecord
from runmanager.results.load.cells import CellsWith, CellWith
from runmanager.results.load.loader import read_summary
from runmanager.results.load.run_summary import SUMMARY_COLUMNS, RunSummary, damage_notes
from runmanager.results.load.several_sweeps import SWEEP, NamedSweep, SizeMemory, find_sweeps, sweep_size
from runmanager.results.load.summary_cache import SummaryMemory
from runmanager.results.stats.descriptive import mean
from runmanager.results.table_model.columns import Directions, Row, Table
from runmanager.results.tables.results_table import NOTE, TAGS, declared_directions, join_tags
from runmanager.text import shell_command

_STATES = ("finished", "running", "pending", "failed", "killed", "crashed", "skipped")
_REMOVED, _DAMAGED = "removed", "damaged"
LISTED_COLUMNS = (
    *(SWEEP, "created", "cells", "states", *_STATES, _REMOVED, _DAMAGED, "axes", "metric", "best", "size_bytes"),
    *(TAGS, NOTE, "command", "folder"),
)
_SHOWN = (SWEEP, "created", "states", "axes", "metric", "best", TAGS, "size_bytes", "command", NOTE)
_LEGEND = "of the best cell; `runmanager best SWEEP` says how sure it is. Times: UTC."


@dataclass(frozen=True)
class ListedSweep:
    """A sweep as read for the listing, with the bytes of its files."""

    sweep: NamedSweep
    size_bytes: int

    @cached_property
    def row(self) -> tuple[Row, bool | None]:
        """The row of the sweep, and whether larger values of its metric are better."""
        return _row(self)


def list_sweeps(root: Path, notes: list[str], *, now_ns: int) -> list[ListedSweep]:
    """Read the sweeps below a folder; they are named by their folders below it. `notes` gets what cannot be read."""
    return [list_sweep(paths, root, now_ns=now_ns) for paths in find_sweeps(root, notes)]


def list_sweep(
    paths: SweepPaths,
    root: Path,
    *,
    now_ns: int,
    summaries: SummaryMemory | None = None,
    sizes: SizeMemory | None = None,
) -> ListedSweep:
    """Read one sweep below a folder. With `summaries` and `sizes` nothing is written: they take the place of files."""
    with contextlib.nullcontext() if summaries is None else summaries.in_use():
        summary, plan = read_summary(paths, is_one_of_many=True)
    ended = {run.folder for run in summary.runs if Status(run.status).is_ended}
    size = sweep_size(paths, ended=ended, now_ns=now_ns, memory=sizes)
    return ListedSweep(NamedSweep(sweep_name(paths, root), summary, plan), size)


def sweep_name(paths: SweepPaths, root: Path) -> str:
    """Return the name of a sweep below a folder: its own folder from there."""
    return str(paths.root.relative_to(root)) if paths.root != root else paths.name


def listing(sweeps: Sequence[ListedSweep], *, notes: Sequence[str] = ()) -> Table:
    """The table of sweeps, the newest first. The best value is that of the metric that `best` ranks by."""
    found = [each.row for each in sweeps]
    rows = sorted((row for row, _ in found), key=lambda row: row["created"] or "", reverse=True)
    directions: dict[str, str] = {}
    for row, is_larger in found:
        if is_larger is not None:
            directions.setdefault("max" if is_larger else "min", row[SWEEP])
    metrics = list(dict.fromkeys(row["metric"] for row in rows if row["metric"] is not None))
    return Table(
        columns=list(LISTED_COLUMNS),
        rows=rows,
        logged=("best",),
        directions=Directions({"best": directions}),
        labels=(TAGS, NOTE),
        shown=tuple(name for name in _SHOWN if name != "metric" or len(metrics) != 1),
        notes=(*(note for each in sweeps for note in damage_notes(each.sweep.summary.damaged)), *notes),
        legend=f"best: {metrics[0] if len(metrics) == 1 else 'the metric'} {_LEGEND}",
    )


def _row(listed: ListedSweep) -> tuple[Row, bool | None]:
    """The row of a sweep, and whether larger values of its metric are better."""
    sweep, summary, plan = listed.sweep, listed.sweep.summary, listed.sweep.plan
    cells = sweep.cells()
    states = Counter(Status.PENDING.value if cell.stored is None else cell.stored.status for cell in cells.cells)
    states[_REMOVED] = len(plan.removed) if plan else 0
    read = {run.folder for run in summary.runs}
    damaged = {each.path.name for each in summary.damaged if each.path.parent == summary.paths.runs}
    states[_DAMAGED] = len(damaged - read)
    found = _best(sweep, [name for name in cells.varying if name not in cells.seeds], cells.cells)
    metric, best, is_larger = found or (None, None, None)
    starts = [run.started_at for run in summary.runs if run.started_at]
    known = [state for state in (*_STATES, _REMOVED, _DAMAGED) if states[state]]
    labels = summary.labels.of_sweep
    values: dict[str, Any] = {
        SWEEP: sweep.name,
        "created": _utc(plan.created if plan else min(starts, default="")),
        "cells": len(cells.cells),
        "states": ", ".join(f"{states[state]:,} {state}" for state in known) or "no cells",
        **{state: states[state] for state in (*_STATES, _REMOVED, _DAMAGED)},
        "axes": _axes(sweep.plan, cells),
        "metric": metric,
        "best": best,
        "size_bytes": listed.size_bytes,
        TAGS: join_tags(labels),
        NOTE: labels.note or None,
        "command": shell_command(plan.command) if plan else None,
        "folder": str(summary.paths.root),
    }
    return Row(values), is_larger


def _utc(time: str) -> str | None:
    """A time of day in ISO 8601 as people read it, in UTC; None where there is none."""
    try:
        return f"{datetime.datetime.fromisoformat(time).astimezone(datetime.UTC):%Y-%m-%d %H:%M:%S}"
    except ValueError:
        return None


def _axes(plan: SweepRecord | None, cells: CellsWith[RunSummary]) -> str | None:
    """The settings that vary, each with the number of its values; a config group in place of what its choice tells."""
    numbers = [len(values) for values in plan.axes.values()] if plan else []
    counts = {name: number for name, number in zip(cells.axes, numbers, strict=True) if number > 1}
    if cells.varying_choices:
        tellers = [teller if (teller := cells.told_by(name)) in cells.choices else name for name in counts]
        counts = {name: counts[name] if name in counts else cells.num_values(name) for name in tellers}
    return " ".join(f"{name}:{count}" for name, count in counts.items()) or None


def _best(
    sweep: NamedSweep, names: Sequence[str], cells: Sequence[CellWith[RunSummary]]
) -> tuple[str, float, bool] | None:
    """The first of the metrics that a cell has, the best mean over a cell's seeds, and whether larger is better."""
    groups: dict[Hashable, list[RunSummary]] = {}
    for cell in cells:
        if cell.stored is not None and cell.stored.is_complete:
            groups.setdefault(tuple(hashable(cell.own.get(name)) for name in names), []).append(cell.stored)
    for metric, is_larger in _metrics(sweep, names):
        means = []
        for runs in groups.values():
            values = [_value(sweep, run, metric) for run in runs]
            if (known := [value for value in values if value is not None]) and len(known) == len(values):
                means.append(mean(known))
        if means:
            return metric, (max if is_larger else min)(means), is_larger
    return None


def _metrics(sweep: NamedSweep, names: Sequence[str]) -> Iterator[tuple[str, bool]]:
    """The metrics to rank by where their direction is known, that which the sweep was given first, as `best` has them.

    A loss counts only where all cells have the same one.
    """
    directions = declared_directions(sweep.summary)
    logged = dict.fromkeys(name for each in sweep.summary.logged_names for name in each.metrics)
    has_several_losses = any(name == "loss" or name.startswith("loss.") for name in names)
    outcomes = [name for name in OUTCOMES if not (has_several_losses and name in LOSSES)]
    every = by_preference([*outcomes, *logged])
    asked = [name for name in every if sweep.plan is not None and name == sweep.plan.metric]
    for name in dict.fromkeys([*asked, *every]):
        if (is_larger := directions.known(name)) is not None:
            yield name, is_larger


def _value(sweep: NamedSweep, run: RunSummary, metric: str) -> float | None:
    if metric in OUTCOMES:
        value: float | None = run.values[SUMMARY_COLUMNS.index(metric)]
        return value
    names = sweep.summary.logged_names[run.logged].metrics
    return run.logged_values[names.index(metric)] if metric in names else None

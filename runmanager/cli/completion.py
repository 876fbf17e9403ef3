"""Shell completion of sweeps, runs, and a sweep's settings, metrics and columns."""

import csv
import os
import re
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

from runmanager.errors import RunManagerError
from runmanager.records.sweep.lookup import find_sweep, known_runs, known_sweeps
from runmanager.records.sweep.sweep_record import SweepRecord, read_sweep_record
from runmanager.text import format_value, printable_line

if TYPE_CHECKING:
    from runmanager.records.storage.reader import StoredRun

_SHELL_SYNTAX = re.compile(r"""^=|[\s;&|<>$`\\"'()!{}*?~#^]""")


def complete_sweeps(incomplete: str) -> list[str]:
    """Complete the names of known sweeps, and folders if a path was begun."""
    return [*_matching(incomplete, known_sweeps()), *_matching(incomplete, _sibling_folders(incomplete))]


def _sibling_folders(path: str) -> list[str]:
    before = path[: path.rfind("/") + 1]
    if not before or not Path(before).is_dir():
        return []
    return sorted(before + entry.name for entry in os.scandir(before) if entry.is_dir())


def complete_runs(incomplete: str) -> list[str]:
    """Complete SWEEP/RUN, or the eight-digit signature of a run."""
    runs = known_runs()
    digits = [name.rpartition("-")[2] for name in runs] if incomplete else []
    return _matching(incomplete, [*runs, *digits])


def complete_targets(incomplete: str) -> list[str]:
    """Complete what `complete_sweeps` and `complete_runs` do."""
    return list(dict.fromkeys([*complete_sweeps(incomplete), *complete_runs(incomplete)]))


def complete_setting_names(incomplete: str) -> list[str]:
    """Complete the names of all settings and groups."""
    from runmanager.app.reference.settings_reference import sections

    known = sections()
    names = [key for each in known for key in (each.name, *(setting.key for setting in each.settings)) if key]
    return _matching(incomplete, dict.fromkeys(names))


def complete_axes(ctx: typer.Context, incomplete: str) -> list[str]:
    """Complete the settings of the command's sweep, varying ones first, then `any`; after `+`, one more setting."""
    before = incomplete[: incomplete.rfind("+") + 1]
    plan = _plan_of(ctx)
    names = [*_settings(plan), *([] if before else ["any"])]
    return _matching(incomplete, [before + name for name in names])


def complete_crossovers(ctx: typer.Context, incomplete: str) -> list[str]:
    """Complete `num_parameters` and the settings of the command's sweep."""
    return _matching(incomplete, ["num_parameters", *_settings(_plan_of(ctx))])


def complete_baselines(ctx: typer.Context, incomplete: str) -> list[str]:
    """Complete the values of the compared axis."""
    plan = _plan_of(ctx)
    values: list[Any] = [] if plan is None else plan.axes.get(ctx.params.get("axis") or "device", [])
    return _matching(incomplete, map(format_value, values))


def complete_metrics(ctx: typer.Context, incomplete: str) -> list[str]:
    """Complete the metrics by which runs can be compared: the built-in ones, and those of the command's sweep.

    What was logged is read from a single run, as a shell waits for the answer.
    """
    from runmanager.results.metrics.metric_lookup import known_metrics

    return _matching(incomplete, [*known_metrics(_some_run(ctx)), "time_to_accuracy="])


def _some_run(ctx: typer.Context) -> "list[StoredRun]":
    """The first run with epochs of the sweep that the command names, if it can be read."""
    from runmanager.records.storage.reader import read_run, run_names

    try:
        paths = find_sweep(_sweep_name(ctx))
        first = next((each for name in run_names(paths) if (each := paths.run(name)).epochs.exists()), None)
        return [] if first is None else [read_run(first)]
    except (RunManagerError, OSError):
        return []


def complete_columns(ctx: typer.Context, incomplete: str) -> list[str]:
    """Complete the columns of the command's sweep; after a comma, one more column."""
    from runmanager.results.table_model.columns import RUN_COLUMNS, result_columns

    before = incomplete[: incomplete.rfind(",") + 1]
    names = dict.fromkeys([*RUN_COLUMNS, *_settings(_plan_of(ctx)), *result_columns(()), *_written_columns(ctx)])
    return _matching(incomplete, [before + name for name in names])


def _written_columns(ctx: typer.Context) -> list[str]:
    """The columns of the sweep's results.csv, which include logged metrics; empty on any error."""
    try:
        with find_sweep(_sweep_name(ctx)).results("csv").open(encoding="utf-8", newline="") as file:
            return next(csv.reader(file), [])
    except (RunManagerError, OSError, ValueError, csv.Error):
        return []


def _plan_of(ctx: typer.Context) -> SweepRecord | None:
    """The plan of the sweep that the command names; None on any error, as a shell cannot show it."""
    try:
        return read_sweep_record(find_sweep(_sweep_name(ctx)))
    except (RunManagerError, OSError):
        return None


def _sweep_name(ctx: typer.Context) -> str:
    # If the command ends in an option without its value, the parser leaves the positional arguments in `args`.
    return ctx.params.get("sweep") or next(iter(ctx.params.get("sweeps") or ctx.args), "")


def _settings(plan: SweepRecord | None) -> list[str]:
    if plan is None:
        return []
    of_cells = [name for cell in plan.planned for name in cell.choices_and_settings]
    return list(dict.fromkeys([*plan.axes, *of_cells, *(plan.choices or {}), *plan.settings]))


def _matching(incomplete: str, names: Iterable[str]) -> list[str]:
    """The names that begin with `incomplete`; none with shell syntax, as a shell inserts them unquoted."""
    begun = (name for name in names if name.startswith(incomplete))
    return [name for name in begun if not _SHELL_SYNTAX.search(name) and printable_line(name) == name]

"""What a shell offers to complete a word with: sweeps, runs, and a sweep's settings, metrics and columns."""

import os
import re
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import typer

from runmanager.errors import RunManagerError
from runmanager.records.sweep.lookup import find_sweep, known_runs, known_sweeps
from runmanager.records.sweep.record import SweepRecord, read_sweep_record
from runmanager.text import format_value

__all__ = [
    "complete_axes",
    "complete_baselines",
    "complete_columns",
    "complete_crossovers",
    "complete_metrics",
    "complete_runs",
    "complete_sweeps",
]

_MORE_THAN_A_WORD = re.compile(r"""[\s\x00-\x1f\x7f;&|<>$`\\"'()!]""")


def complete_sweeps(incomplete: str) -> list[str]:
    """Sweeps by their name, and where a path was begun, the folders on its way."""
    return [*_beginning(incomplete, known_sweeps()), *_beginning(incomplete, _folders_beside(incomplete))]


def _folders_beside(path: str) -> list[str]:
    before = path[: path.rfind("/") + 1]
    if not before or not Path(before).is_dir():
        return []
    return sorted(before + entry.name for entry in os.scandir(before) if entry.is_dir())


def complete_runs(incomplete: str) -> list[str]:
    """SWEEP/RUN, or the eight digits of a run where digits were begun."""
    runs = known_runs()
    digits = [name.rpartition("-")[2] for name in runs] if incomplete else []
    return _beginning(incomplete, [*runs, *digits])


def complete_axes(ctx: typer.Context, incomplete: str) -> list[str]:
    """The settings of the command's sweep, those that vary first, then `any`; after `+` one more."""
    before = incomplete[: incomplete.rfind("+") + 1]
    plan = _plan_of(ctx)
    names = [*_settings(plan), *([] if before else ["any"])]
    return _beginning(incomplete, [before + name for name in names])


def complete_crossovers(ctx: typer.Context, incomplete: str) -> list[str]:
    """The settings of the command's sweep, and the model's size."""
    return _beginning(incomplete, ["num_parameters", *_settings(_plan_of(ctx))])


def complete_baselines(ctx: typer.Context, incomplete: str) -> list[str]:
    """The values that the compared axis has."""
    plan = _plan_of(ctx)
    values: list[Any] = [] if plan is None else plan.axes.get(ctx.params.get("axis") or "device", [])
    return _beginning(incomplete, map(format_value, values))


def complete_metrics(incomplete: str) -> list[str]:
    """What runs can be compared by."""
    from runmanager.results.compare.metrics import PLAIN_METRICS

    return _beginning(incomplete, [*PLAIN_METRICS, "time_to_accuracy="])


def complete_columns(ctx: typer.Context, incomplete: str) -> list[str]:
    """The columns of the command's sweep; after a comma one more."""
    from runmanager.results.model.columns import RESULT_COLUMNS, RUN_COLUMNS

    before = incomplete[: incomplete.rfind(",") + 1]
    names = dict.fromkeys([*RUN_COLUMNS, *_settings(_plan_of(ctx)), *RESULT_COLUMNS])
    return _beginning(incomplete, [before + name for name in names])


def _plan_of(ctx: typer.Context) -> SweepRecord | None:
    """The plan of the sweep that the command names; a shell is told of no error."""
    # Of a command that ends in an option without its value, the parser leaves what is no option in `args`.
    name = ctx.params.get("sweep") or next(iter(ctx.args), "")
    try:
        return read_sweep_record(find_sweep(name))
    except (RunManagerError, OSError):
        return None


def _settings(plan: SweepRecord | None) -> list[str]:
    if plan is None:
        return []
    own = [name for cell in plan.planned for name in cell.settings]
    return list(dict.fromkeys([*plan.axes, *own, *plan.settings]))


def _beginning(incomplete: str, names: Iterable[str]) -> list[str]:
    """The names that go on so; without those that a shell, which is given them as they are, would take for more."""
    return [name for name in names if name.startswith(incomplete) and not _MORE_THAN_A_WORD.search(name)]

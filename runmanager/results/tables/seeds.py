"""Runs that differ in the seed alone, as one row: mean ± standard deviation, and of how many."""

import dataclasses
from collections import Counter
from collections.abc import Hashable, Sequence

from runmanager.records.run.status import Status
from runmanager.results.compare.pairing import SEED, hashable
from runmanager.results.model.columns import RESULT_COLUMNS, Row, Table
from runmanager.results.model.formatting import Spread

__all__ = ["SEEDS", "collapse_seeds", "seed_groups"]

SEEDS = "seeds"
"""The column that says of how many runs a row's means are."""

_LEGEND = (
    "Runs that differ in the seed alone are one row: mean ± standard deviation over the finished ones; `seeds` says "
    "how many these are."
)


def collapse_seeds(table: Table, *, each: str = "--each shows the runs.") -> Table:
    """A results table with one row for all seeds of a cell; the table itself where no two runs are that.

    `each` tells readers where the runs are one by one.
    A figure is a `Spread` over the finished runs that have it. A row stands where the first of its runs stood.
    """
    groups = seed_groups(table)
    if len(groups) == len(table.rows):
        return table
    settings = [name for name in table.settings if name != SEED]
    rows = [_collapsed(runs) for runs in groups]
    rows.sort(key=lambda row: (row["epoch_seconds"] is None, row["epoch_seconds"] or 0.0))
    shown = [name for name in table.shown if name != SEED]
    shown.insert(1 + max((shown.index(name) for name in settings if name in shown), default=-1), SEEDS)
    return dataclasses.replace(
        table,
        columns=[SEEDS if name == SEED else name for name in table.columns],
        rows=rows,
        settings=tuple(settings),
        shown=tuple(shown if len(shown) > 1 else ("run", *shown)),
        legend=f"{_LEGEND} {each} {table.legend}",
    )


def seed_groups(table: Table) -> list[list[Row]]:
    """The rows of a results table that differ in the seed alone, together; each group where its first row stood."""
    if SEED not in table.settings:
        return [[row] for row in table.rows]
    settings = [name for name in table.settings if name != SEED]
    groups: dict[Hashable, list[Row]] = {}
    for row in table.rows:
        groups.setdefault(tuple(hashable(row[name]) for name in settings), []).append(row)
    return list(groups.values())


def _collapsed(runs: Sequence[Row]) -> Row:
    finished = [row for row in runs if row["status"] == Status.FINISHED]
    if len(runs) == 1:
        return Row({**runs[0].values, SEEDS: len(finished)}, runs[0].absent_settings)
    values = dict(runs[0].values)
    values[SEEDS] = len(finished)
    values["status"] = _counted([run["status"] for run in runs])
    reasons = [run["reason"] for run in runs if run["reason"] is not None]
    values["reason"] = _counted(reasons) if reasons else None
    began = [run["contended"] for run in runs if run["contended"] is not None]
    values["contended"] = any(began) if began else None
    for name in _FIGURES:
        known = [value for run in finished if (value := run.values[name]) is not None]
        values[name] = Spread.of(known) if known else None
    return Row(values, runs[0].absent_settings)


_TEXTS = ("num_parameters", "device_name", "contended", "started_at", "run_dir")
_FIGURES = tuple(name for name in RESULT_COLUMNS if name not in _TEXTS)


def _counted(values: Sequence[str]) -> str:
    """`finished`, or `2 finished, 1 failed`."""
    counts = Counter(values)
    return values[0] if len(counts) == 1 else ", ".join(f"{count} {value}" for value, count in counts.items())

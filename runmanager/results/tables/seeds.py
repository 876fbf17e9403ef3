"""One row for all seeds of a cell: mean ± standard deviation, and the number of runs."""

import dataclasses
from collections import Counter
from collections.abc import Collection, Hashable, Iterable, Mapping, Sequence

from runmanager.records.run.status import Status
from runmanager.records.settings.values import hashable
from runmanager.results.table_model.columns import RESULT_COLUMNS, Row, Table
from runmanager.results.table_model.formatting import Spread

__all__ = ["SEEDS", "collapse_seeds", "seed_groups"]

SEEDS = "seeds"
"""The column with the number of runs that a row's means are of."""

_LEGEND = (
    "Runs that differ only in the seed are one row: mean ± standard deviation over the finished runs; `seeds` is their "
    "number."
)
_PARTIAL = "n is the number of runs that have the value, where some lack it; such a mean does not count as the best."


def collapse_seeds(table: Table, *, each: str = "--each shows the runs.", only: Collection[str] | None = None) -> Table:
    """A results table with one row for all seeds of a cell; unchanged if no two runs differ only in the seed.

    A measured value becomes a `Spread` over the finished runs that have it. `each` is a sentence for the legend that
    says how to see the single runs. `only` are the columns that are needed (None: all): of a large table most are not,
    and are left empty.
    """
    groups = seed_groups(table)
    if len(groups) == len(table.rows):
        return table
    settings = [name for name in table.settings if name not in table.seeds]
    measured = (*_AVERAGED, *table.logged)
    averaged = [name for name in measured if only is None or name in only or name == "epoch_seconds"]
    unneeded = dict.fromkeys(name for name in measured if name not in averaged)
    rows = [_collapsed(runs, averaged, unneeded, table.labels) for runs in groups]
    rows.sort(key=lambda row: (row["epoch_seconds"] is None, row["epoch_seconds"] or 0.0))
    shown = [name for name in table.shown if name not in table.seeds]
    shown.insert(1 + max((shown.index(name) for name in settings if name in shown), default=-1), SEEDS)
    return dataclasses.replace(
        table,
        columns=list(dict.fromkeys(SEEDS if name in table.seeds else name for name in table.columns)),
        rows=rows,
        settings=tuple(settings),
        shown=tuple(shown if len(shown) > 1 else ("run", *shown)),
        legend=" ".join([_LEGEND, *([_PARTIAL] if _has_partial(rows, shown) else []), each, table.legend]),
    )


def _has_partial(rows: Iterable[Row], columns: Iterable[str]) -> bool:
    return any(
        isinstance(value := row.values.get(name), Spread) and value.is_partial for row in rows for name in columns
    )


def seed_groups(table: Table) -> list[list[Row]]:
    """Groups of rows of a results table that differ only in the seed, in the order of their first rows."""
    if not set(table.seeds).intersection(table.settings):
        return [[row] for row in table.rows]
    settings = [name for name in table.settings if name not in (*table.seeds, *table.derived)]
    groups: dict[Hashable, list[Row]] = {}
    for row in table.rows:
        groups.setdefault(tuple(hashable(row[name]) for name in settings), []).append(row)
    return list(groups.values())


def _collapsed(
    runs: Sequence[Row], averaged: Iterable[str], unneeded: Mapping[str, None], labels: Iterable[str]
) -> Row:
    finished = [row for row in runs if row["status"] == Status.FINISHED]
    if len(runs) == 1:
        return Row({**runs[0].values, SEEDS: len(finished)}, runs[0].absent_settings)
    values = {**runs[0].values, **unneeded}
    values[SEEDS] = len(finished)
    values["status"] = _counted([run["status"] for run in runs])
    reasons = [run["reason"] for run in runs if run["reason"] is not None]
    values["reason"] = _counted(reasons) if reasons else None
    began = [run["contended"] for run in runs if run["contended"] is not None]
    values["contended"] = any(began) if began else None
    for name in averaged:
        known = [value for run in finished if (value := run.values[name]) is not None]
        values[name] = Spread.of(known, is_partial=len(known) < len(finished)) if known else None
    for name in labels:
        values[name] = "; ".join(dict.fromkeys(run[name] for run in runs if run[name] is not None)) or None
    return Row(values, runs[0].absent_settings)


_NOT_AVERAGED = ("num_parameters", "device_name", "contended", "started_at", "run_dir")
_AVERAGED = tuple(name for name in RESULT_COLUMNS if name not in _NOT_AVERAGED)


def _counted(values: Sequence[str]) -> str:
    """The value if all are equal, else the count of each: `2 finished, 1 failed`."""
    counts = Counter(values)
    return values[0] if len(counts) == 1 else ", ".join(f"{count} {value}" for value, count in counts.items())

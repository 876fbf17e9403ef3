"""Rows that tables leave out: shorter runs that longer ones continue, skipped cells, pairs without results."""

import dataclasses
from collections import Counter
from collections.abc import Sequence
from typing import TypeVar

from runmanager.records.run.status import Status
from runmanager.results.compare.comparison_table import ComparisonRow, ComparisonTable, rows_by_sides
from runmanager.results.compare.verdict import INCONCLUSIVE
from runmanager.results.table_model.columns import Row, Table, setting_name
from runmanager.results.tables.seeds import seed_groups
from runmanager.text import format_value, pluralize

__all__ = [
    *("ALL_SHOWS", "pairs_with_answer", "without_shorter_runs", "without_skipped_cells"),
    "without_unmeasured_sides",
]

ALL_SHOWS = "--all shows"
"""What shows the rows that are left out, for commands with that option."""

_T = TypeVar("_T", bound=Table)


def without_shorter_runs(table: _T, shown_by: str = ALL_SHOWS) -> _T:
    """Return a table without the rows of runs that longer ones continue, with a note of what shows them.

    A cell of which only some seeds are continued keeps all its rows: its mean is that of all seeds.
    """
    whole = [seeds for seeds in seed_groups(table) if all(row.is_continued for row in seeds)]
    left_out = {id(row) for seeds in whole for row in seeds}
    rows = [row for row in table.rows if id(row) not in left_out]
    count = len(table.rows) - len(rows)
    if not count:
        return table
    of = "pair" if "verdict" in table.columns else "run"
    shorter = pluralize(count, f"{of} with fewer epochs is", f"{of}s with fewer epochs are")
    note = f"{shorter} left out, as longer runs continue them; {shown_by} {'it' if count == 1 else 'them'}."
    return dataclasses.replace(table, rows=rows, notes=(*table.notes, note))


def without_skipped_cells(table: Table, shown_by: str = ALL_SHOWS) -> Table:
    """Return a results table without the rows of skipped cells, with a note in one line of which they are and why."""
    skipped = [row for row in table.rows if row["status"] == Status.SKIPPED]
    if not skipped:
        return table
    others = [row for row in table.rows if row["status"] != Status.SKIPPED]
    reasons = ", ".join(Counter(str(row["reason"]) for row in skipped if row["reason"]))
    which = pluralize(len(skipped), "cell{} is", "cells{} are").format(_what_sets_apart(table, skipped, others))
    note = f"{which} skipped{f' ({reasons})' if reasons else ''}; {shown_by} {'it' if len(skipped) == 1 else 'them'}."
    return dataclasses.replace(table, rows=others, notes=(note, *table.notes))


def without_unmeasured_sides(table: ComparisonTable, shown_by: str = ALL_SHOWS) -> ComparisonTable:
    """Return a comparison without the pairs of two sides that none of them measures, and those without any value.

    A note says which they are. Why none is measured is an answer of the comparison.
    """
    notes, left_out = list[str](), set[int]()
    for (candidate, baseline), rows in rows_by_sides(table.rows).items():
        is_measured = any(row.effect is not None for row in rows)
        omitted = [row for row in rows if _has_no_value(row)] if is_measured else rows
        if omitted:
            left_out.update(map(id, omitted))
            which = pluralize(len(omitted), "pair {}is", "pairs {}are").format(f"of {candidate} and {baseline} ")
            notes.append(f"{which} not measured; {shown_by} {'it' if len(omitted) == 1 else 'them'}.")
    kept = [row for row in table.rows if id(row) not in left_out]
    return dataclasses.replace(table, rows=kept, notes=(*notes, *table.notes))


def _has_no_value(row: ComparisonRow) -> bool:
    return all(row[name] is None for name in row.metric.value_columns)


def pairs_with_answer(table: ComparisonTable) -> ComparisonTable:
    """Return a comparison without the pairs that are not measured, and without a stand-in axis that has no answer."""
    measured = [row for row in table.rows if row.effect]
    has_answer = any(row.is_stand_in and row["verdict"] != INCONCLUSIVE for row in measured)
    return dataclasses.replace(table, rows=[row for row in measured if has_answer or not row.is_stand_in])


def _what_sets_apart(table: Table, rows: Sequence[Row], others: Sequence[Row]) -> str:
    """Return the settings that all of the `rows` share and none of the others has, as ` with device=cuda`."""
    names = [name for name in table.settings if name not in table.derived] if others else ["device"]
    found = []
    for name in names:
        values = {format_value(row.values.get(name)) for row in rows}
        if len(values) == 1 and not values & {format_value(row[name]) for row in others}:
            found.append(f"{setting_name(name)}={values.pop()}")
    return f" with {', '.join(found)}" if found else ""

"""Leaving out runs with fewer epochs that a longer run continues, in tables for people."""

import dataclasses
from typing import TypeVar

from runmanager.results.table_model.columns import Table
from runmanager.text import pluralize

__all__ = ["ALL_SHOWS", "without_shorter_runs"]

ALL_SHOWS = "--all shows"
"""What shows the rows that are left out, for commands with that option."""

_T = TypeVar("_T", bound=Table)


def without_shorter_runs(table: _T, shown_by: str = ALL_SHOWS) -> _T:
    """Return a table without the rows of runs that a longer one continues, with a note of what shows them."""
    rows = [row for row in table.rows if not row.is_continued]
    count = len(table.rows) - len(rows)
    if not count:
        return table
    of = "pair" if "verdict" in table.columns else "run"
    left_out = pluralize(count, f"{of} with fewer epochs is", f"{of}s with fewer epochs are")
    note = f"{left_out} left out, as longer runs continue them; {shown_by} {'it' if count == 1 else 'them'}."
    return dataclasses.replace(table, rows=rows, notes=(*table.notes, note))

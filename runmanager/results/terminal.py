"""The tables in a terminal: what matters, in the room there is, with a legend below."""

import textwrap
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from runmanager.results.columns import MISSING, Table
from runmanager.results.comparison import FASTER, NOT_MEASURED, SLOWER
from runmanager.results.formats import human, human_columns, is_number

if TYPE_CHECKING:
    from rich.console import RenderableType

__all__ = ["comparison_table", "results_table"]

_WIDTH = 80
_GAP = 2  # between two columns
_FOLDED_AT = 14  # text wider than this is broken into lines; numbers never are
_STYLES = {"finished": "green", "running": "cyan", "skipped": "yellow", "failed": "red", "killed": "red"}
_STYLES |= {"crashed": "red", FASTER: "green", SLOWER: "magenta", NOT_MEASURED: "yellow"}
_LEFT_OUT_FIRST = (
    *("peak_memory_bytes", "val_loss", "loss", "accuracy", "contended", "epochs"),
    *("candidate_samples_per_second", "baseline_samples_per_second"),
)
"""Columns that give way where room is short, in this order; settings, states and answers never do."""


def results_table(table: Table, *, limit: int | None = 50, width: int = _WIDTH) -> "RenderableType":
    """The first `limit` rows of a results table (all for None), within `width` columns of the terminal."""
    names = human_columns(table)
    rows = table.rows[:limit]
    columns = [_Column(name, [human(row[name], name) for row in rows], is_number(table, name)) for name in names]
    return _rendered(columns, [*_cut_note(table, rows, "runs"), table.legend, *table.notes], width)


def comparison_table(table: Table, *, limit: int | None = 50, width: int = _WIDTH) -> "RenderableType":
    """The first `limit` rows of a comparison (all for None), their reasons as numbered notes below."""
    rows = table.rows[:limit]
    reasons = list(dict.fromkeys(row["reason"] for row in rows if row["reason"] is not None))
    said: dict[str, Callable[[dict[str, Any]], str]] = {
        "compared": lambda row: f"{row['candidate']} / {row['baseline']}",
        "speedup": lambda row: human(row["speedup"], "speedup"),
        "95% interval": _interval,
        "verdict": lambda row: str(row["verdict"]),
        "note": lambda row: f"[{reasons.index(row['reason']) + 1}]" if row["reason"] else "",
    }
    settings = [name for name in human_columns(table) if name in table.settings]
    columns = [_Column(name, [human(row[name]) for row in rows], is_number(table, name)) for name in settings]
    columns += [_Column(name, [say(row) for row in rows], name == "speedup") for name, say in said.items()]
    notes = [f"[{number}] {reason}" for number, reason in enumerate(reasons, start=1)]
    return _rendered(columns, [*_cut_note(table, rows, "pairs"), *notes, table.legend, *table.notes], width)


def _interval(row: dict[str, Any]) -> str:
    if row["ci_low"] is None:
        return MISSING
    return f"{human(row['ci_low'], 'ci_low')} to {human(row['ci_high'], 'ci_high')}"


def _cut_note(table: Table, rows: Sequence[Any], what: str) -> list[str]:
    if len(rows) == len(table.rows):
        return []
    return [f"The first {len(rows)} of {len(table.rows):,} {what}; --all shows every one."]


class _Column:
    """A column as it will be seen: its heading, its texts, and the least room that it needs."""

    def __init__(self, name: str, texts: Sequence[str], is_number: bool) -> None:
        self.name = name
        self.texts = texts
        self.is_number = is_number
        widest = max(map(len, texts), default=0)
        words = name.replace("_", " ").split()
        self.folds = not is_number and name not in ("95% interval", "speedup")
        self.width = max(min(max(map(len, words)), _FOLDED_AT), min(widest, _FOLDED_AT) if self.folds else widest)
        self.heading = textwrap.fill(" ".join(words), self.width)


def _rendered(columns: Sequence[_Column], legend: Sequence[str], width: int) -> "RenderableType":
    from rich import box
    from rich.console import Group
    from rich.table import Table as RichTable
    from rich.text import Text

    kept, left_out = _fitting(columns, width)
    if left_out:
        legend = [*legend, f"Left out for want of room: {', '.join(left_out)}."]
    shown = RichTable(box=box.SIMPLE_HEAD, show_edge=False, pad_edge=False, padding=(0, 1, 0, 0))
    for column in kept:
        shown.add_column(
            Text(column.heading),
            justify="right" if column.is_number else "left",
            min_width=column.width,
            no_wrap=not column.folds,
            overflow="fold",
        )
    for fields in zip(*(column.texts for column in kept), strict=True):
        shown.add_row(*(Text(field, style=_STYLES.get(field, "")) for field in fields))
    return Group(shown, "", *(Text(line, style="dim") for line in legend))


def _fitting(columns: Sequence[_Column], width: int) -> tuple[list[_Column], list[str]]:
    """The columns that fit, and the names of those that had to go."""
    kept, left_out = list(columns), []
    for name in _LEFT_OUT_FIRST:
        if sum(column.width + _GAP for column in kept) <= width:
            break
        if any(column.name == name for column in kept):
            kept = [column for column in kept if column.name != name]
            left_out.append(name)
    return kept, left_out

"""The tables in a terminal: what matters, in the room there is, with a legend below."""

import dataclasses
import textwrap
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, Literal

from runmanager.results.compare.comparison import with_numbered_reasons
from runmanager.results.compare.verdict import INCONCLUSIVE, NOT_MEASURED
from runmanager.results.model.columns import EFFECTS, MISSING, Table, effect_of
from runmanager.results.model.formatting import human, human_columns, human_effect, human_field, is_number
from runmanager.results.tables.seeds import SEEDS
from runmanager.text import format_value, printable

if TYPE_CHECKING:
    from rich.console import RenderableType

__all__ = ["render_comparison", "render_results"]

_WIDTH = 80
_GAP = 2  # between two columns
_MAX_NAMED = 10  # columns that were left out
_FOLDED_AT = 14  # text wider than this is broken into lines; numbers never are
_WORDS = ("status", "reason")  # single words: they are broken only where no other column can give way
_PHRASES = ("verdict", "compared")  # a few words, the first that may stand above each other
_STYLES = {"finished": "green", "running": "cyan", "skipped": "yellow", "failed": "red", "killed": "red"}
_STYLES |= {"crashed": "red", NOT_MEASURED: "yellow", INCONCLUSIVE: "yellow"}
_STYLES |= dict.fromkeys(("faster", "better"), "green") | dict.fromkeys(("slower", "worse"), "magenta")
_LEFT_OUT_FIRST = (
    *("peak_memory_bytes", "val_loss", "loss", "accuracy", "contended", "epochs"),
    *("candidate_samples_per_second", "baseline_samples_per_second"),
    *("precision", "flop_per_step", "operations_per_step", "operations_per_second", "bytes_per_second"),
)
"""Columns that give way where room is short, in this order; settings, states and answers never do."""
_LEFT_OUT_AT_LAST = ("epoch_seconds",)
"""Of a results table, where a number would have to be broken otherwise: the samples per second say the same."""
_LEFT_OUT_LAST = ("baseline", "candidate")
"""The two sides' own values: they give way, both, only where the other columns have no room at their narrowest."""


def render_results(table: Table, *, limit: int | None = 50, width: int = _WIDTH) -> "RenderableType":
    """The first `limit` rows of a results table (all for None), within `width` columns of the terminal.

    Without any row, what the table notes. Where the settings alone are too many for the room, the run's name stands for
    them; the rows of a pivot are no runs, and its last columns give way.
    """
    if not table.rows:
        return _without_rows(table)
    rows = table.rows[:limit]
    names = human_columns(table)
    columns = _columns(table, rows, names)
    giving_way = (*reversed(table.foreign), *_LEFT_OUT_FIRST)
    if not all("run" in row for row in rows):
        giving_way = tuple(reversed(names[1:]))
    elif _tightest(columns, giving_way) > width:
        names = ["run", *(name for name in names if name not in ("run", *table.settings))]
        columns = min(columns, _columns(table, rows, names), key=lambda each: _tightest(each, giving_way))
        if _tightest(columns, giving_way) > width:
            giving_way = (*giving_way, *_LEFT_OUT_AT_LAST)
    return _rendered(
        columns,
        [*_cut_note(table, rows, _what(table)), table.legend, *table.notes],
        width,
        giving_way=giving_way,
    )


def _without_rows(table: Table) -> "RenderableType":
    """Headings and a legend would explain what is not there."""
    from rich.console import Group
    from rich.text import Text

    return Group(*(Text(printable(note)) for note in table.notes or ("No runs yet.",)))


def _what(table: Table) -> str:
    """What the rows of a table are."""
    return "cells" if SEEDS in table.columns else "runs" if "run" in table.columns else "rows"


def _columns(table: Table, rows: Sequence[dict[str, Any]], names: Sequence[str]) -> "list[_Column]":
    return [_Column(name, [human_field(table, row, name) for row in rows], is_number(table, name)) for name in names]


def render_comparison(table: Table, *, limit: int | None = 50, width: int = _WIDTH) -> "RenderableType":
    """The first `limit` rows of a comparison (all for None), their reasons as numbered notes below."""
    noted = with_numbered_reasons(dataclasses.replace(table, rows=table.rows[:limit], notes=()))
    rows = noted.rows
    effect = effect_of(table.columns)
    said: dict[str, Callable[[dict[str, Any]], str]] = {
        "compared": lambda row: _compared(row, several="axis" in table.shown),
        **(_VALUES if "metric" in table.columns else {}),
        effect: lambda row: human_effect(row, effect),
        "95% interval": _interval,
        "verdict": lambda row: str(row["verdict"]),
        "note": lambda row: str(row["note"]),
    }
    settings = [name for name in human_columns(table) if name in table.settings]
    matched = [_Column(name, [_setting(row, name) for row in rows], is_number(table, name)) for name in settings]
    answers = [_Column(name, [say(row) for row in rows], name in (effect, *_VALUES)) for name, say in said.items()]
    columns = [*matched, *answers]
    if matched and _tightest(columns, _LEFT_OUT_FIRST) > width:
        columns = [_Column("at", [_settings(row, settings) for row in rows], is_number=False), *answers]
    return _rendered(columns, [*_cut_note(table, rows, "pairs"), *noted.notes, table.legend, *table.notes], width)


def _compared(row: dict[str, Any], *, several: bool) -> str:
    sides = printable(f"{format_value(row['candidate'])} / {format_value(row['baseline'])}")
    return f"{row['axis']} {sides}" if several else sides


# What each side has of another metric than the throughput.
_VALUES: dict[str, Callable[[dict[str, Any]], str]] = {
    "baseline": lambda row: human(row["baseline_value"], row["metric"]),
    "candidate": lambda row: human(row["candidate_value"], row["metric"]),
}


def _setting(row: dict[str, Any], column: str) -> str:
    """A matched setting; of the setting that the row itself compares nothing, where several axes are compared."""
    compared = row["axis"].removesuffix(".name")
    name = column.removeprefix("settings.")
    return "" if name == compared or name.startswith(f"{compared}.") else printable(format_value(row[column]))


def _settings(row: dict[str, Any], columns: Sequence[str]) -> str:
    """The matched settings of a row in one field, for tables that have no room for a column each."""
    said = ((name.removesuffix(".name"), _setting(row, name)) for name in columns)
    return ", ".join(f"{name}={value}" for name, value in said if value)


def _interval(row: dict[str, Any]) -> str:
    return MISSING if row["ci_low"] is None else f"{human_effect(row, 'ci_low')} to {human_effect(row, 'ci_high')}"


def _cut_note(table: Table, rows: Sequence[Any], what: str) -> list[str]:
    if len(rows) == len(table.rows):
        return []
    return [f"The first {len(rows)} of {len(table.rows):,} {what}; --all shows every one."]


class _Column:
    """A column as it will be seen: its texts, the room that it needs at least, and what it would like."""

    def __init__(self, name: str, texts: Sequence[str], is_number: bool) -> None:
        self.name = name
        self.texts = texts
        self.is_number = is_number
        self.folds = not is_number and name not in ("95% interval", "note", *EFFECTS)
        words = name.replace("_", " ").split()
        widest = max(map(len, texts), default=0)
        self.liked = max(widest, *map(len, words))
        self.least = min(self.liked, _FOLDED_AT) if self.folds else max(widest, min(self.liked, _FOLDED_AT))
        folded = self.least
        if name in _PHRASES:
            folded = min(folded, max(len(word) for text in [name, *texts] for word in text.split()))
        if name in _WORDS:
            self.least = self.liked
        # A mean may stand above its deviation, and an interval's ends above each other, where all else fails; no
        # number is broken.
        parts = [len(part) for text in texts for part in _parts(text)]
        is_two = not self.folds and any(len(_parts(text)) > 1 for text in texts)
        self.tight = max(*parts, *map(len, words)) if is_two else folded

    def heading(self, width: int) -> str:
        return textwrap.fill(self.name.replace("_", " "), width)

    def fields(self, width: int) -> list[str]:
        """The texts, those of a mean and its deviation or of an interval in two lines where one has no room."""
        return [text if self.folds or len(text) <= width else "\n".join(_parts(text)) for text in self.texts]


def _parts(text: str) -> list[str]:
    return text.replace(" ± ", "\n± ").replace(" to ", "\nto ").split("\n")


def _least(columns: Sequence[_Column]) -> int:
    return sum(column.least for column in columns) + _GAP * (len(columns) - 1)


def _tightest(columns: Sequence[_Column], giving_way: Sequence[str]) -> int:
    """The room for those columns that never give way."""
    return _tight([column for column in columns if column.name not in (*giving_way, *_LEFT_OUT_LAST)])


def _tight(columns: Sequence[_Column]) -> int:
    return sum(column.tight for column in columns) + _GAP * (len(columns) - 1)


def _rendered(
    columns: Sequence[_Column], legend: Sequence[str], width: int, *, giving_way: Sequence[str] = _LEFT_OUT_FIRST
) -> "RenderableType":
    from rich import box
    from rich.console import Group
    from rich.table import Table as RichTable
    from rich.text import Text

    kept, left_out = _fitting(columns, width, giving_way)
    if left_out:
        more = len(left_out) - _MAX_NAMED
        named = ", ".join(left_out[:_MAX_NAMED]) + (f" and {more} more" if more > 0 else "")
        legend = [*legend, f"Omitted for lack of space: {named}."]
    shown = RichTable(box=box.SIMPLE_HEAD, show_edge=False, pad_edge=False, padding=(0, 1, 0, 0))
    widths = _widths(kept, width)
    for column, room in zip(kept, widths, strict=True):
        justify: Literal["right", "left"] = "right" if column.is_number else "left"
        shown.add_column(Text(printable(column.heading(room))), justify=justify, width=room, overflow="fold")
    texts = (column.fields(room) for column, room in zip(kept, widths, strict=True))
    for fields in zip(*texts, strict=True):
        shown.add_row(*(Text(field, style=_STYLES.get(field, "")) for field in fields))
    return Group(shown, "", *(Text(printable(line), style="dim") for line in legend))


def _fitting(columns: Sequence[_Column], width: int, giving_way: Sequence[str]) -> tuple[list[_Column], list[str]]:
    """The columns that fit, and the names of those that had to go."""
    kept, left_out = list(columns), []
    for name in giving_way:
        if _least(kept) <= width:
            break
        if any(column.name == name for column in kept):
            kept = [column for column in kept if column.name != name]
            left_out.append(name)
    if _least(kept) > width:
        if _tight(kept) > width:
            left_out += [column.name for column in kept if column.name in _LEFT_OUT_LAST]
            kept = [column for column in kept if column.name not in _LEFT_OUT_LAST]
        for column in kept:
            column.least = column.tight
    return kept, left_out


def _widths(columns: Sequence[_Column], width: int) -> list[int]:
    """The room of each column: what it needs, and of what is left over what it would like, first come first served."""
    spare = max(0, width - _least(columns))
    widths = []
    for column in columns:
        more = min(spare, column.liked - column.least)
        widths.append(column.least + more)
        spare -= more
    return widths

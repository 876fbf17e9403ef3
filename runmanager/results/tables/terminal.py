"""Results and comparison tables for the terminal, fitted to its width, with a legend below."""

import dataclasses
import textwrap
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, Literal

from runmanager.results.compare.comparison import with_numbered_reasons
from runmanager.results.compare.comparison_table import ComparisonRow, ComparisonTable
from runmanager.results.compare.verdict import INCONCLUSIVE, NOT_MEASURED
from runmanager.results.load.several_sweeps import SWEEP
from runmanager.results.table_model.columns import EFFECTS, MISSING, Row, Table, effect_column
from runmanager.results.table_model.formatting import human_columns, human_field, is_number
from runmanager.results.tables.labelled import NOTE
from runmanager.results.tables.seeds import SEEDS
from runmanager.text import format_value, printable

if TYPE_CHECKING:
    from rich.console import RenderableType

__all__ = ["render_comparison", "render_listing", "render_results"]

_DEFAULT_WIDTH = 80
_GAP = 2  # between two columns
_MAX_NAMED = 10  # omitted columns
_FOLD_WIDTH = 14  # wider text is broken into lines; numbers never are
_WORDS = ("status", "reason")  # columns of single words, broken only if no other column can be narrower
_PHRASES = (
    "verdict",
    "compared",
    "states",
    "axes",
    "created",
    "tags",
)  # columns of a few words, which are broken first
_STYLES = {"finished": "green", "running": "cyan", "skipped": "yellow", "failed": "red", "killed": "red"}
_STYLES |= {"crashed": "red", NOT_MEASURED: "yellow", INCONCLUSIVE: "yellow"}
_STYLES |= dict.fromkeys(("faster", "better"), "green") | dict.fromkeys(("slower", "worse"), "magenta")
_OMITTED_FIRST = (
    *("peak_memory_bytes", "val_loss", "loss", "accuracy", "contended", "epochs"),
    *("candidate_samples_per_second", "baseline_samples_per_second"),
    *("precision", "flop_per_step", "operations_per_step", "operations_per_second", "bytes_per_second"),
)
"""Columns that are omitted in this order if space is short; settings, status and results of comparisons never are."""
_OMITTED_FROM_RESULTS = ("epoch_seconds",)
"""Omitted from a results table if a number would not fit otherwise: the samples per second have the same content."""
_OMITTED_LAST = ("baseline", "candidate")
"""The values of the two sides, omitted together if the other columns do not fit at their minimum width."""


def render_results(table: Table, *, limit: int | None = 50, width: int = _DEFAULT_WIDTH) -> "RenderableType":
    """Render the first `limit` rows of a results table (None: all) in `width` terminal columns.

    A table without rows is rendered as its notes. If the settings alone do not fit, the run's name replaces them.
    Logged metrics are omitted after the other columns that may be. A pivot has rows without a run; its last columns are
    omitted first.
    """
    if not table.rows:
        return _render_notes(table)
    rows = table.rows[:limit]
    names = human_columns(table)
    columns = _columns(table, rows, names)
    logged = _omitted_logged(table, names)
    omittable = (*reversed(table.foreign), *(name for name in _OMITTED_FIRST if name not in logged))
    omittable = (*omittable, *(name for name in table.labels if name.endswith(NOTE)))  # long; tags are short
    if not all("run" in row.values for row in rows):
        omittable = tuple(reversed(names[1:]))
    elif _min_width(columns, (*omittable, *logged)) > width:
        # A sweep's name is needed in addition to that of a run.
        settings = [name for name in table.settings if name != SWEEP]
        names = ["run", *(name for name in names if name not in ("run", *settings))]
        columns = min(columns, _columns(table, rows, names), key=lambda each: _min_width(each, (*omittable, *logged)))
        if _min_width(columns, (*omittable, *logged)) > width:
            omittable = (*omittable, *_OMITTED_FROM_RESULTS)
    return _render(
        columns,
        [*_cut_note(table, rows, _row_noun(table)), table.legend, *table.notes],
        width,
        omittable=omittable,
        logged=logged,
    )


def render_listing(table: Table, *, limit: int | None = 50, width: int = _DEFAULT_WIDTH) -> "RenderableType":
    """Render the first `limit` rows of a table of sweeps (None: all); its last columns are omitted first."""
    if not table.rows:
        return _render_notes(table)
    rows, names = table.rows[:limit], human_columns(table)
    legend = [*_cut_note(table, rows, "sweeps"), table.legend, *table.notes]
    return _render(_columns(table, rows, names), legend, width, omittable=(), logged=tuple(reversed(names[1:])))


def _omitted_logged(table: Table, names: Sequence[str]) -> tuple[str, ...]:
    """The logged metrics in the order in which they are omitted: the last one first.

    The first metric stays longer than the time of an epoch, which the samples per second make up for.
    """
    first, others = table.logged[:1], table.logged[1:]
    times = _OMITTED_FROM_RESULTS if first and "samples_per_second" in names else ()
    return (*reversed(others), *times, *first)


def _render_notes(table: Table) -> "RenderableType":
    """The notes of a table without rows; headings and legend would have nothing to explain."""
    from rich.console import Group
    from rich.text import Text

    return Group(*(Text(printable(note)) for note in table.notes or ("No runs yet.",)))


def _row_noun(table: Table) -> str:
    """What the table's rows stand for."""
    return "cells" if SEEDS in table.columns else "runs" if "run" in table.columns else "rows"


def _columns(table: Table, rows: Sequence[Row], names: Sequence[str]) -> "list[_Column]":
    return [_Column(name, [human_field(table, row, name) for row in rows], is_number(table, name)) for name in names]


def render_comparison(
    table: ComparisonTable, *, limit: int | None = 50, width: int = _DEFAULT_WIDTH
) -> "RenderableType":
    """Render the first `limit` rows of a comparison (None: all), with their reasons as numbered notes below."""
    noted = with_numbered_reasons(dataclasses.replace(table, rows=table.rows[:limit], notes=()))
    rows = noted.rows
    effect = effect_column(table.columns)
    formats: dict[str, Callable[[ComparisonRow], str]] = {
        "compared": lambda row: _compared(row, several="axis" in table.shown),
        **(_VALUES if "metric" in table.columns else {}),
        effect: lambda row: row.metric.format_effect(row[effect]),
        "95% interval": _interval,
        "verdict": lambda row: str(row["verdict"]),
        "note": lambda row: str(row["note"]),
    }
    settings = [name for name in human_columns(table) if name in table.settings]
    matched = [_Column(name, [_setting(row, name) for row in rows], is_number(table, name)) for name in settings]
    answers = [
        _Column(name, [format_(row) for row in rows], name in (effect, *_VALUES)) for name, format_ in formats.items()
    ]
    columns = [*matched, *answers]
    if matched and _min_width(columns, _OMITTED_FIRST) > width:
        columns = [_Column("at", [_settings(row, settings) for row in rows], is_number=False), *answers]
    return _render(columns, [*_cut_note(table, rows, "pairs"), *noted.notes, table.legend, *table.notes], width)


def _compared(row: ComparisonRow, *, several: bool) -> str:
    sides = printable(f"{format_value(row['candidate'])} / {format_value(row['baseline'])}")
    return f"{row['axis']} {sides}" if several else sides


# The values of the two sides, for metrics other than the throughput.
_VALUES: dict[str, Callable[[ComparisonRow], str]] = {
    "baseline": lambda row: row.metric.format_value(row["baseline_value"]),
    "candidate": lambda row: row.metric.format_value(row["candidate_value"]),
}


def _setting(row: ComparisonRow, column: str) -> str:
    """The value of a matched setting; empty for the setting that the row compares, if there are several axes."""
    compared = row["axis"].removesuffix(".name")
    name = column.removeprefix("settings.")
    return "" if name == compared or name.startswith(f"{compared}.") else printable(format_value(row[column]))


def _settings(row: ComparisonRow, columns: Sequence[str]) -> str:
    """The matched settings of a row in one field, for tables without space for a column each."""
    values = ((name.removesuffix(".name"), _setting(row, name)) for name in columns)
    return ", ".join(f"{name}={value}" for name, value in values if value)


def _interval(row: ComparisonRow) -> str:
    return (
        MISSING
        if row["ci_low"] is None
        else " to ".join(row.metric.format_effect(row[end]) for end in ("ci_low", "ci_high"))
    )


def _cut_note(table: Table, rows: Sequence[Any], noun: str) -> list[str]:
    if len(rows) == len(table.rows):
        return []
    return [f"The first {len(rows)} of {len(table.rows):,} {noun}; --all shows all."]


class _Column:
    """The texts of a column and the widths that it may have: `preferred`, `minimum`, and `smallest` in an emergency."""

    def __init__(self, name: str, texts: Sequence[str], is_number: bool) -> None:
        self.name = name
        self.texts = texts
        self.is_number = is_number
        self.folds = not is_number and name not in ("95% interval", "note", *EFFECTS)
        words = name.replace("_", " ").split()
        widest = max(map(len, texts), default=0)
        self.preferred = max(widest, *map(len, words))
        self.minimum = min(self.preferred, _FOLD_WIDTH) if self.folds else max(widest, min(self.preferred, _FOLD_WIDTH))
        smallest = self.minimum
        if name in _PHRASES:
            smallest = min(smallest, max(len(word) for text in [name, *texts] for word in text.split()))
        if name in _WORDS:
            self.minimum = self.preferred
        # As a last resort a mean stands above its deviation, and the ends of an interval above each other; numbers are
        # never broken.
        parts = [len(part) for text in texts for part in _parts(text)]
        has_two_parts = not self.folds and any(len(_parts(text)) > 1 for text in texts)
        self.smallest = max(*parts, *map(len, words)) if has_two_parts else smallest

    def heading(self, width: int) -> str:
        return textwrap.fill(self.name.replace("_", " "), width)

    def fields(self, width: int) -> list[str]:
        """The texts; a mean with its deviation or an interval takes two lines if one is too narrow."""
        return [text if self.folds or len(text) <= width else "\n".join(_parts(text)) for text in self.texts]


def _parts(text: str) -> list[str]:
    return text.replace(" ± ", "\n± ").replace(" to ", "\nto ").split("\n")


def _total_minimum(columns: Sequence[_Column]) -> int:
    return sum(column.minimum for column in columns) + _GAP * (len(columns) - 1)


def _total_smallest(columns: Sequence[_Column]) -> int:
    return sum(column.smallest for column in columns) + _GAP * (len(columns) - 1)


def _min_width(columns: Sequence[_Column], omittable: Sequence[str]) -> int:
    """The width that the columns need without those that may be omitted."""
    return _total_smallest([column for column in columns if column.name not in (*omittable, *_OMITTED_LAST)])


def _render(
    columns: Sequence[_Column],
    legend: Sequence[str],
    width: int,
    *,
    omittable: Sequence[str] = _OMITTED_FIRST,
    logged: Sequence[str] = (),
) -> "RenderableType":
    from rich import box
    from rich.console import Group
    from rich.table import Table as RichTable
    from rich.text import Text

    shown, omitted = _fit(columns, width, omittable, logged)
    if omitted:
        more = len(omitted) - _MAX_NAMED
        named = ", ".join(omitted[:_MAX_NAMED]) + (f" and {more} more" if more > 0 else "")
        legend = [*legend, f"Omitted for lack of space: {named}."]
    table = RichTable(box=box.SIMPLE_HEAD, show_edge=False, pad_edge=False, padding=(0, 1, 0, 0))
    widths = _widths(shown, width)
    for column, column_width in zip(shown, widths, strict=True):
        justify: Literal["right", "left"] = "right" if column.is_number else "left"
        heading = Text(printable(column.heading(column_width)))
        table.add_column(heading, justify=justify, width=column_width, overflow="fold")
    texts = (column.fields(column_width) for column, column_width in zip(shown, widths, strict=True))
    for fields in zip(*texts, strict=True):
        table.add_row(*(Text(field, style=_STYLES.get(field, "")) for field in fields))
    return Group(table, "", *(Text(printable(line), style="dim") for line in legend))


def _fit(
    columns: Sequence[_Column], width: int, omittable: Sequence[str], logged: Sequence[str]
) -> tuple[list[_Column], list[str]]:
    """The columns that fit into `width`, and the names of the omitted ones.

    The `logged` columns are omitted in their order, if the others do not fit at their smallest width.
    """
    shown, omitted = list(columns), []
    for names, total in ((omittable, _total_minimum), (logged, _total_smallest)):
        for name in names:
            if total(shown) <= width:
                break
            if any(column.name == name for column in shown):
                shown = [column for column in shown if column.name != name]
                omitted.append(name)
    if _total_minimum(shown) > width:
        if _total_smallest(shown) > width:
            omitted += [column.name for column in shown if column.name in _OMITTED_LAST]
            shown = [column for column in shown if column.name not in _OMITTED_LAST]
        for column in shown:
            column.minimum = column.smallest
    return shown, omitted


def _widths(columns: Sequence[_Column], width: int) -> list[int]:
    """The minimum width of each column; spare width goes to the first columns, up to their preferred width."""
    spare = max(0, width - _total_minimum(columns))
    widths = []
    for column in columns:
        more = min(spare, column.preferred - column.minimum)
        widths.append(column.minimum + more)
        spare -= more
    return widths

"""Results and comparison tables for the terminal, their columns fitted to its width, with a legend below."""

import dataclasses
import re
import textwrap
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, Literal

from runmanager.results.compare.comparison import with_numbered_reasons
from runmanager.results.compare.comparison_table import ComparisonRow, ComparisonTable
from runmanager.results.compare.verdict import NOT_MEASURED, VERDICTS
from runmanager.results.load.several_sweeps import SWEEP
from runmanager.results.table_model.columns import EFFECTS, MISSING, Row, Table, effect_column, setting_name
from runmanager.results.table_model.formatting import human_columns, human_field, is_number
from runmanager.results.tables.shown_rows import SEEDS
from runmanager.results.tables.sorting import OMITTED_FIRST, OMITTED_FROM_RESULTS, omission_order
from runmanager.text import printable_line, printable_value, text_width, wrapped

if TYPE_CHECKING:
    from rich.console import RenderableType
    from rich.table import Table as RichTable
    from rich.text import Text

_DEFAULT_WIDTH = 80
_MAX_NAMED = 10  # omitted columns
_REASON, _STATUS = "reason", "status"
_ALL = "--all shows all"
_CREATED, _KEPT_IN_LISTING = "created", ("states", "axes", "metric", "best")
_OMITTED = "Omitted for lack of space: "
_STYLES = {"finished": "green", "running": "cyan", "skipped": "yellow", "failed": "red", "killed": "red"}
_STYLES |= {"crashed": "red", NOT_MEASURED: "yellow"} | {word: look.style for word, look in VERDICTS.items()}
_OMITTED_LAST = ("baseline", "candidate")
"""The values of the two sides, omitted together if the other columns do not fit at their minimum width."""


SETTINGS = "settings"
"""A column with all settings of a row."""

_GAP = 2  # between two columns
_FOLD_WIDTH = 14  # wider text is broken into lines; numbers never are
_FOLD_WIDTHS = {SETTINGS: 28, "command": 40}  # of columns whose text is long
_NAMES = ("sweep",)  # columns of names to be copied, which are not broken unless they are very long
_MAX_NAME = 32
_WORDS = ("status", "reason")  # columns of single words, broken only if no other column can be narrower
_PHRASES = (
    "verdict",
    "compared",
    "states",
    "axes",
    "created",
    "tags",
)  # columns of a few words, which are broken first


class TextColumn:
    """The texts of a column and the widths that it may have: `preferred`, `minimum`, and `smallest` in an emergency.

    Its heading is made of the column's `name`, or of a setting's, as a command takes it.
    """

    def __init__(self, name: str, texts: Sequence[str], is_number: bool, *, setting: str = "") -> None:
        self.name = name
        self._title = printable_line(setting or name)
        self.texts = texts
        self.is_number = is_number
        self.folds = not is_number and name not in ("95% interval", "note", *EFFECTS)
        words = self._words.split()
        widest = max(map(text_width, texts), default=0)
        self.preferred = max([widest, *map(text_width, words)])
        is_name = name in _NAMES and widest <= _MAX_NAME
        broken_at = widest if is_name else _FOLD_WIDTHS.get(name, _FOLD_WIDTH)
        self.minimum = min(self.preferred, broken_at) if self.folds else max(widest, min(self.preferred, broken_at))
        smallest = self.minimum
        if name in _PHRASES:
            words = [word for text in [name, *texts] for word in text.split()]
            smallest = min(smallest, max(map(text_width, words), default=0))
        if name in _WORDS:
            self.minimum = self.preferred
        # As a last resort a mean stands above its deviation, and the ends of an interval above each other; numbers are
        # never broken.
        parts = [text_width(part) for text in texts for part in _parts(text)]
        has_two_parts = not self.folds and any(len(_parts(text)) > 1 for text in texts)
        self.smallest = max([*parts, *map(text_width, words)]) if has_two_parts else smallest

    def heading(self, width: int) -> str:
        return textwrap.fill(self._words, width)

    @property
    def _words(self) -> str:
        """The name in words; without the unit where the texts have another one."""
        has_unit = any(text.endswith("iB") for text in self.texts)
        return (self._title.removesuffix("_bytes") if has_unit else self._title).replace("_", " ")

    def fields(self, width: int) -> list[str]:
        """The texts; a mean with its deviation or an interval takes two lines if one is too narrow."""
        return [text if self.folds or text_width(text) <= width else "\n".join(_parts(text)) for text in self.texts]


def _parts(text: str) -> list[str]:
    return text.replace(" ± ", "\n± ").replace(" to ", "\nto ").split("\n")


def _total_minimum(columns: Sequence[TextColumn]) -> int:
    return sum(column.minimum for column in columns) + _GAP * (len(columns) - 1)


def smallest_width(columns: Sequence[TextColumn]) -> int:
    """Return the width that these columns need at least."""
    return sum(column.smallest for column in columns) + _GAP * (len(columns) - 1)


def split_columns(
    columns: Sequence[TextColumn], width: int, *, omittable: Sequence[str], logged: Sequence[str], last: Sequence[str]
) -> tuple[list[TextColumn], list[str]]:
    """Return the columns that fit into `width`, and the names of the omitted ones.

    The `omittable` columns are left out in their order, if the others do not fit at their usual minimum; the `logged`
    ones, in theirs, if the others do not fit at their smallest width; the `last` ones together, if that is not enough.
    """
    shown, omitted = list(columns), []
    for names, total in ((omittable, _total_minimum), (logged, smallest_width)):
        for name in names:
            if total(shown) <= width:
                break
            if any(column.name == name for column in shown):
                shown = [column for column in shown if column.name != name]
                omitted.append(name)
    if _total_minimum(shown) > width:
        if smallest_width(shown) > width:
            omitted += [column.name for column in shown if column.name in last]
            shown = [column for column in shown if column.name not in last]
        for column in shown:
            column.minimum = column.smallest
    return shown, omitted


def column_widths(columns: Sequence[TextColumn], width: int) -> list[int]:
    """The minimum width of each column; spare width goes to the first columns, up to their preferred width."""
    spare = max(0, width - _total_minimum(columns))
    widths = []
    for column in columns:
        more = min(spare, column.preferred - column.minimum)
        widths.append(column.minimum + more)
        spare -= more
    return widths


def render_results(table: Table, *, limit: int | None = 50, width: int = _DEFAULT_WIDTH) -> "RenderableType":
    """Render the first `limit` rows of a results table (None: all) in `width` terminal columns.

    A table without rows is rendered as its notes. If the settings alone do not fit, one column has all of them. The
    metric by which the rows are ranked always stays; reasons and states that say nothing go first, and other logged
    metrics after the other columns. A pivot has rows without a run; its last columns are omitted first.
    """
    return _render_notes(table, width) if not table.rows else _fit_results(table, limit=limit, width=width).rendered()


def render_summary(
    results: Table,
    comparison: ComparisonTable,
    *,
    limit: int,
    rows_shown_by: str,
    pairs_shown_by: str,
    width: int = _DEFAULT_WIDTH,
) -> "RenderableType":
    """Render a results table and its comparison, up to `limit` rows each, with one legend below both.

    `rows_shown_by` and `pairs_shown_by` complete the sentences that there are more of them. Omitted columns are not
    named.
    """
    from rich.console import Group

    if not results.rows:
        return _render_notes(results, width)
    found = _fit_results(results, limit=limit, width=width, all_shown_by=rows_shown_by).without_omitted()
    if not comparison.rows:
        return found.rendered()
    pairs = _fit_comparison(comparison, limit=limit, width=width, all_shown_by=pairs_shown_by).without_omitted()
    return Group(found.table(), "", found.followed_by(pairs).rendered())


def _fit_results(table: Table, *, limit: int | None, width: int, all_shown_by: str = _ALL) -> "_Fitted":
    rows = table.rows[:limit]
    names = human_columns(table)
    columns = _columns(table, rows, names)
    omittable, logged = omission_order(table)
    of_runs = all("run" in row.values for row in rows)
    if of_runs and _min_width(columns, (*omittable, *logged)) > width:
        # A sweep's name stays next to the settings.
        settings = [name for name in table.settings if name != SWEEP and name in names]
        others = [name for name in names if name not in settings]
        in_one = TextColumn(SETTINGS, [_in_one(table, row, settings) for row in rows], is_number=False)
        together = [in_one, *_columns(table, rows, others)]
        columns = min(columns, together, key=lambda each: _min_width(each, (*omittable, *logged)))
        if _min_width(columns, (*omittable, *logged)) > width:
            omittable = (*omittable, *OMITTED_FROM_RESULTS)
    cut = _cut_note(table, rows, _row_noun(table), all_shown_by)
    return _fit(columns, table, cut, width, omittable=omittable, logged=logged)


def _in_one(table: Table, row: Row, settings: Sequence[str]) -> str:
    """The settings of a row in one field, without those that it does not have."""
    present = [name for name in settings if name not in row.absent_settings]
    return ", ".join(f"{printable_line(setting_name(name))}={human_field(table, row, name)}" for name in present)


def render_listing(table: Table, *, limit: int | None = 50, width: int = _DEFAULT_WIDTH) -> "RenderableType":
    """Render the first `limit` rows of a table of sweeps (None: all).

    Its last columns are omitted first, and the times before axes and the best value: the order of rows tells them.
    """
    if not table.rows:
        return _render_notes(table, width)
    rows, names = table.rows[:limit], human_columns(table)
    cut = _cut_note(table, rows, "sweeps")
    columns = _columns(table, rows, names)
    return _fit(columns, table, cut, width, omittable=(), logged=_omitted_from_listing(names)).rendered()


def _omitted_from_listing(names: Sequence[str]) -> tuple[str, ...]:
    others = [name for name in reversed(names[1:]) if name != _CREATED]
    kept = [name for name in others if name in _KEPT_IN_LISTING]
    return (*(name for name in others if name not in kept), _CREATED, *kept)


def _render_notes(table: Table, width: int) -> "RenderableType":
    """The notes of a table without rows; headings and legend would have nothing to explain."""
    from rich.console import Group

    return Group(*(_line(note, width) for note in table.notes or ("No runs yet.",)))


def _line(text: str, width: int, style: str = "") -> "Text":
    """A line below a table, broken between words and not in a command."""
    from rich.text import Text

    return Text(wrapped(printable_line(text), width), style=style, no_wrap=True, overflow="ignore")


def _row_noun(table: Table) -> str:
    """What the table's rows stand for."""
    return "cells" if SEEDS in table.columns else "runs" if "run" in table.columns else "rows"


def _columns(table: Table, rows: Sequence[Row], names: Sequence[str]) -> "list[TextColumn]":
    return [_column(table, name, [human_field(table, row, name) for row in rows], names=names) for name in names]


def _column(table: Table, name: str, texts: Sequence[str], *, names: Sequence[str] = ()) -> TextColumn:
    """A column among those of these `names`: a setting has its full name next to a result of the same name."""
    setting = setting_name(name) if name in table.settings else ""
    if setting != name and setting in names:
        setting = name
    return TextColumn(name, texts, is_number(table, name), setting=setting)


def render_comparison(
    table: ComparisonTable, *, limit: int | None = 50, width: int = _DEFAULT_WIDTH
) -> "RenderableType":
    """Render the first `limit` rows of a comparison (None: all), with their reasons as numbered notes below."""
    return _fit_comparison(table, limit=limit, width=width).rendered()


def _fit_comparison(table: ComparisonTable, *, limit: int | None, width: int, all_shown_by: str = _ALL) -> "_Fitted":
    noted = with_numbered_reasons(dataclasses.replace(table, rows=table.rows[:limit], notes=()))
    rows = noted.rows
    effect = effect_column(table.columns)
    formats: dict[str, Callable[[ComparisonRow], str]] = {
        "compared": lambda row: _compared(row, several="axis" in table.shown),
        **(_VALUES if "metric" in table.columns else {}),
        effect: lambda row: row.metric.format_effect(row[effect]),
        "95% interval": _interval,
        "verdict": lambda row: str(row["verdict"]),
        "note": lambda row: printable_line(str(row["note"])),
    }
    settings = [name for name in human_columns(table) if name in table.settings]
    matched = [_column(table, name, [_setting(row, name) for row in rows]) for name in settings]
    answers = [
        TextColumn(name, [format_(row) for row in rows], name in (effect, *_VALUES))
        for name, format_ in formats.items()
        if name != "note" or any(format_(row) for row in rows)
    ]
    columns = [*matched, *answers]
    if matched and _min_width(columns, OMITTED_FIRST) > width:
        columns = [TextColumn("at", [_settings(row, settings) for row in rows], is_number=False), *answers]
    before = [*_cut_note(table, rows, "pairs", all_shown_by), *noted.notes]
    return _fit(columns, table, before, width, omittable=OMITTED_FIRST)


def _compared(row: ComparisonRow, *, several: bool) -> str:
    sides = f"{printable_value(row['candidate'])} / {printable_value(row['baseline'])}"
    return f"{printable_line(row['axis'])} {sides}" if several else sides


# The values of the two sides, for metrics other than the throughput.
_VALUES: dict[str, Callable[[ComparisonRow], str]] = {
    "baseline": lambda row: row.metric.format_value(row["baseline_value"]),
    "candidate": lambda row: row.metric.format_value(row["candidate_value"]),
}


def _setting(row: ComparisonRow, column: str) -> str:
    """The value of a matched setting; empty for the setting that the row compares, if there are several axes."""
    compared = row["axis"].removesuffix(".name")
    name = column.removeprefix("settings.")
    return "" if name == compared or name.startswith(f"{compared}.") else printable_value(row[column])


def _settings(row: ComparisonRow, columns: Sequence[str]) -> str:
    """The matched settings of a row in one field, for tables without space for a column each."""
    values = ((printable_line(setting_name(name)), _setting(row, name)) for name in columns)
    return ", ".join(f"{name}={value}" for name, value in values if value)


def _interval(row: ComparisonRow) -> str:
    return MISSING if row["ci_low"] is None else " to ".join(row.metric.format_ends(row["ci_low"], row["ci_high"]))


def _cut_note(table: Table, rows: Sequence[Any], noun: str, all_shown_by: str = _ALL) -> list[str]:
    if len(rows) == len(table.rows):
        return []
    return [f"The first {len(rows)} of {len(table.rows):,} {noun}; {all_shown_by}."]


def _min_width(columns: Sequence[TextColumn], omittable: Sequence[str]) -> int:
    """The width that the columns need without those that may be omitted."""
    return smallest_width([column for column in columns if column.name not in (*omittable, *_OMITTED_LAST)])


@dataclasses.dataclass(frozen=True)
class _Fitted:
    """The columns of a table that fit into a width, and the lines below it: the legend among notes."""

    columns: Sequence[TextColumn]
    width: int
    notes_before: Sequence[str]
    legend: str
    notes: Sequence[str]

    def table(self) -> "RichTable":
        from rich import box
        from rich.table import Table as RichTable
        from rich.text import Text

        table = RichTable(box=box.SIMPLE_HEAD, show_edge=False, pad_edge=False, padding=(0, 1, 0, 0))
        widths = column_widths(self.columns, self.width)
        for column, column_width in zip(self.columns, widths, strict=True):
            justify: Literal["right", "left"] = "right" if column.is_number else "left"
            heading = Text(column.heading(column_width))
            table.add_column(heading, justify=justify, width=column_width, overflow="fold")
        texts = (column.fields(width) for column, width in zip(self.columns, widths, strict=True))
        for fields in zip(*texts, strict=True):
            table.add_row(*(Text(field, style=_STYLES.get(field, "")) for field in fields))
        return table

    def rendered(self) -> "RenderableType":
        from rich.console import Group

        lines = [*self.notes_before, *([self.legend] if self.legend else []), *self.notes]
        return Group(self.table(), "", *(_line(line, self.width, "dim") for line in lines))

    def without_omitted(self) -> "_Fitted":
        """The same without the note that names the omitted columns."""
        return dataclasses.replace(self, notes=[note for note in self.notes if not note.startswith(_OMITTED)])

    def followed_by(self, other: "_Fitted") -> "_Fitted":
        """The other table, with the notes of both and one legend, in which no sentence is repeated."""
        sentences = dict.fromkeys(re.split(r"(?<=\.) ", f"{self.legend} {other.legend}"))
        before, notes = [*self.notes_before, *other.notes_before], [*self.notes, *other.notes]
        return dataclasses.replace(other, notes_before=before, legend=" ".join(sentences).strip(), notes=notes)


def _fit(
    columns: Sequence[TextColumn],
    table: Table,
    notes_before: Sequence[str],
    width: int,
    *,
    omittable: Sequence[str],
    logged: Sequence[str] = (),
) -> _Fitted:
    """The columns that fit into `width`, with notes that name the others (see `split_columns`)."""
    shown, omitted = split_columns(columns, width, omittable=omittable, logged=logged, last=_OMITTED_LAST)
    reasons = [text for column in columns if column.name == _REASON for text in column.texts if text]
    named = [name for name in omitted if name != _STATUS and (name != _REASON or not reasons)]
    notes = list(table.notes)
    if _REASON in omitted and reasons:
        notes = [*notes, f"Reasons: {'; '.join(dict.fromkeys(reasons))}."]
    if named:
        more = len(named) - _MAX_NAMED
        names = ", ".join(named[:_MAX_NAMED]) + (f" and {more} more" if more > 0 else "")
        notes = [*notes, f"{_OMITTED}{names}."]
    return _Fitted(shown, width, notes_before, table.legend, notes)

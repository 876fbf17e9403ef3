"""A results table as somebody asks for it: by any setting or column, also by settings that do not vary."""

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from runmanager.errors import UsageError
from runmanager.records.storage.reader import SweepContents
from runmanager.records.sweep.record import SweepRecord
from runmanager.results.compare.pairing import hashable
from runmanager.results.load.cells import gather_cells
from runmanager.results.load.run_summary import SweepSummary
from runmanager.results.model.columns import Table, column_of
from runmanager.results.model.formatting import human_field, is_number
from runmanager.results.tables.filter import LISTED, Condition
from runmanager.results.tables.results_table import notes_of_rows, result_rows
from runmanager.results.tables.sorting import rank
from runmanager.text import pluralize
from runmanager.validation import did_you_mean

__all__ = ["AskedTable", "ask", "ask_table"]

_MAX_SAID = 5  # values of a column that are named


@dataclass(frozen=True)
class AskedTable:
    """A results table, the column of each asked word that means one, and all the names that could be asked for."""

    table: Table
    columns: Mapping[str, str]
    known: Sequence[str]

    def column(self, word: str, option: str) -> str:
        """The column that a word of an option means. Raises `UsageError`, with the nearest name, where it is none."""
        if word in self.columns:
            return self.columns[word]
        hint = did_you_mean(word, self.known, max_names=1) or LISTED
        raise UsageError(f"`{option}` must name a column of the table, got '{word}'; {hint}")

    def only(self, condition: Condition) -> "AskedTable":
        """The rows for which the condition holds; a note says how many there were. Raises `UsageError`."""
        holds = condition.over(self.columns, known=self.known)
        rows = [row for row in self.table.rows if holds(row)]
        runs = pluralize(len(self.table.rows), "run")
        said = pluralize(len(rows), f"of {runs} is where {condition.text}.", f"of {runs} are where {condition.text}.")
        if not rows:
            said += self._values_there(condition.words)
        of_all = notes_of_rows(self.table.rows)
        notes = (said, *(note for note in self.table.notes if note not in of_all), *notes_of_rows(rows))
        return self.changed(lambda table: dataclasses.replace(table, rows=rows, notes=notes))

    def _values_there(self, words: Sequence[str]) -> str:
        """What the columns that a condition names hold, for somebody whom it left with nothing."""
        columns = dict.fromkeys(self.columns[word] for word in words if word in self.columns)
        told = [f"{name} is {said}" for name in columns if (said := _range_said(self.table, name))]
        return f" Here {'; '.join(told)}." if told else ""

    def showing(self, words: Sequence[str], option: str) -> "AskedTable":
        """Those columns alone, in that order, in every format. Raises `UsageError` for a word that means none."""
        columns = [self.column(word, option) for word in dict.fromkeys(words)]
        shown = tuple(columns)
        return self.changed(lambda table: dataclasses.replace(table, columns=columns, shown=shown, shows_empty=True))

    def changed(self, change: Callable[[Table], Table]) -> "AskedTable":
        """The same with the table as `change` makes it."""
        return dataclasses.replace(self, table=change(self.table))


def _range_said(table: Table, column: str) -> str:
    """The values of a column in a few words; empty where there is no row."""
    a_row_each = {hashable(row[column]): row for row in table.rows}
    ordered = sorted(a_row_each.values(), key=lambda row: rank(row[column]))
    said = [human_field(table, row, column) for row in ordered]
    if len(said) <= _MAX_SAID:
        return " or ".join(said)
    if is_number(table, column):
        known = [text for text, row in zip(said, ordered, strict=True) if row[column] is not None]
        return f"{known[0]} to {known[-1]}"
    return f"{', '.join(said[:_MAX_SAID])} or {pluralize(len(said) - _MAX_SAID, 'other')}"


def ask(sweep: SweepSummary | SweepContents, plan: SweepRecord | None, words: Sequence[str]) -> AskedTable:
    """The results table with a column for each of the `words` that is a setting: `model` means `model.name`."""
    if not words:
        return ask_table(result_rows(sweep, plan), words)
    settings = gather_cells(sweep.runs, sweep.damaged, plan).names()
    groups = [name.removesuffix(".name") for name in settings if name.endswith(".name")]
    return ask_table(result_rows(sweep, plan, asked=words), words, others=(*settings, *groups))


def ask_table(table: Table, words: Sequence[str], *, others: Sequence[str] = ()) -> AskedTable:
    """Any table, asked for its own columns; `others` are further names that it could have had."""
    meant = {
        word: column
        for word in words
        for column in (f"{word}.name", column_of(word), word)  # the last of them that there is
        if column in table.columns
    }
    return AskedTable(table, meant, list(dict.fromkeys([*table.columns, *others])))

"""`--pivot`: one setting down, one across, and in each field a metric's median over the finished runs."""

from collections import Counter, defaultdict
from collections.abc import Hashable, Sequence
from typing import Any

from runmanager.errors import UsageError
from runmanager.records.run.status import Status
from runmanager.results.compare.pairing import hashable
from runmanager.results.model.columns import MISSING, Row, Table
from runmanager.results.model.formatting import Median
from runmanager.results.tables.selection import AskedTable
from runmanager.results.tables.sorting import in_order
from runmanager.text import format_value

__all__ = ["parse_pivot", "pivot"]

_DEFAULT_METRIC = "epoch_seconds"
_OPTION = "--pivot"
_MAX_NAMED = 5


def parse_pivot(text: str) -> tuple[str, str, str | None]:
    """The words for the rows, the columns and the metric, if any, of `ROWS:COLUMNS[:METRIC]`. Raises `UsageError`."""
    words = [word.strip() for word in text.split(":")]
    if len(words) not in (2, 3) or not all(words):
        raise UsageError(
            f"`{_OPTION}` must be ROWS:COLUMNS or ROWS:COLUMNS:METRIC, got '{text}'; as in batch_size:device."
        )
    if words[0] == words[1]:
        raise UsageError(f"`{_OPTION}` must have two different settings, got '{text}'; as in batch_size:device.")
    return words[0], words[1], words[2] if len(words) == 3 else None


def pivot(asked: AskedTable, words: tuple[str, str, str | None]) -> Table:
    """The table with a row for each value of the first word, a column for each of the second.

    The metric is `epoch_seconds` unless it is named. Where a field stands for more than one run, people see how many
    beside it, and files have a column for the counts.
    Raises `UsageError` for a word that is no column, and for a metric that is no number or that the table lacks.
    """
    down, across = (asked.column(word, _OPTION) for word in words[:2])
    metric = _DEFAULT_METRIC if words[2] is None else asked.column(words[2], _OPTION)
    if metric not in asked.table.columns:  # of a table that is not of our runs
        there = ", ".join(asked.table.foreign[:_MAX_NAMED]) or ", ".join(asked.table.columns)
        raise UsageError(f"`{_OPTION}` must name its metric here, got '{':'.join(words[:2])}'; add one of: {there}.")
    fields: defaultdict[tuple[Hashable, Hashable], list[float]] = defaultdict(list)
    for row in asked.table.rows:
        value = row[metric]
        if value is None or row.values.get("status", Status.FINISHED) != Status.FINISHED:
            continue
        if isinstance(value, bool) or not isinstance(value, int | float):
            raise UsageError(f"`{_OPTION}` must have a metric of numbers, got '{metric}'; as in :val_accuracy.")
        fields[hashable(row[down]), hashable(row[across])].append(value)
    headings = _headings(across, _values(asked.table, across))
    rows = [_row(down, value, metric, headings, fields) for value in _values(asked.table, down)]
    has_counts = any(len(values) > 1 for values in fields.values())
    counts = [f"runs of {heading}" for heading in headings.values()] if has_counts else []
    return Table(
        columns=[down, *headings.values(), *counts],
        rows=rows,
        settings=(down,),
        shown=(down, *headings.values()),
        notes=asked.table.notes,
        legend=_legend(metric, has_counts),
        shows_empty=True,
    )


def _headings(across: str, values: Sequence[Any]) -> dict[Hashable, str]:
    """A heading for each value; those that look alike to people, as 1 and "1", are told apart."""
    texts = [format_value(value) for value in values]
    times = Counter(texts)
    said = [text if times[text] == 1 else repr(value) for text, value in zip(texts, values, strict=True)]
    return {hashable(value): f"{across}={each}" for value, each in zip(values, said, strict=True)}


def _values(table: Table, column: str) -> list[Any]:
    return in_order({hashable(row[column]): row[column] for row in table.rows}.values())


def _row(
    down: str,
    value: Any,
    metric: str,
    headings: dict[Hashable, str],
    fields: dict[tuple[Hashable, Hashable], list[float]],
) -> Row:
    fields_of_row: dict[str, Any] = {down: value}
    for at, heading in headings.items():
        values: Sequence[float] = fields.get((hashable(value), at), ())
        fields_of_row[heading] = Median.of(values, metric) if values else None
        fields_of_row[f"runs of {heading}"] = len(values)
    return Row(fields_of_row)


def _legend(metric: str, has_counts: bool) -> str:
    counts = "; n is how many where it is more than one" if has_counts else ""
    return f"{metric}: the median over finished runs{counts}. {MISSING}: no finished run has it."

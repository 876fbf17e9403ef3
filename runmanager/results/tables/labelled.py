"""The tags and notes of people as columns and notes of a results table."""

import dataclasses
from collections.abc import Sequence

from runmanager.records.storage.labels import Labels
from runmanager.results.table_model.columns import Row, Table

__all__ = ["NOTE", "TAGS", "join_tags", "label_notes", "labelled"]

TAGS, NOTE = "tags", "note"
_PREFIX = "labels."  # of a column whose name another one has, such as a setting `tags`


def join_tags(labels: Labels) -> str | None:
    """Return the tags as one text; None where there are none."""
    return ", ".join(labels.tags) or None


def labelled(table: Table, labels: Sequence[Labels]) -> Table:
    """The table with the labels of each of its rows, in columns after all others; only for labels that a row has."""
    values = {TAGS: [join_tags(each) for each in labels], NOTE: [each.note or None for each in labels]}
    names = {kind: _free_name(kind, table.columns) for kind, texts in values.items() if any(texts)}
    rows = list(table.rows)
    for kind, name in names.items():
        rows = [
            Row({**row.values, name: text}, row.absent_settings, row.is_continued)
            for row, text in zip(rows, values[kind], strict=True)
        ]
    columns = tuple(names.values())
    return dataclasses.replace(
        table, columns=[*table.columns, *columns], rows=rows, labels=columns, shown=(*table.shown, *columns)
    )


def _free_name(name: str, columns: Sequence[str]) -> str:
    while name in columns:
        name = f"{_PREFIX}{name}"
    return name


def label_notes(labels: Labels) -> list[str]:
    """The labels of a whole sweep as notes on its table."""
    tags = [f"Tags of the sweep: {', '.join(labels.tags)}."] if labels.tags else []
    return [*tags, *([f"Note on the sweep: {labels.note}"] if labels.note else [])]

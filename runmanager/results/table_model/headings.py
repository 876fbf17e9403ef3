"""Names of columns in words, for the pages that people read."""

import re

from runmanager.records.run.measurement import MEASUREMENTS
from runmanager.records.run.status import Reason
from runmanager.results.table_model.columns import Table, setting_name

__all__ = ["heading", "in_figures", "in_words", "metric_in_words"]

_WORDS = {each.name: each.label for each in MEASUREMENTS if each.label}
_IN_HEADINGS = _WORDS | {
    **{each.name: each.heading for each in MEASUREMENTS if each.heading},
    "ci_low": "95% interval from",
    "ci_high": "95% interval to",
    "baseline_samples_per_second": "baseline: samples per second",
    "candidate_samples_per_second": "candidate: samples per second",
    "flop_per_step": "FLOP per step",
    "flop_per_second": "FLOP per second",
    "flop_share": "FLOP, share of the best",
    "bytes_per_second": "bytes per second",
    "bytes_share": "bytes, share of the best",
    "operations_per_step": "operations per step",
    "operations_per_second": "operations per second",
    "operations_share": "operations, share of the best",
}
_BYTES = "_bytes"  # of columns whose values are printed with their unit
_IN_SENTENCES = _WORDS | {reason: reason.replace("_", " ") for reason in Reason if "_" in reason}
_IN_SENTENCE = re.compile(rf"\b({'|'.join(_IN_SENTENCES)})\b")


def heading(column: str, table: Table) -> str:
    """Return the heading of a table's column: words for what was measured.

    Settings have the name that a command takes, and what other programs measured or logged the name that they gave.
    """
    if column in table.settings:
        return setting_name(column)
    if column in table.logged or column in table.foreign:
        return column
    return _IN_HEADINGS.get(column) or column.removesuffix(_BYTES).replace("_", " ")


def in_figures(column: str, table: Table) -> str:
    """Return the name of a column for figures, whose numbers are without the units that tables print."""
    text = heading(column, table)
    return f"{text}, bytes" if column.endswith(_BYTES) and text != column else text


def metric_in_words(name: str) -> str:
    """Return the words for a metric that this program measures; that of another has the name that it gave."""
    return _WORDS.get(name, name)


def in_words(text: str) -> str:
    """Return a sentence with words in place of reasons and the names of columns.

    Code between backticks is kept, unless it is the name of a column.
    """
    parts = re.split(r"(`+[^`]*`+)", text)
    return "".join(
        _IN_HEADINGS.get(part.strip("`"), part)
        if part.startswith("`")
        else _IN_SENTENCE.sub(lambda name: _IN_SENTENCES[name[0]], part)
        for part in parts
    )

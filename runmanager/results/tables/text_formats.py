"""Tables as text: CSV and JSON with all columns in full precision, Markdown and LaTeX with rounded main columns."""

import csv
import io
import json
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import msgspec

from runmanager.results.table_model.columns import Row, Table
from runmanager.results.table_model.formatting import human_columns, human_field, is_number

__all__ = ["csv_fields", "escape_markdown", "iter_json", "to_csv", "to_json", "to_latex", "to_markdown"]

_JSON_TYPES = (list, dict)
_FORMULA = re.compile(r"[=+\-@\t\r](?!(?:[\d.]+(?:[eE][+-]?\d+)?|inf|nan)\Z)")  # not of a number, such as -0.5
_LATEX_ESCAPES: Mapping[str, str] = {
    "\\": r"\textbackslash{}",
    "~": r"\textasciitilde{}",
    "^": r"\textasciicircum{}",
    "<": r"\textless{}",
    ">": r"\textgreater{}",
    "|": r"\textbar{}",
    "±": r"$\pm$",
    **{mark: f"\\{mark}" for mark in "&%$#_{}"},
}


def to_csv(table: Table) -> str:
    """All columns as CSV: floats in full precision, `True` and `False`, lists as JSON, missing values empty.

    A text that a spreadsheet would take for a formula, as it begins with `=`, `+`, `-` or `@`, begins with `'`.
    """
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow([_without_formula(name) for name in table.columns])
    writer.writerows(csv_fields(row, table.columns) for row in table.rows)
    return text.getvalue()


def csv_fields(row: Row, columns: Sequence[str]) -> list[Any]:
    """A row's values for the csv module."""
    # It writes floats by repr, which reads back as the same number, and None as an empty field.
    values = row.values
    return [_csv_field(values[name]) for name in columns]


def _csv_field(value: Any) -> Any:
    if isinstance(value, str):
        return _without_formula(value)
    return json.dumps(value) if isinstance(value, _JSON_TYPES) else value


def _without_formula(text: str) -> str:
    return f"'{text}" if _FORMULA.match(text) else text


def to_json(table: Table) -> str:
    """A JSON list with one object per row, all columns in order; missing values and NaN are null."""
    return "".join(iter_json(table))


def iter_json(table: Table) -> Iterator[str]:
    """The text of `to_json` in pieces, row by row, which saves memory."""
    separator = "[\n  "
    for row in table.rows:
        values = row.values
        encoded = msgspec.json.encode({column: values[column] for column in table.columns}, enc_hook=_as_number)
        # Strings in JSON contain no line breaks.
        yield separator + msgspec.json.format(encoded, indent=2).decode().replace("\n", "\n  ")
        separator = ",\n  "
    yield "\n]\n" if table.rows else "[]\n"


def _as_number(value: Any) -> float:
    """A subclass of float, such as a median, as a plain float; tables have no other types unknown to JSON."""
    assert isinstance(value, float)
    return float(value)


def to_markdown(table: Table) -> str:
    """The main columns, rounded, as a Markdown table with legend and notes below."""
    columns = human_columns(table)
    lines = [
        _markdown_line([escape_markdown(name) for name in columns]),
        _markdown_line(["---:" if is_number(table, name) else "---" for name in columns]),
    ]
    lines += [
        _markdown_line([escape_markdown(human_field(table, row, name)) for name in columns]) for row in table.rows
    ]
    return "\n".join([*lines, "", *(f"{escape_markdown(note)}\n" for note in (table.legend, *table.notes))])


def _markdown_line(fields: Sequence[str]) -> str:
    return f"| {' | '.join(fields)} |"


def escape_markdown(text: str) -> str:
    """Escape a line of text for Markdown, in a table or outside; code in backticks stays code."""
    line = " ".join(text.replace("\\", "\\\\").replace("|", "\\|").replace("<", "&lt;").split())
    return "".join(part if part.startswith("`") else _EMPHASIS.sub(r"\\\g<0>", part) for part in _CODE.split(line))


_CODE = re.compile("(`[^`]*`)")
_EMPHASIS = re.compile(r"\*|(?<!\w)_|_(?!\w)")  # an underscore within a word is literal


def to_latex(table: Table) -> str:
    r"""The main columns, rounded, as a booktabs tabular with legend and notes as comments.

    The document needs `\usepackage{booktabs}`.
    """
    columns = human_columns(table)
    layout = "".join("r" if is_number(table, name) else "l" for name in columns)
    comments = [f"% {' '.join(line.split())}" for line in (table.legend, *table.notes) if line]
    rows = [_latex_line([human_field(table, row, name) for name in columns]) for row in table.rows]
    lines = [
        *comments,
        f"\\begin{{tabular}}{{{layout}}}",
        r"\toprule",
        _latex_line([name.replace("_", " ") for name in columns]),
        r"\midrule",
        *rows,
        r"\bottomrule",
        r"\end{tabular}",
    ]
    return "\n".join([*lines, ""])


def _latex_line(fields: Sequence[str]) -> str:
    return (
        " & ".join("".join(_LATEX_ESCAPES.get(mark, mark) for mark in " ".join(field.split())) for field in fields)
        + r" \\"
    )

"""Tables as text: CSV and JSON whole and exact for programs, Markdown rounded for people."""

import csv
import io
import json
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import msgspec

from runmanager.results.model.columns import Table
from runmanager.results.model.formatting import human_columns, human_field, is_number

__all__ = ["csv_fields", "escape_markdown", "iter_json", "to_csv", "to_json", "to_latex", "to_markdown"]

_NESTED = (list, dict)
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
    """Every column: floats in full precision, `True` and `False`, lists as JSON, a missing value as an empty field."""
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(table.columns)
    writer.writerows(csv_fields(row, table.columns) for row in table.rows)
    return text.getvalue()


def csv_fields(row: Mapping[str, Any], columns: Sequence[str]) -> list[Any]:
    """A row's values as the csv module is to write them."""
    # The csv module writes floats by repr, which reads back as the same number, and None as an empty field.
    return [json.dumps(value) if isinstance(value := row[name], _NESTED) else value for name in columns]


def to_json(table: Table) -> str:
    """A list with one object a row, every column in order; a missing value (or one that is no number) is null."""
    return "".join(iter_json(table))


def iter_json(table: Table) -> Iterator[str]:
    """The same row by row: all of them at once would be in memory several times over."""
    between = "[\n  "
    for row in table.rows:
        encoded = msgspec.json.encode({column: row[column] for column in table.columns}, enc_hook=_as_number)
        # No text in JSON holds a line break.
        yield between + msgspec.json.format(encoded, indent=2).decode().replace("\n", "\n  ")
        between = ",\n  "
    yield "\n]\n" if table.rows else "[]\n"


def _as_number(value: Any) -> float:
    """A median over runs as the number that it is; whatever else JSON has no word for is a mistake of ours."""
    assert isinstance(value, float)
    return float(value)


def to_markdown(table: Table) -> str:
    """The columns for people, rounded, as a Markdown table with its legend and notes below."""
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
    """A line of text that Markdown shows as it is, in a table or outside; but `code` stays that."""
    line = " ".join(text.replace("\\", "\\\\").replace("|", "\\|").replace("<", "&lt;").split())
    return "".join(part if part.startswith("`") else _EMPHASIS.sub(r"\\\g<0>", part) for part in _CODE.split(line))


_CODE = re.compile("(`[^`]*`)")
_EMPHASIS = re.compile(r"\*|(?<!\w)_|_(?!\w)")  # an underscore within a word is no more than itself


def to_latex(table: Table) -> str:
    r"""The shown columns, rounded, as a booktabs tabular with legend and notes as comments.

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

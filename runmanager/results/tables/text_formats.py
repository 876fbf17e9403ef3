"""Tables as text: CSV and JSON with all columns in full precision, Markdown and LaTeX with rounded main columns."""

import csv
import json
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from types import SimpleNamespace
from typing import Any

import msgspec

from runmanager.results.table_model.columns import Row, Table
from runmanager.results.table_model.formatting import human_columns, human_field, is_number
from runmanager.text import CODE_SPAN, printable

_JSON_TYPES = (list, dict)
_FORMULA = re.compile(r"[=+\-@\t\r](?!(?:[\d.]+(?:[eE][+-]?\d+)?|inf|nan)\Z)")  # not of a number, such as -0.5
_LATEX_ESCAPES: Mapping[str, str] = {
    "\\": r"\textbackslash{}",
    "~": r"\textasciitilde{}",
    "^": r"\textasciicircum{}",
    "<": r"\textless{}",
    ">": r"\textgreater{}",
    "|": r"\textbar{}",
    "`": r"\textasciigrave{}",
    "'": r"\textquotesingle{}",
    "±": r"$\pm$",
    **{mark: f"\\{mark}" for mark in "&%$#_{}"},
}


def to_csv(table: Table) -> str:
    """All columns as CSV: floats in full precision, `True` and `False`, lists as JSON, missing values empty."""
    return csv_text([table.columns, *(csv_fields(row, table.columns) for row in table.rows)])


def csv_text(rows: Iterable[Sequence[Any]]) -> str:
    """Rows as CSV, each text exactly as it is, but for `'` before one that a spreadsheet would take for a formula.

    Such a text begins with `=`, `+`, `-`, `@`, a tab or a carriage return, and is not a number.
    """
    lines: list[str] = []
    # The csv module quotes the characters of the end of a line, of which a reader takes both for one.
    writer = csv.writer(SimpleNamespace(write=lambda line: lines.append(f"{line[:-2]}\n")), lineterminator="\r\n")
    writer.writerows([_without_formula(each) for each in row] for row in rows)
    return "".join(lines)


def _without_formula(value: Any) -> Any:
    return f"'{value}" if isinstance(value, str) and _FORMULA.match(value) else value


def csv_fields(row: Row, columns: Sequence[str]) -> list[Any]:
    """A row's values for the csv module."""
    # It writes floats by repr, which reads back as the same number, and None as an empty field.
    values = row.values
    return [json.dumps(value) if isinstance(value := values[name], _JSON_TYPES) else value for name in columns]


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
        _markdown_line([escape_markdown(name, in_table=True) for name in columns]),
        _markdown_line(["---:" if is_number(table, name) else "---" for name in columns]),
    ]
    lines += [
        _markdown_line([escape_markdown(human_field(table, row, name), in_table=True) for name in columns])
        for row in table.rows
    ]
    return "\n".join([*lines, "", *(f"{escape_markdown(note)}\n" for note in (table.legend, *table.notes))])


def _markdown_line(fields: Sequence[str]) -> str:
    return f"| {' | '.join(fields)} |"


def escape_markdown(text: str, *, in_table: bool = False) -> str:
    """Return a line of text as Markdown that shows it as it is; code in backticks stays code."""
    line = _in_one_line(text)
    if in_table:
        return outside_code(line, _escape_markdown_text, code=_escape_markdown_code)
    return _BLOCK.sub(r"\1\\\2", outside_code(line, _escape_markdown_text))


def outside_code(line: str, change: Callable[[str], str], *, code: Callable[[str], str] = str) -> str:
    """Change the parts of Markdown that are not code in backticks, and those that are by `code`."""
    parts, end = list[str](), 0
    for found in CODE_SPAN.finditer(line):
        parts += [change(line[end : found.start()]), code(found[0])]
        end = found.end()
    return "".join([*parts, change(line[end:])])


def _in_one_line(text: str) -> str:
    return " ".join(printable(text).split())


def _escape_markdown_text(text: str) -> str:
    return _ENTITY.sub("&amp;", _INLINE.sub(r"\\\g<0>", text)).replace("<", "&lt;")


def _escape_markdown_code(span: str) -> str:
    """Code in a table, where a bar ends a field even in backticks, and readers disagree on backslashes before it."""
    return _escape_markdown_text(span) if "\\|" in span else span.replace("|", "\\|")


# A heading, quotation, list, rule, or the address of a link.
_BLOCK = re.compile(r"^(\d*)((?<=\d)[.)](?= |$)|[#>+=-](?= |$)|#+(?= |$)|---|===|\[)")
# Emphasis, where an underscore within a word is literal; code, tables, formulas, links and images.
_INLINE = re.compile(r"[\\`*|~$]|(?<![^\W_])_|_(?![^\W_])|(?<=\])[(\[]")
_ENTITY = re.compile(r"&(?=#?\w+;)")


def to_latex(table: Table) -> str:
    r"""The main columns, rounded, as a booktabs tabular with legend and notes as comments.

    The document needs `\usepackage{booktabs}`.
    """
    columns = human_columns(table)
    layout = "".join("r" if is_number(table, name) else "l" for name in columns)
    comments = [f"% {_in_one_line(line)}" for line in (table.legend, *table.notes) if line]
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


def escape_latex(text: str) -> str:
    """Return a line of text as LaTeX that sets it as it is."""
    escaped = "".join(_LATEX_ESCAPES.get(mark, mark) for mark in _in_one_line(text))
    return _LIGATURE.sub("{}", escaped)


_LIGATURE = re.compile("(?<=-)(?=-)|(?<=,)(?=,)")  # two or three of them would be another one


def _latex_line(fields: Sequence[str]) -> str:
    line = " & ".join(map(escape_latex, fields))
    # To the end of the row before, a star or a bracket would be an argument.
    return ("{}" if line.startswith(("*", "[")) else "") + line + r" \\"

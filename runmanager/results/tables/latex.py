"""A table as LaTeX: a booktabs tabular of what people are shown, every special character escaped."""

from collections.abc import Mapping, Sequence

from runmanager.results.model.columns import Table
from runmanager.results.model.formatting import human_columns, human_field, is_number

__all__ = ["to_latex"]

_ESCAPES: Mapping[str, str] = {
    "\\": r"\textbackslash{}",
    "~": r"\textasciitilde{}",
    "^": r"\textasciicircum{}",
    "<": r"\textless{}",
    ">": r"\textgreater{}",
    "|": r"\textbar{}",
    "±": r"$\pm$",
    **{mark: f"\\{mark}" for mark in "&%$#_{}"},
}


def to_latex(table: Table) -> str:
    r"""The columns for people, rounded; legend and notes are comments. The document needs `\usepackage{booktabs}`."""
    columns = human_columns(table)
    layout = "".join("r" if is_number(table, name) else "l" for name in columns)
    said = [f"% {' '.join(line.split())}" for line in (table.legend, *table.notes) if line]
    rows = [_line([human_field(table, row, name) for name in columns]) for row in table.rows]
    lines = [
        *said,
        f"\\begin{{tabular}}{{{layout}}}",
        r"\toprule",
        _line([name.replace("_", " ") for name in columns]),
        r"\midrule",
        *rows,
        r"\bottomrule",
        r"\end{tabular}",
    ]
    return "\n".join([*lines, ""])


def _line(fields: Sequence[str]) -> str:
    return (
        " & ".join("".join(_ESCAPES.get(mark, mark) for mark in " ".join(field.split())) for field in fields) + r" \\"
    )

"""Rows of benchmark tables: both sides, their ratio, and whether it meets the budget."""

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from statistics import median

from benchmarks.interleaving import Ratio, ratio_of

__all__ = ["HEADING", "Budget", "Row", "format_seconds", "measurement_row", "ratio_row", "table_line"]

HEADING = ("what", "ours", "other", "ratio (95% interval)", "rounds", "budget", "met")
SHORT_HEADING = (*HEADING[:4], "budget")
"""Of tables on the page."""
_EMPTY = "-"
_SIGNS = {"at least": "≥", "at most": "≤"}
"""Of budgets on the page."""
_WORDS = {sign: word for word, sign in _SIGNS.items()}


@dataclass(frozen=True)
class Budget:
    """Upper limit of a value, or lower limit with `is_minimum`; `format` formats a value with its unit."""

    limit: float
    is_minimum: bool = False
    format: Callable[[float], str] = "{:g}".format

    def __str__(self) -> str:
        return f"at {'least' if self.is_minimum else 'most'} {self.format(self.limit)}"

    def verdict(self, value: float, low: float, high: float) -> str:
        """Return `yes` or `no`, followed by `, within the noise` if the limit lies inside the interval."""
        is_met = value >= self.limit if self.is_minimum else value <= self.limit
        is_uncertain = low < self.limit < high
        return ("yes" if is_met else "no") + (", within the noise" if is_uncertain else "")


@dataclass(frozen=True)
class Row:
    """A table row of formatted fields; `-` marks an empty field."""

    what: str
    ours: str
    other: str = _EMPTY
    ratio: str = _EMPTY
    rounds: str = "1"
    budget: str = _EMPTY
    met: str = _EMPTY

    @property
    def fields(self) -> tuple[str, ...]:
        return (self.what, self.ours, self.other, self.ratio, self.rounds, self.budget, self.met)


def table_line(fields: Sequence[str]) -> str:
    """Format a row of a Markdown table."""
    return f"| {' | '.join(fields)} |"


def heading_lines(heading: Sequence[str]) -> list[str]:
    """Format the heading of a Markdown table and the rule below it."""
    return [table_line(heading), table_line(["---"] * len(heading))]


def in_brackets(text: str) -> str:
    """Return a value with its range as on the page: `2 [1, 3]` for `2 (1 to 3)`."""
    return re.sub(r"\(([^()]+) to ([^()]+)\)", r"[\1, \2]", text)


def _in_words(text: str) -> str:
    return re.sub(r"\[([^][]+), ([^][]+)\]", r"(\1 to \2)", text)


def verdict_beside(row: Row) -> str:
    """Return the budget of a row with its verdict, as on the page."""
    return _EMPTY if row.budget == _EMPTY else f"{_replaced(row.budget, _SIGNS)}: {row.met}"


def _replaced(text: str, words: Mapping[str, str]) -> str:
    for word, other in words.items():
        text = text.replace(word, other)
    return text


def parse_rows(text: str) -> list[Row]:
    """Return the rows of the first benchmark table in a text: a printed one, or one of the page.

    A column that the table lacks has the default of its field.
    """
    lines = [line[2:-2].split(" | ") for line in text.splitlines() if line.startswith("| ")]
    start = next((at for at, fields in enumerate(lines) if tuple(fields[:2]) == HEADING[:2]), None)
    if start is None:
        return []
    names = [each.partition(" ")[0] for each in lines[start]]  # the names of a row's fields
    rows = [dict(zip(names, fields, strict=True)) for fields in lines[start + 1 :] if fields[0] != "---"]
    for fields in rows:
        budget, beside, met = _replaced(fields.get("budget", _EMPTY), _WORDS).partition(": ")
        fields |= {"budget": budget, "met": met} if beside else {}
        fields |= {name: _in_words(fields[name]) for name in ("ours", "other", "ratio") if name in fields}
    return [Row(**fields) for fields in rows]


def format_megabytes(count: float) -> str:
    """Format a number of bytes in megabytes, with two decimals below 10 MB."""
    return f"{count / 1e6:.{2 if count < 10e6 else 0}f} MB"


def format_seconds(value: float) -> str:
    """Format seconds, in milliseconds below 0.1 s."""
    return f"{value * 1e3:.3g} ms" if value < 0.1 else f"{value:.3g} s"


def ratio_row(
    what: str, *, ours: Sequence[float], other: Sequence[float], budget: Budget | None = None, inverse: bool = False
) -> tuple[Row, Ratio]:
    """Return the row and ratio of two interleaved sides in seconds: ours / other, or with `inverse` other / ours."""
    ratio = ratio_of(other, ours) if inverse else ratio_of(ours, other)
    row = Row(
        what,
        format_seconds(median(ours)),
        format_seconds(median(other)),
        str(ratio),
        str(ratio.rounds),
        _EMPTY if budget is None else str(budget),
        _EMPTY if budget is None else budget.verdict(ratio.value, ratio.low, ratio.high),
    )
    return row, ratio


def measurement_row(what: str, values: Sequence[float], *, budget: Budget | None = None) -> Row:
    """Return the row of one repeated measurement: median, and minimum and maximum if there is more than one value."""
    format_value = format_seconds if budget is None else budget.format
    middle = median(values)
    extremes = f" ({format_value(min(values))} to {format_value(max(values))})" if len(values) > 1 else ""
    return Row(
        what,
        f"{format_value(middle)}{extremes}",
        rounds=str(len(values)),
        budget=_EMPTY if budget is None else str(budget),
        met=_EMPTY if budget is None else budget.verdict(middle, min(values), max(values)),
    )

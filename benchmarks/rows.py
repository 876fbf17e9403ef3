"""What a benchmark found, as a row of its table: both sides, their ratio, and whether it is within the budget."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from statistics import median

from benchmarks.interleaving import Ratio, ratio_of

__all__ = ["HEADING", "Budget", "Row", "as_line", "as_seconds", "compared", "measured"]

HEADING = ("what", "ours", "other", "ratio (95% interval)", "rounds", "budget", "met")
_NOTHING = "-"


@dataclass(frozen=True)
class Budget:
    """What a value may be at most, or with `is_least` must be at least; `words` shows a limit with its unit."""

    limit: float
    is_least: bool = False
    words: Callable[[float], str] = "{:g}".format

    def __str__(self) -> str:
        return f"at {'least' if self.is_least else 'most'} {self.words(self.limit)}"

    def verdict(self, value: float, low: float, high: float) -> str:
        """`yes`, `no`, or what the interval leaves open."""
        is_met = value >= self.limit if self.is_least else value <= self.limit
        is_open = low < self.limit < high
        return ("yes" if is_met else "no") + (", within the noise" if is_open else "")


@dataclass(frozen=True)
class Row:
    """A row of the table, each field as it is to be shown; `-` where there is nothing to say."""

    what: str
    ours: str
    other: str = _NOTHING
    ratio: str = _NOTHING
    rounds: str = "1"
    budget: str = _NOTHING
    met: str = _NOTHING

    @property
    def fields(self) -> tuple[str, ...]:
        return (self.what, self.ours, self.other, self.ratio, self.rounds, self.budget, self.met)


def as_line(fields: Sequence[str]) -> str:
    """A row of a Markdown table."""
    return f"| {' | '.join(fields)} |"


def as_seconds(value: float) -> str:
    """Seconds for people."""
    return f"{value * 1e3:.3g} ms" if value < 0.1 else f"{value:.3g} s"


def compared(
    what: str, *, ours: Sequence[float], other: Sequence[float], budget: Budget | None = None, inverse: bool = False
) -> tuple[Row, Ratio]:
    """The row of two sides measured in turns, in seconds: ours / other, or with `inverse` other / ours."""
    ratio = ratio_of(other, ours) if inverse else ratio_of(ours, other)
    row = Row(
        what,
        as_seconds(median(ours)),
        as_seconds(median(other)),
        str(ratio),
        str(ratio.rounds),
        _NOTHING if budget is None else str(budget),
        _NOTHING if budget is None else budget.verdict(ratio.value, ratio.low, ratio.high),
    )
    return row, ratio


def measured(what: str, values: Sequence[float], *, budget: Budget | None = None) -> Row:
    """The row of one thing measured several times: its median, and how far the values reach."""
    words = as_seconds if budget is None else budget.words
    middle = median(values)
    return Row(
        what,
        f"{words(middle)} ({words(min(values))} to {words(max(values))})",
        rounds=str(len(values)),
        budget=_NOTHING if budget is None else str(budget),
        met=_NOTHING if budget is None else budget.verdict(middle, min(values), max(values)),
    )

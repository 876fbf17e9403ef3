"""Values as people read them: rounded, with units, a spread over seeds or a median over runs."""

import math
from collections.abc import Sequence
from typing import Any

from runmanager.results.model.columns import EFFECTS, MISSING, PHASE_COLUMNS, Row, Table
from runmanager.results.stats.descriptive import mean, median
from runmanager.text import format_value, printable

__all__ = [
    "Median",
    "Spread",
    "human",
    "human_columns",
    "human_field",
    "is_number",
    "number",
    "with_unit_prefix",
]

_ACCURACIES = ("accuracy", "val_accuracy")
_BYTES = "_bytes"
_SHARE = "_share"
_RATES = ("flop_per_step", "flop_per_second", "bytes_per_second", "operations_per_second")


class Spread(float):
    """The mean of a figure over seeds, with its standard deviation (n - 1 in the denominator) over `count` runs."""

    deviation: float
    count: int

    @classmethod
    def of(cls, values: Sequence[float], *, around: float | None = None) -> "Spread":
        """Of at least one value; that of one value has no deviation (NaN). `around` is what stands for their mean."""
        middle = mean(values)
        spread = cls(middle if around is None else around)
        spread.count = len(values)
        distance = math.dist(values, [middle] * len(values))  # squares of its own would overflow for a huge loss
        spread.deviation = distance / math.sqrt(len(values) - 1) if len(values) > 1 else math.nan
        return spread


def human_columns(table: Table) -> list[str]:
    """The columns that people are shown: those that matter, without any that is empty in every row.

    `contended` says something only where a run was.
    """
    if table.shows_empty:
        return list(table.shown)
    shown = [name for name in table.shown if any(row[name] is not None for row in table.rows)]
    return [name for name in shown if name != "contended" or any(row[name] for row in table.rows)] or list(table.shown)


def human(value: Any, column: str = "") -> str:
    """A value for people: four significant digits, accuracies with four decimals, bytes as MiB; never a row of digits.

    None is what was not measured; a setting without a value is `format_value`.
    """
    if value is None:
        return "" if column == "reason" else MISSING  # no reason is no lack
    if isinstance(value, bool):
        return format_value(value)
    if isinstance(value, Spread):
        return _spread(value, column)
    if isinstance(value, Median):
        return _median(value)
    if column.endswith(_BYTES):
        return f"{_decimals(value / 2**20, 1)} MiB"
    if column in _RATES:
        return with_unit_prefix(value).strip()
    if column.endswith(_SHARE):
        return f"{value * 100:.3g}%" if value < 1 else f"{value:,.0%}"
    if isinstance(value, float) and column in _ACCURACIES:
        return _decimals(value, 4)
    if isinstance(value, float) and (column in _MEASURED or column.startswith("time_to_accuracy")):
        return _four_digits(value)
    return printable(format_value(value))


class Median(float):
    """A metric's median over `count` runs."""

    metric: str
    count: int

    @classmethod
    def of(cls, values: Sequence[float], metric: str) -> "Median":
        """Of at least one value."""
        middle = median(values)
        assert middle is not None
        made = cls(middle)
        made.metric, made.count = metric, len(values)
        return made


def _median(value: Median) -> str:
    plain = int(value) if value.is_integer() and value.metric not in _MEASURED else float(value)
    return human(plain, value.metric) + (f" (n={value.count})" if value.count > 1 else "")


def human_field(table: Table, row: Row, column: str) -> str:
    """What stands in a row of a table, for people; of a foreign column nothing is known but that it was measured.

    Nothing of a setting that the row does not have, which is no `null`.
    """
    value = row[column]
    if column in table.foreign and isinstance(value, float):
        return _four_digits(value)
    if value is None and column in table.settings:
        return "" if column in row.absent_settings else format_value(None)
    return human(value, column)


def with_unit_prefix(value: float) -> str:
    """Three digits and the prefix of a unit that is to follow: `12.3 G`."""
    for prefix, factor in (("T", 1e12), ("G", 1e9), ("M", 1e6), ("k", 1e3)):
        if value >= factor:
            return f"{value / factor:.3g} {prefix}"
    return f"{value:.3g} "


def _spread(value: Spread, column: str) -> str:
    """`0.9571 ± 0.0012`: both to the same last digit; one value as it is."""
    mean = human(float(value), column)
    if column == "epochs":
        return f"{value:.4g}" + (f" ± {value.deviation:.2g}" if value.deviation > 0 else "")
    if value.count == 1:
        return mean
    if column.endswith(_BYTES) or column in _ACCURACIES:
        return f"{mean} ± {human(value.deviation, column)}"
    decimals = len(mean.partition("e")[0].partition(".")[2])
    return f"{mean} ± {_decimals(value.deviation, decimals)}"


# Settings are shown as they were asked for; only what was measured is rounded.
_MEASURED = frozenset(
    {"loss", "val_loss", "epoch_seconds", "epoch_seconds_iqr", "wall_seconds", "run_seconds", "samples_per_second"}
    | {"overall_samples_per_second"}
    | {*PHASE_COLUMNS, *EFFECTS, "ci_low", "ci_high", "baseline_samples_per_second", "candidate_samples_per_second"}
    | {"baseline_value", "candidate_value"}
)


_UNREADABLE = 1e12  # from here on nobody counts the digits, as of a loss that is about to be infinite


def _decimals(value: float, decimals: int) -> str:
    return f"{value:,.{decimals}f}" if abs(value) < _UNREADABLE else f"{value:.4g}"


def _four_digits(value: float) -> str:
    if not math.isfinite(value):
        return str(value)
    if abs(value) >= _UNREADABLE:
        return f"{value:.4g}"
    if abs(value) >= 1000:
        return f"{float(f'{value:.4g}'):,.0f}"
    return f"{value:#.4g}".rstrip(".") if abs(value) >= 1e-3 else f"{value:.4g}"


def is_number(table: Table, column: str) -> bool:
    """Whether a column holds numbers, to be set flush right."""
    values = [row[column] for row in table.rows if row[column] is not None]
    return bool(values) and all(isinstance(value, int | float) and not isinstance(value, bool) for value in values)


def number(value: float) -> str:
    """Three digits, for a description."""
    rounded = float(f"{value:.3g}")
    return f"{rounded:,.0f}" if 100 <= abs(rounded) < _UNREADABLE else f"{rounded:g}"

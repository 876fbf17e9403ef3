"""Values formatted for people: rounded, with units, with the spread over seeds; names in words; titled sections."""

import math
import re
import sys
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from runmanager.records.run.measurement import MEASUREMENTS, Unit, named
from runmanager.records.run.status import Reason
from runmanager.results.stats.descriptive import mean, median
from runmanager.results.table_model.columns import EFFECTS, MISSING, Row, Table, setting_name
from runmanager.text import padded, printable, printable_line, printable_value, text_width

_ACCURACIES = named(each for each in MEASUREMENTS if each.unit is Unit.FRACTION)
_BYTES = "_bytes"
_SHARE = "_share"
_LATENCY = re.compile(r"latency_\w+_seconds")
_LARGEST = sys.float_info.max  # a whole number may be larger
_RATES = ("flop_per_step", "flop_per_second", "bytes_per_second", "operations_per_second")


class Spread(float):
    """The mean of a value over seeds, with its standard deviation (n - 1 in the denominator) over `count` runs.

    `is_partial`: other finished runs of the cell lack the value.
    """

    deviation: float
    count: int
    is_partial: bool

    @classmethod
    def of(cls, values: Sequence[float], *, around: float | None = None, is_partial: bool = False) -> "Spread":
        """Summarize at least one value; a single one has the deviation NaN. `around` replaces their mean."""
        middle = mean(values)
        spread = cls(middle if around is None else around)
        spread.count, spread.is_partial = len(values), is_partial
        distance = math.dist(values, [middle] * len(values))  # squaring by hand would overflow for a huge loss
        spread.deviation = distance / math.sqrt(len(values) - 1) if len(values) > 1 else math.nan
        return spread


def human_columns(table: Table) -> list[str]:
    """Return the columns for people, without those that are empty in every row.

    `contended` is left out unless a run was, and `epochs` unless a run has any, as a script that prints has none, and
    unless a run made other ones than its setting of that name asks for.
    """
    if table.shows_empty:
        return list(table.shown)
    shown = [name for name in table.shown if any(row[name] is not None for row in table.rows)]
    has_both = "epochs" in shown and "settings.epochs" in shown
    if has_both and all(row["epochs"] == row["settings.epochs"] for row in table.rows):
        shown = [name for name in shown if name != "epochs"]
    told = [name for name in shown if name not in ("contended", "epochs") or any(row[name] for row in table.rows)]
    return told or list(table.shown)


def human(value: Any, column: str = "") -> str:
    """Format a value for people: four significant digits, accuracies with four decimals, bytes as MiB.

    None is a value that was not measured; for settings use `format_value`.
    """
    if value is None:
        return "" if column == "reason" else MISSING  # a missing reason is not a missing measurement
    if isinstance(value, bool) or not isinstance(value, int | float) or abs(value) > _LARGEST:
        return printable_value(value)
    if isinstance(value, Spread):
        return _spread(value, column)
    if isinstance(value, Median):
        return _median(value)
    if column.endswith(_BYTES):
        return f"{_decimals(value / 2**20, 1)} MiB"
    if _LATENCY.fullmatch(column):
        factor, unit = (1.0, "s") if value >= 1 else (1e3, "ms") if value >= 1e-3 else (1e6, "µs")
        return f"{_four_digits(factor * float(value))} {unit}"
    if column in _RATES:
        return with_unit_prefix(value).strip()
    if column.endswith(_SHARE):
        return f"{value * 100:.3g}%" if value < 1 else f"{value:,.0%}"
    if isinstance(value, float) and column in _ACCURACIES:
        return _decimals(value, 4)
    if isinstance(value, float) and (column in _MEASURED or column.startswith("time_to_accuracy")):
        return _four_digits(value)
    return printable_value(value)


class Median(float):
    """The median of a metric over `count` runs."""

    metric: str
    count: int

    @classmethod
    def of(cls, values: Sequence[float], metric: str) -> "Median":
        """Make it from at least one value."""
        middle = median(values)
        assert middle is not None
        made = cls(middle)
        made.metric, made.count = metric, len(values)
        return made


def _median(value: Median) -> str:
    plain = int(value) if value.is_integer() and value.metric not in _MEASURED else float(value)
    return _with_count(human(plain, value.metric), value)


def _with_count(text: str, value: Median) -> str:
    return text + (f" (n={value.count})" if value.count > 1 else "")


def human_field(table: Table, row: Row, column: str) -> str:
    """Format a field of a table for people; numbers of foreign and logged columns are rounded like measurements.

    A setting that the row's cell does not have is empty; one that is set to null is `null`.
    """
    value = row[column]
    if column in table.settings and not isinstance(value, Spread | Median):
        return "" if value is None and column in row.absent_settings else printable_value(value)
    if isinstance(value, float) and (column in table.foreign or column in table.logged):
        return _rounded(value)
    return human(value, column)


def _rounded(value: float) -> str:
    """Format a number of a column whose name this program does not know."""
    text = _four_digits(float(value))
    if isinstance(value, Spread):
        return _with_deviation(text, value) + (f" (n={value.count})" if value.is_partial else "")
    return _with_count(text, value) if isinstance(value, Median) else text


def with_unit_prefix(value: float) -> str:
    """Format three digits and the prefix of the unit that follows: `12.3 G`."""
    for prefix, factor in (("T", 1e12), ("G", 1e9), ("M", 1e6), ("k", 1e3)):
        if value >= factor:
            return f"{value / factor:.3g} {prefix}"
    return f"{value:.3g} "


def _spread(value: Spread, column: str) -> str:
    """Format `0.9571 ± 0.0012`, both to the same last digit; a single value without a deviation.

    The mean of a part of the runs is followed by their number.
    """
    return _of_all(value, column) + (f" (n={value.count})" if value.is_partial else "")


def _of_all(value: Spread, column: str) -> str:
    mean = human(float(value), column)
    if column == "epochs":
        return f"{value:.4g}" + (f" ± {value.deviation:.2g}" if value.deviation > 0 else "")
    if value.count == 1:
        return mean
    if column.endswith(_BYTES) or _LATENCY.fullmatch(column) or column in _ACCURACIES:
        return f"{mean} ± {human(value.deviation, column)}"
    return _with_deviation(mean, value)


def _with_deviation(mean: str, value: Spread) -> str:
    """Format the deviation to the last digit of the mean; none for a single value."""
    decimals = len(mean.partition("e")[0].partition(".")[2])
    return f"{mean} ± {_decimals(value.deviation, decimals)}" if value.count > 1 else mean


# Settings are shown exactly; only measurements are rounded.
_MEASURED = frozenset(
    {*named(each for each in MEASUREMENTS if each.unit in (Unit.LOSS, Unit.SECONDS, Unit.RATE, Unit.ENERGY)), *EFFECTS}
    | {"ci_low", "ci_high", "baseline_samples_per_second", "candidate_samples_per_second"}
    | {"baseline_value", "candidate_value"}
)


_SCIENTIFIC = 1e12  # larger numbers, such as a diverging loss, have an exponent


def _decimals(value: float, decimals: int) -> str:
    return f"{value:,.{decimals}f}" if abs(value) < _SCIENTIFIC else f"{value:.4g}"


def _four_digits(value: float) -> str:
    if not math.isfinite(value):
        return str(value)
    if abs(value) >= _SCIENTIFIC:
        return f"{value:.4g}"
    if abs(value) >= 1000:
        return f"{float(f'{value:.4g}'):,.0f}"
    return f"{value:#.4g}".rstrip(".") if abs(value) >= 1e-3 else f"{value:.4g}"


def is_number(table: Table, column: str) -> bool:
    """Whether a column holds numbers, which are right-aligned."""
    values = [row[column] for row in table.rows if row[column] is not None]
    return bool(values) and all(isinstance(value, int | float) and not isinstance(value, bool) for value in values)


def number(value: float) -> str:
    """Format three digits, for a description."""
    rounded = float(f"{value:.3g}")
    return f"{rounded:,.0f}" if 100 <= abs(rounded) < _SCIENTIFIC else f"{rounded:g}"


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


@dataclass(frozen=True)
class Section:
    """A title over rows of fields, with the name of the row first; `headings` are those of the fields.

    `lines` follow the rows unchanged.
    """

    title: str
    rows: Sequence[Sequence[str]] = ()
    headings: Sequence[str] = ()
    lines: Sequence[str] = ()


def format_sections(first_line: str, sections: Iterable[Section]) -> str:
    """Join the first line and all non-empty sections into text without control characters."""
    parts = [printable(first_line), *(_section_text(section) for section in sections if section.rows or section.lines)]
    return "\n\n".join(parts) + "\n"


def _section_text(section: Section) -> str:
    lines_of_fields = [section.headings, *section.rows] if section.headings else section.rows
    rows = [[printable_line(field) for field in row] for row in lines_of_fields]
    count = max(map(len, rows), default=0)
    widths = [max(text_width(row[index]) if index < len(row) else 0 for row in rows) for index in range(count)]
    lines = ["  " + "  ".join(padded(field, width) for field, width in zip(row, widths, strict=False)) for row in rows]
    return "\n".join(
        [
            printable_line(section.title),
            *(line.rstrip() for line in lines),
            *(f"  {printable_line(line.expandtabs())}" for line in section.lines),
        ]
    )


MACHINE = (
    ("host", "Host"),
    ("cpu_model", "CPU"),
    ("cores_text", "Cores"),
    ("torch_threads", "Torch threads"),
    ("device_name", "Devices used"),
    ("compute_capability", "Compute capability"),
    ("driver", "Driver"),
    ("cuda", "CUDA"),
    ("cudnn", "cuDNN"),
    ("cudnn_benchmark", "cuDNN benchmark"),
    ("cudnn_deterministic", "cuDNN deterministic"),
    ("tf32_matmul", "TF32 in matrix products"),
    ("tf32_cudnn", "TF32 in cuDNN"),
)
"""The fields of an `Environment` about the machine and its use, each with its label."""

PYTHON = (("python", "Python"),)

CODE = (("commit_text", "Commit"), ("commit_clean", "No uncommitted changes"))

_LOAD = (
    ("load_at_start", "Load at the start"),
    ("load_at_end", "Load at the end"),
    ("steal_share", "CPU time stolen (share)"),
    ("outside_cpu_share", "CPU time of others (share)"),
)

FACTS = (*MACHINE, *PYTHON, *CODE, *_LOAD)

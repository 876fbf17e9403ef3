"""Metrics of a cell that its program did not log itself, in order of trust.

======================  ==================================================
origin                  where
======================  ==================================================
(none)                  logged, by the interface of this package
`returned`              what the program's task returned
`printed`               numbers in its output that `--scalar` names
`metrics.csv`           Lightning's table of metrics, in the run folder
`trainer_state.json`    what a Trainer of Transformers logged, there
`all_results.json`      what it evaluated at the end, there
`eval_results.json`     the same
`event file`            scalars of TensorBoard's files, there
`event file elsewhere`  those that the cell's processes wrote below the
                        working folder (`outside_files`)
`printed`               other numbers in its output, by the names that stand there
======================  ==================================================

The first source that has a name gives its value. What is printed without being asked for is left out where another
source has the metric under another spelling: `Loss/val` for `val loss`.
"""

import math
import operator
import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from numbers import Real
from pathlib import Path
from typing import Any

import msgspec

from runmanager.app.programs.script.output.named_numbers import NamedNumbers, Said
from runmanager.app.programs.script.output.printed_metrics import Point, StreamScanner, scan_log
from runmanager.app.programs.script.output.scalar_pattern import parse_scalars
from runmanager.app.request.command_reader import read_words
from runmanager.errors import ConfigurationError, RecordError, UsageError
from runmanager.records.files.paths import RunPaths
from runmanager.records.run.metric_names import name_key
from runmanager.records.run.program_report import ProgramKind, kind_of_program
from runmanager.records.run.run_record import EpochRecord, RunRecord
from runmanager.records.storage.reader import StoredRun, read_epochs, read_record
from runmanager.text import format_value, shell_quote
from runmanager.tracking.options import check_name

Metrics = dict[str, float | None]

_COLUMNS = ("loss", "accuracy", "val_loss", "val_accuracy")
_LOSS = re.compile(r"(^|[^a-z])loss($|[^a-z])", re.IGNORECASE)
_UNNAMED = "objective"


@dataclass
class FoundMetrics:
    """What a program returned and printed: metrics by name, None for one that is not finite, and notes.

    `printed` are those that `--scalar` names, `unasked` the others, None where the output was not searched.
    `value` is the number that it returned, for Hydra.
    """

    returned: Metrics = field(default_factory=dict)
    printed: Metrics = field(default_factory=dict)
    unasked: Metrics | None = None
    notes: list[str] = field(default_factory=list)
    value: float | None = None


def returned_metrics(value: Any, *, name: str | None) -> FoundMetrics:
    """Return the metrics that a task returned: a number, which is metric `name`, or a mapping of names to numbers.

    A tensor or an array of one element is a number. Anything else is ignored, with a note, and so is a name that
    `run.log` would refuse.
    """
    found = FoundMetrics()
    if value is None:
        return found
    number = _number(value)
    if number is not None:
        return FoundMetrics({name or _UNNAMED: _finite(number)}, value=number)
    if isinstance(value, Mapping):
        named = {str(key): each for key, each in value.items()}
        numbers = {key: _number(each) for key, each in named.items() if _is_name(key)}
        found.returned = {key: _finite(each) for key, each in numbers.items() if each is not None}
        found.value = numbers.get(name) if name is not None else None
        if ignored := [key for key, each in numbers.items() if each is None]:
            found.notes.append(f"of what the task returned, {', '.join(ignored)} is ignored: not a number")
        if refused := [repr(key) for key in named if key not in numbers]:
            found.notes.append(f"of what the task returned, {', '.join(refused)} is ignored: not a metric's name")
        return found
    found.notes.append(f"what the task returned is ignored: {type(value).__name__} is neither a number nor a mapping")
    return found


def _is_name(name: str) -> bool:
    try:
        check_name(name)
    except UsageError:
        return False
    return True


def _number(value: Any) -> float | None:
    if isinstance(value, bool):
        return None
    if isinstance(value, Real):
        try:
            return float(value)
        except OverflowError:  # an integer with more than 300 digits
            return math.inf if operator.gt(value, 0) else -math.inf
    size = getattr(value, "numel", None)  # of a tensor; of an array `size`
    count = size() if callable(size) else getattr(value, "size", None)
    if count != 1 or not hasattr(value, "item"):
        return None
    item = value.item()
    return _number(item) if isinstance(item, int | float) else None


def _finite(number: float) -> float | None:
    return number if math.isfinite(number) else None


def logged_only(record: RunRecord) -> RunRecord:
    """Return the record without metrics that were found elsewhere: while the run ran, or in an earlier attempt.

    They are found again, with their present values.
    """
    origins = record.origins or {}
    logged = {name: value for name, value in (record.summary or {}).items() if name not in origins}
    return msgspec.structs.replace(record, summary=logged or msgspec.UNSET, origins=msgspec.UNSET)


def merged_metrics(paths: RunPaths, known: RunRecord, found: FoundMetrics) -> tuple[RunRecord, dict[str, Any]]:
    """Return the record with all metrics of its run in `summary`, and the changed fields.

    `known` has only what the program logged; a name that it logged is not taken from anywhere else.
    """
    from runmanager.results.program_files.folder_metrics import found_metrics

    logged = dict.fromkeys(_logged_names(_epochs(paths)))
    summary: Metrics = dict(known.summary or {})
    origins: dict[str, str] = {}
    for origin, metrics in {"returned": found.returned, "printed": found.printed}.items():
        for name, value in metrics.items():
            if name not in summary and name not in logged:
                summary[name], origins[name] = value, origin
    in_files = found_metrics(paths, apart_from={*summary, *logged})
    summary |= {name: _finite(value) for name, value in in_files.values.items()}
    origins |= in_files.origins
    known_keys = {name_key(name) for name in (*summary, *logged)}
    unasked = {name: value for name, value in (found.unasked or {}).items() if name_key(name) not in known_keys}
    summary |= unasked
    origins |= dict.fromkeys(unasked, "printed")
    changes = {
        "summary": summary or msgspec.UNSET,
        "origins": origins or msgspec.UNSET,
        "notes": tuple(dict.fromkeys((*known.notes, *found.notes, *in_files.notes))),
    }
    return msgspec.structs.replace(known, **changes), changes


def _epochs(paths: RunPaths) -> Sequence[EpochRecord]:
    try:
        return read_epochs(paths)
    except RecordError:
        return []  # every reader reports it


def _logged_names(epochs: Sequence[EpochRecord]) -> Iterator[str]:
    for epoch in epochs:
        yield from epoch.metrics or {}
        yield from (name for name in _COLUMNS if getattr(epoch, name) is not None)


def diverged_metric(record: RunRecord, epochs: Sequence[EpochRecord]) -> str | None:
    """Return the name of a loss whose last value is not finite; None if there is none."""
    last = (epochs[-1].metrics or {}) if epochs else {}
    values = {**last, **(record.summary or {})}
    return next((name for name, value in values.items() if value is None and _LOSS.search(name)), None)


_LOGGED = "No metric was found: runmanager.log(NAME=value) logs one."
_OF_APPLICATION = (
    "No metric was found: the task may return numbers by name, or log them with runmanager.log(NAME=value)."
)
_WITHOUT_MATCHES = (
    "No metric was found: what the runs printed matched no --scalar expression that they were given. The same command "
    "with another one searches their output again; `runmanager scalars` shows what is there."
)


_LOG_BYTES = 2**20
_MAX_CANDIDATES = 3


@dataclass
class LoggedNumber:
    """A named number in a run's log: its last value, how often it stands there, and what is said of it.

    `scalar` is the value of `--scalar` that reads it; empty where no expression finds it alone in its line.
    """

    name: str
    value: float
    count: int
    said: Said
    scalar: str

    @property
    def option(self) -> str:
        """The option as it is typed."""
        return f"--scalar {shell_quote(self.scalar)}" if self.scalar else ""


def logged_numbers(log: Path, settings: Mapping[str, Any], *, last_bytes: int | None = None) -> list[LoggedNumber]:
    """Return the numbers in a log that may be results, in order of appearance; `settings` of numbers are none."""
    points: dict[str, Point] = {}
    counts: Counter[str] = Counter()

    def take(point: Point) -> None:
        points[point.name] = point
        counts[point.name] += 1

    names = [name for name, value in settings.items() if isinstance(value, int | float)]
    named = NamedNumbers(names, with_uncertain=True)
    scan_log(StreamScanner([], when_found=take, when_odd=lambda *_: None, named=named), log, last_bytes=last_bytes)
    return [
        LoggedNumber(name, point.value, counts[name], point.number.said, _scalar(point, point.number.expression))
        for name, point in points.items()
        if point.number is not None
    ]


def _scalar(point: Point, expression: str) -> str:
    name = re.sub(r"\s+", "_", point.name)
    for each in (expression, rf"\b{expression}"):
        try:
            (pattern,) = parse_scalars([f"{name}={each}"])
        except ConfigurationError:
            continue  # what was printed is no part of an expression
        if list(pattern.values(point.line)) == [point.value]:
            return f"{name}={each}"
    return ""


def metric_advice(run: RunPaths) -> str:
    """Return how to get a metric from the program of `run`, which has none; empty where nothing could be said."""
    try:
        record = read_record(run)
    except RecordError:
        return ""
    match kind_of_program(record):
        case ProgramKind.LOOP:
            return _LOGGED
        case ProgramKind.APPLICATION:
            return _OF_APPLICATION
        case ProgramKind.SCRIPT:
            given = read_words((record.cell_command or ())[2:]).request.scalar
            return _WITHOUT_MATCHES if given else _of_script(run, record)
    return ""


def advice_without_metrics(runs: Sequence[StoredRun]) -> list[str]:
    """Return how to get a metric, as a line, where runs finished and none of them has one; else nothing."""
    from runmanager.results.metrics.metric_lookup import finished_without_metrics  # late: drivers do not need it

    lacking = finished_without_metrics(runs)
    return [line] if lacking and (line := metric_advice(lacking[-1].paths)) else []


def _of_script(run: RunPaths, record: RunRecord) -> str:
    found = logged_numbers(run.log, record.settings, last_bytes=_LOG_BYTES)
    doubtful = sorted((each for each in found if each.option), key=lambda each: each.count == 1)[:_MAX_CANDIDATES]
    shown = [f"{each.name} {format_value(each.value)} ({each.option})" for each in doubtful]
    example = f", as {' or '.join(shown)}" if shown else ""
    return (
        f"No metric was found: --scalar NAME=REGEX reads one that the script prints{example}; "
        "runmanager.log(NAME=value) in the script logs one."
    )

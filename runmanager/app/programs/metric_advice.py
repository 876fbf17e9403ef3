"""How to get a metric from a program whose runs recorded none, by its kind: with what was printed to choose from."""

import re
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from runmanager.app.programs.script.output.named_numbers import NamedNumbers, Said
from runmanager.app.programs.script.output.printed_metrics import Point, StreamScanner, scan_log
from runmanager.app.programs.script.output.scalar_pattern import parse_scalars
from runmanager.app.request.command_reader import read_words
from runmanager.errors import ConfigurationError, RecordError
from runmanager.records.files.paths import RunPaths
from runmanager.records.run.program_kind import ProgramKind, kind_of_program
from runmanager.records.run.run_record import RunRecord
from runmanager.records.storage.reader import StoredRun, read_record
from runmanager.text import format_value, shell_quote

__all__ = ["LoggedNumber", "advice_without_metrics", "logged_numbers", "metric_advice"]


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

"""The tables of metrics that programs leave: Lightning's metrics.csv, and JSON files of a Trainer of Transformers."""

import csv
import json
import math
import os
import re
import stat
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import IO, Any

from runmanager.errors import RecordError
from runmanager.results.program_files.metric_series import MetricSeries

METRICS_CSV = "metrics.csv"
_TRAINER_STATE = "trainer_state.json"

_MAX_COLUMNS = 10_000
_MAX_NUMBER = 2**31
_PLACES = ("", "epoch", "step")  # columns that are no metrics
_OF_SPEED = re.compile(r"_(runtime|per_second|samples)$|^total_flos$")  # what a Trainer adds to its metrics


def read_table(path: Path) -> dict[str, MetricSeries]:
    """Read the metrics of one of `TABLES` by name. Raises `RecordError` for a file that cannot be read as such."""
    try:
        handle = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK | os.O_NOFOLLOW)
        with os.fdopen(handle, encoding="utf-8-sig", newline="") as file:
            if not stat.S_ISREG(os.fstat(handle).st_mode):
                raise RecordError(f"{path} is not a regular file")
            return _READERS[path.name](file)
    except (UnicodeDecodeError, csv.Error, RecursionError, ValueError) as error:
        raise RecordError(f"{path} is damaged: {error}") from None
    except OSError as error:
        raise RecordError(f"{path} cannot be read: {error.strerror or error}") from None


def _read_csv(file: IO[str]) -> dict[str, MetricSeries]:
    """Read a table with a line for each step; a line has values for some of the metrics.

    Columns without any number are left out.
    """
    return _read_rows(csv.reader(_whole_lines(file)))


def _whole_lines(file: Iterable[str]) -> Iterable[str]:
    """Yield the lines without a torn last one, whose last number may have lost digits."""
    for line in file:
        if "\0" in line:
            raise ValueError("a line contains a null byte")
        if line.endswith(("\n", "\r")):
            yield line


def _read_rows(rows: Iterator[list[str]]) -> dict[str, MetricSeries]:
    """Read the rows; a short one of a wide table takes as long as it is itself."""
    header = next(rows, [])
    if len(header) > _MAX_COLUMNS:
        raise ValueError(f"it has {len(header):,} columns, at most {_MAX_COLUMNS:,} are read")
    metrics = {name: MetricSeries(name) for name in header if name not in _PLACES}
    filled: set[str] = set()
    for row in rows:
        values = {name: _number(text) for name, text in zip(header, row, strict=False)}
        _add(values, metrics, filled)
    return {name: series for name, series in metrics.items() if name in filled}


def _add(values: Mapping[str, float | None], metrics: Mapping[str, MetricSeries], filled: set[str]) -> None:
    """Add the values of one step to the metrics that have one, whose names are then `filled`."""
    epoch, step = _whole_number(values.get("epoch")), _whole_number(values.get("step"))
    for name, value in values.items():
        if value is not None and (series := metrics.get(name)) is not None:
            series.add(value, step=step, epoch=epoch)
            filled.add(name)


def _number(text: str) -> float | None:
    try:
        return float(text) if text else None
    except ValueError:
        return None  # text, or a torn last line


def _whole_number(number: float | None) -> int | None:
    is_whole = number is not None and math.isfinite(number) and number.is_integer() and 0 <= number < _MAX_NUMBER
    return int(number) if is_whole and number is not None else None


def _read_history(file: IO[str]) -> dict[str, MetricSeries]:
    """Read the state of a Trainer: `log_history` has an object for each time that it logged."""
    return _read_objects(_object(file).get("log_history"))


def _read_results(file: IO[str]) -> dict[str, MetricSeries]:
    """Read what `Trainer.save_metrics` writes: an object of metrics."""
    return _read_objects([_object(file)])


def _object(file: IO[str]) -> dict[str, Any]:
    found = json.load(file)
    if not isinstance(found, dict):
        raise ValueError("it must hold an object")  # all that is damaged is one error
    return found


def _read_objects(objects: Any) -> dict[str, MetricSeries]:
    rows = [each for each in objects if isinstance(each, dict)] if isinstance(objects, list) else []
    metrics: dict[str, MetricSeries] = {}
    for row in rows:
        numbers = {name: float(each) for name, each in row.items() if type(each) in (int, float)}
        for name in numbers:
            if name not in _PLACES and not _OF_SPEED.search(name):
                metrics.setdefault(name, MetricSeries(name))
        _add(numbers, metrics, set())
    return metrics


def newest_state(tables: Sequence[Path]) -> list[Path]:
    """Return the tables without all but the last written state of a Trainer: each holds what the ones before it do."""
    states = [path for path in tables if path.name == _TRAINER_STATE]
    kept = max(states, key=lambda path: path.lstat().st_mtime_ns, default=None)
    return [path for path in tables if path.name != _TRAINER_STATE or path == kept]


_READERS: dict[str, Callable[[IO[str]], dict[str, MetricSeries]]] = {
    METRICS_CSV: _read_csv,
    _TRAINER_STATE: _read_history,
    "all_results.json": _read_results,
    "eval_results.json": _read_results,
}
TABLES = tuple(_READERS)
"""The names of the tables, those of more trust first."""

"""Reading all metrics below a folder: event files and metrics.csv, within limits."""

import csv
import math
import os
import re
import stat
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from itertools import repeat
from pathlib import Path
from typing import Any

from runmanager.errors import RecordError
from runmanager.records.files.folders import files_below
from runmanager.records.files.paths import EVENT_WRITER
from runmanager.results.program_files.metric_naming import (
    ADD_HPARAMS,
    EVENT_FILE,
    METRICS_CSV,
    ProgramMetric,
    name_metrics,
)
from runmanager.results.program_files.metric_series import MetricSeries
from runmanager.results.tfevents.reader import EventFolder, Series, is_event_file, read_event_files, writer_of
from runmanager.text import encodable

__all__ = ["ProgramMetrics", "is_metrics_file", "read_metrics"]


_ATTEMPTS = ("attempts",)  # the files of earlier attempts
_TIME = re.compile(r"\d{9,11}\.\d+")  # in seconds since 1970: PyTorch's `add_hparams` names its folder so
_MAX_BYTES = {EVENT_FILE: 1 << 30, METRICS_CSV: 1 << 28}
_MAX_FILES = 1000
_MAX_NOTES = 20


_MAX_COLUMNS = 10_000
_MAX_NUMBER = 2**31


def read_metrics_csv(path: Path) -> dict[str, MetricSeries]:
    """Read the metrics by name; a line has values for some of them. Columns without any number are left out.

    Raises `RecordError` for a file that cannot be read as a table.
    """
    try:
        handle = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK | os.O_NOFOLLOW)
        with os.fdopen(handle, encoding="utf-8-sig", newline="") as file:
            if not stat.S_ISREG(os.fstat(handle).st_mode):
                raise RecordError(f"{path} is not a regular file")
            return _read_rows(csv.reader(_whole_lines(file)))
    except (UnicodeDecodeError, csv.Error, RecursionError, ValueError) as error:
        raise RecordError(f"{path} is damaged: {error}") from None
    except OSError as error:
        raise RecordError(f"{path} cannot be read: {error.strerror or error}") from None


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
    metrics = {name: MetricSeries(name) for name in header if name not in ("", "epoch", "step")}
    filled: set[str] = set()
    for row in rows:
        values = dict(zip(header, row, strict=False))
        epoch, step = _whole_number(values, "epoch"), _whole_number(values, "step")
        for name, text in values.items():
            if (value := _number(text)) is not None and (series := metrics.get(name)) is not None:
                series.add(value, step=step, epoch=epoch)
                filled.add(name)
    return {name: series for name, series in metrics.items() if name in filled}


def _number(text: str | None) -> float | None:
    try:
        return float(text) if text else None
    except (TypeError, ValueError):
        return None  # text, or a torn last line


def _whole_number(row: Mapping[str, str], name: str) -> int | None:
    number = _number(row.get(name))
    is_whole = number is not None and math.isfinite(number) and number.is_integer() and 0 <= number < _MAX_NUMBER
    return int(number) if is_whole and number is not None else None


@dataclass
class ProgramMetrics:
    """What the files below a folder hold: metrics in order of appearance, hyperparameters, the time of the first.

    `sessions` are the hyperparameters by place, a folder below this one; empty for its own. `started_at` is the time of
    the first value in seconds since 1970; None without event files. `notes` name each file that was not read, or not to
    its end.
    """

    metrics: list[ProgramMetric] = field(default_factory=list)
    sessions: dict[str, dict[str, Any]] = field(default_factory=dict)
    started_at: float | None = None
    notes: list[str] = field(default_factory=list)


def is_metrics_file(name: str) -> bool:
    """Whether a file of this name may hold metrics."""
    return name == METRICS_CSV or is_event_file(name)


def read_metrics(folder: Path) -> ProgramMetrics:
    """Read all event files and metrics.csv below `folder`, within limits.

    Files in the folders `version_0`, `version_1`, … of Lightning continue each other. A metric that several other
    folders have gets the folder's name before its own: `fold_1/val_loss`; but in the folders that `add_hparams` names
    by the time, the value written last counts. Of a metrics.csv and event files that hold the same values, the
    metrics.csv counts, which has all digits.
    """
    found = ProgramMetrics()
    files = files_below(folder, is_metrics_file, found.notes, without=_ATTEMPTS)
    if len(files) > _MAX_FILES:
        found.notes.append(f"{folder} must hold at most {_MAX_FILES:,} files of metrics, got more; the rest is unread")
    by_place: dict[str, list[Path]] = {}
    for path in sorted(files[:_MAX_FILES], key=lambda path: (_in_order(path.parent), path.name)):
        by_place.setdefault(_place(os.path.relpath(path.parent, folder)), []).append(path)
    places: dict[tuple[str, str, str], MetricSeries] = {}
    for place, paths in by_place.items():
        for origin, series in _read_place(place, paths, found):
            is_timed = place in found.sessions and _TIME.fullmatch(Path(place).name) is not None
            shown = (Path(place).parent / ADD_HPARAMS).as_posix() if is_timed else place
            key = (series.name, shown, origin)
            if key in places and not is_timed:
                places[key].continue_with(series)
            else:
                places[key] = series
    found.metrics = name_metrics(places, found.notes)
    if len(found.notes) > _MAX_NOTES:
        found.notes[_MAX_NOTES:] = [f"{len(found.notes) - _MAX_NOTES:,} more files were not read"]
    return found


def _in_order(folder: Path) -> list[tuple[str, float]]:
    """Return the sort key of a folder: `version_10` comes after `version_9`, and times are in their order."""
    return [_number_at_end(part) for part in folder.parts]


def _number_at_end(part: str) -> tuple[str, float]:
    if _TIME.fullmatch(part):
        return "", float(part)
    split = re.fullmatch(r"(.*?)(\d{0,9})", part, re.DOTALL)
    assert split is not None  # it fits any text
    return split[1], int(split[2] or 0)


def _place(relative: str) -> str:
    """Return a folder's name without Lightning's `version_3`, and empty for the run's folder itself."""
    return "/".join(part for part in Path(encodable(relative)).parts if not re.fullmatch(r"version_\d+", part))


def _read_place(place: str, paths: list[Path], found: ProgramMetrics) -> Iterator[tuple[str, MetricSeries]]:
    """Yield the metrics in the files of one place with their origin; add hyperparameters, times and damage."""
    readable = [path for path in paths if _is_within_limits(path, found.notes)]
    for path in readable:
        if path.name == METRICS_CSV:
            try:
                yield from ((METRICS_CSV, series) for series in read_metrics_csv(path).values())
            except RecordError as error:
                found.notes.append(str(error))
    events = [path for path in readable if path.name != METRICS_CSV and writer_of(path) != EVENT_WRITER]
    if not events:
        return
    read = read_event_files(events)
    found.notes += read.damage
    if read.hparams:
        found.sessions[place] = read.hparams
    for series in read.scalars.values():
        found.started_at = min(math.inf if found.started_at is None else found.started_at, *series.times)
    yield from ((EVENT_FILE, series) for series in _event_metrics(read).values())


def _is_within_limits(path: Path, notes: list[str]) -> bool:
    limit = _MAX_BYTES[METRICS_CSV if path.name == METRICS_CSV else EVENT_FILE]
    try:
        status = path.lstat()
    except OSError as error:
        notes.append(f"{path} cannot be read: {error.strerror or error}")
        return False
    if not stat.S_ISREG(status.st_mode):  # opening a pipe would block, and a link may lead anywhere
        is_link = stat.S_ISLNK(status.st_mode)
        notes.append(f"{path} is {'a link, which is not followed' if is_link else 'not a regular file'}")
        return False
    if status.st_size > limit:
        notes.append(f"{path} must have at most {limit:,} bytes to be read, got {status.st_size:,}")
    return status.st_size <= limit


_EPOCH = "epoch"  # the tag of Lightning's TensorBoardLogger
_UNLOGGED = {"hp_metric": -1.0}  # what Lightning writes where the program logs no such metric
_MAX_EPOCH = 2**31


def _event_metrics(events: EventFolder) -> dict[str, MetricSeries]:
    """Return the metrics of event files by name; a scalar `epoch` gives the epoch of each step, if it is whole."""
    epochs = _epochs_by_step(events.scalars.get(_EPOCH))
    return {
        name: _reduced(name, series, epochs)
        for name, series in events.scalars.items()
        if name != _EPOCH and (name not in _UNLOGGED or set(series.values) != {_UNLOGGED[name]})
    }


def _epochs_by_step(series: Series | None) -> Mapping[int, int]:
    if series is None or not all(value.is_integer() and 0 <= value < _MAX_EPOCH for value in series.values):
        return {}
    return {step: int(epoch) for step, epoch in zip(series.steps, series.values, strict=True)}


def _reduced(name: str, series: Series, epochs: Mapping[int, int]) -> MetricSeries:
    metric = MetricSeries(name)
    of_steps = map(epochs.get, series.steps) if epochs else repeat(None)
    for step, value, epoch in zip(series.steps, series.values, of_steps, strict=False):
        metric.add(value, step=step, epoch=epoch)
    return metric

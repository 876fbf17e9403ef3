"""Reading all metrics below a folder: event files and metrics.csv, within limits."""

import math
import os
import re
import stat
from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import groupby
from pathlib import Path
from typing import Any

from runmanager.errors import RecordError
from runmanager.records.files.folder_search import files_below
from runmanager.records.files.paths import EVENT_WRITER
from runmanager.results.program_files.event_metrics import event_metrics
from runmanager.results.program_files.metric_naming import EVENT_FILE, METRICS_CSV, ProgramMetric, name_metrics
from runmanager.results.program_files.metric_series import MetricSeries
from runmanager.results.program_files.metrics_csv import read_metrics_csv
from runmanager.results.tfevents.reader import is_event_file, read_event_files, writer_of
from runmanager.text import encodable

__all__ = ["ProgramMetrics", "is_metrics_file", "read_metrics"]

_ATTEMPTS = ("attempts",)  # the files of earlier attempts
_MAX_BYTES = {EVENT_FILE: 1 << 30, METRICS_CSV: 1 << 28}
_MAX_FILES = 1000
_MAX_NOTES = 20


@dataclass
class ProgramMetrics:
    """What the files below a folder hold: metrics in order of appearance, hyperparameters, the time of the first.

    `started_at` is the time of the first value in seconds since 1970; None without event files. `notes` name each file
    that was not read, or not to its end.
    """

    metrics: list[ProgramMetric] = field(default_factory=list)
    hparams: dict[str, Any] = field(default_factory=dict)
    started_at: float | None = None
    notes: list[str] = field(default_factory=list)


def is_metrics_file(name: str) -> bool:
    """Whether a file of this name may hold metrics."""
    return name == METRICS_CSV or is_event_file(name)


def read_metrics(folder: Path) -> ProgramMetrics:
    """Read all event files and metrics.csv below `folder`, within limits.

    Files in the folders `version_0`, `version_1`, … of Lightning continue each other. A metric that several other
    folders have gets the folder's name before its own: `fold_1/val_loss`. Of a metrics.csv and event files that hold
    the same values, the metrics.csv counts, which has all digits.
    """
    found = ProgramMetrics()
    files = files_below(folder, is_metrics_file, found.notes, without=_ATTEMPTS)
    if len(files) > _MAX_FILES:
        found.notes.append(f"{folder} must hold at most {_MAX_FILES:,} files of metrics, got more; the rest is unread")
    places: dict[tuple[str, str, str], MetricSeries] = {}
    by_folder = sorted(files[:_MAX_FILES], key=lambda path: (_in_order(path.parent), path.name))
    for parent, paths in groupby(by_folder, key=lambda path: path.parent):
        place = _place(os.path.relpath(parent, folder))
        for origin, series in _read_folder(list(paths), found):
            key = (series.name, place, origin)
            if key in places:
                places[key].continue_with(series)
            else:
                places[key] = series
    found.metrics = name_metrics(places, found.notes)
    if len(found.notes) > _MAX_NOTES:
        found.notes[_MAX_NOTES:] = [f"{len(found.notes) - _MAX_NOTES:,} more files were not read"]
    return found


def _in_order(folder: Path) -> list[tuple[str, int]]:
    """Return the sort key of a folder: `version_10` comes after `version_9`."""
    split = (re.fullmatch(r"(.*?)(\d{0,9})", part, re.DOTALL) for part in folder.parts)
    return [(each[1], int(each[2] or 0)) for each in split if each is not None]


def _place(relative: str) -> str:
    """Return a folder's name without Lightning's `version_3`, and empty for the run's folder itself."""
    return "/".join(part for part in Path(encodable(relative)).parts if not re.fullmatch(r"version_\d+", part))


def _read_folder(paths: list[Path], found: ProgramMetrics) -> Iterator[tuple[str, MetricSeries]]:
    """Yield the metrics in the files of one folder with their origin; add hyperparameters, times and damage."""
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
    found.hparams |= read.hparams
    for series in read.scalars.values():
        found.started_at = min(math.inf if found.started_at is None else found.started_at, *series.times)
    yield from ((EVENT_FILE, series) for series in event_metrics(read).values())


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

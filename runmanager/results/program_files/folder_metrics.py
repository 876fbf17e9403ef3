"""Reading all metrics below a folder, in files of every kind that is known, within limits."""

import math
import os
import re
import stat
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from itertools import repeat
from pathlib import Path
from typing import Any

from runmanager.errors import RecordError
from runmanager.records.files.paths import ELSEWHERE, EVENT_WRITER, files_below
from runmanager.results.program_files.metric_naming import ADD_HPARAMS, EVENT_FILE, ProgramMetric, name_metrics
from runmanager.results.program_files.metric_series import MetricSeries
from runmanager.results.program_files.metric_tables import METRICS_CSV, TABLES, newest_state, read_table
from runmanager.results.tfevents.reader import EventFolder, Series, is_event_file, read_event_files, writer_of
from runmanager.text import encodable

_NOT_OWN = ("attempts", ELSEWHERE)  # the files of earlier attempts, and those that were written outside
_TIME = re.compile(r"\d{9,11}\.\d+")  # in seconds since 1970: PyTorch's `add_hparams` names its folder so
_MAX_EVENT_BYTES, _MAX_TABLE_BYTES = 1 << 30, 1 << 28
_MAX_FILES = 1000
_MAX_NOTES = 20


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
    """Whether a file of this name is what a run of another program is known by."""
    return name == METRICS_CSV or is_event_file(name)


def _is_read(name: str) -> bool:
    return name in TABLES or is_event_file(name)


def read_metrics(folder: Path) -> ProgramMetrics:
    """Read all event files and tables of metrics (`TABLES`) below `folder`, within limits.

    Files in the folders `version_0`, `version_1`, … of Lightning, in the dated ones of a `SummaryWriter`, and in the
    checkpoints of a Trainer continue each other. A metric that several other
    folders have gets the folder's name before its own: `fold_1/val_loss`; but in the folders that `add_hparams` names
    by the time, the value written last counts. Of files that hold the same values, those of the better
    origin count.
    """
    found = ProgramMetrics()
    files = files_below(folder, _is_read, found.notes, without=_NOT_OWN)
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


_CONTINUED = re.compile(r"(version_\d+|checkpoint-\d+)$|[A-Z][a-z]{2}\d\d_\d\d-\d\d-\d\d_[^_]*_?")


def _place(relative: str) -> str:
    """Return a folder's name without the parts that differ where one file continues another; empty for the run's own.

    These are Lightning's `version_3`, a Trainer's `checkpoint-500`, and the date and host that begin the name of a
    `SummaryWriter`'s folder, before its comment.
    """
    begins = ((part, _CONTINUED.match(part)) for part in Path(encodable(relative)).parts)
    return "/".join(filter(None, (part[found.end() :] if found else part for part, found in begins)))


def _read_place(place: str, paths: list[Path], found: ProgramMetrics) -> Iterator[tuple[str, MetricSeries]]:
    """Yield the metrics in the files of one place with their origin; add hyperparameters, times and damage."""
    readable = [path for path in paths if _is_within_limits(path, found.notes)]
    for path in newest_state([path for path in readable if path.name in TABLES]):
        try:
            yield from ((path.name, series) for series in read_table(path).values())
        except RecordError as error:
            found.notes.append(str(error))
    events = [path for path in readable if path.name not in TABLES and writer_of(path) != EVENT_WRITER]
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
    limit = _MAX_TABLE_BYTES if path.name in TABLES else _MAX_EVENT_BYTES
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

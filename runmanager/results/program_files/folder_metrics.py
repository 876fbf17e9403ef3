"""The metrics that a program left in files: all below a folder, within limits; the last value of each, its course."""

import math
import os
import re
import stat
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import repeat
from pathlib import Path
from typing import Any

import msgspec

from runmanager.errors import RecordError
from runmanager.records.files.paths import ELSEWHERE, EVENT_WRITER, RunPaths, files_below
from runmanager.records.run.run_record import counted_word
from runmanager.records.storage.reader import StoredRun
from runmanager.results.metrics.metric import Metric
from runmanager.results.program_files.metric_tables import (
    ADD_HPARAMS,
    EVENT_FILE,
    METRICS_CSV,
    TABLES,
    MetricSeries,
    ProgramMetric,
    name_metrics,
    newest_state,
    read_table,
)
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


ELSEWHERE_EVENTS = "event file elsewhere"
"""The origin of metrics in event files that the run's processes wrote below the working folder."""


@dataclass(frozen=True)
class FoundMetrics:
    """The last value of each metric by name, where it comes from (`metrics.csv`, `event file`, …), and notes."""

    values: dict[str, float] = field(default_factory=dict)
    origins: dict[str, str] = field(default_factory=dict)
    notes: tuple[str, ...] = ()


def found_metrics(run: RunPaths, *, apart_from: Collection[str] = ()) -> FoundMetrics:
    """Return the metrics that a program left in files below its run's folder, and then in event files elsewhere.

    Names that mean one of the four columns get its name (`column_of_metric`). Metrics in `apart_from`, which are known
    from a source of more trust, are left out under either name. This package's own event files and those of earlier
    attempts are not read. Never raises for what is on the disk: `notes` name files that are damaged or too large.
    """
    found = FoundMetrics()
    for folder, origin in ((run.root, None), (run.elsewhere, ELSEWHERE_EVENTS)):
        read = read_metrics(folder) if folder.is_dir() else ProgramMetrics()
        known = {*apart_from, *found.values}
        metrics = [each for each in read.metrics if not {each.name, each.series.name} & known]
        found = FoundMetrics(
            found.values | {each.name: each.series.last for each in metrics},
            found.origins | {each.name: origin or each.origin for each in metrics},
            (*found.notes, *read.notes),
        )
    return found


_PRINTED = "printed"  # the origin, and the folder where a program logs itself
_EVENTS = "events.out.tfevents.*"


def course_of(run: StoredRun, metric: Metric, *, origin: str | None = None) -> tuple[str, dict[int, float]]:
    """Return what numbers a run's values of a metric, `epoch` or `step`, and the values by these numbers.

    They are those of its records, else those in its files; `origin` says which, where the run has not ended.
    """
    return courses_of(run, [metric], origins={metric.name: origin} if origin else {})[metric.name]


def courses_of(
    run: StoredRun, metrics: Sequence[Metric], *, origins: Mapping[str, str] | None = None
) -> dict[str, tuple[str, dict[int, float]]]:
    """Return as `course_of` the course of each metric by its name; its files are read once for all of them."""
    word, record = counted_word(run.record), run.record
    courses = {each.name: (word, _of_epochs(run, each)) for each in metrics}
    known = {**(origins or {}), **(record.origins or {})}
    sought = {name: known[name] for name, (_, values) in courses.items() if not values and name in known}
    found = metrics_by_step(run.paths, sought, adopted=record.adopted) if sought else {}
    return {name: course if course[1] else ("step", found.get(name, {})) for name, course in courses.items()}


def _of_epochs(run: StoredRun, metric: Metric) -> dict[int, float]:
    of_epoch = metric.of_epoch
    if of_epoch is None:
        return {}
    return {epoch.epoch: value for epoch in run.epochs if (value := of_epoch(epoch)) is not None}


def metrics_by_step(
    run: RunPaths, origins: Mapping[str, str], *, adopted: str | msgspec.UnsetType = msgspec.UNSET
) -> dict[str, dict[int, float]]:
    """Return the values of each metric in `origins` by step, those of a long series at even steps.

    `origins` are those of the run's record; `adopted` is the folder of an adopted run, which has its files. A metric
    that no file has is left out. A printed metric counts its values from 1. Damaged files give what could be read.
    """
    printed = _printed(run) if _PRINTED in origins.values() else {}
    in_files = {name: origin for name, origin in origins.items() if origin != _PRINTED}
    folder = Path(adopted) if isinstance(adopted, str) else run.root
    stored = _in_folder(folder, in_files)
    elsewhere = {name for name, origin in in_files.items() if origin == ELSEWHERE_EVENTS}
    stored |= _in_folder(run.elsewhere, dict.fromkeys(elsewhere, EVENT_FILE))
    found = {name: (printed if origin == _PRINTED else stored).get(name) for name, origin in origins.items()}
    return {name: points for name, points in found.items() if points}


def _in_folder(folder: Path, origins: Mapping[str, str]) -> dict[str, dict[int, float]]:
    if not origins or not os.path.isdir(folder):  # noqa: PTH112 - False where no path can have the name
        return {}
    return {
        each.name: each.series.points for each in read_metrics(folder).metrics if origins.get(each.name) == each.origin
    }


def _printed(run: RunPaths) -> dict[str, dict[int, float]]:
    """The printed series: in files of their own where the program logs itself, else in the run's event file."""
    found: dict[str, dict[int, float]] = {}
    for folder in (run.root, run.root / _PRINTED):
        files = [path for path in sorted(folder.glob(_EVENTS)) if writer_of(path) == EVENT_WRITER]
        for name, series in read_event_files(files).scalars.items():
            steps = zip(series.steps, series.values, strict=True)
            found[name] = {step: value if math.isfinite(value) else math.nan for step, value in steps}
    return found

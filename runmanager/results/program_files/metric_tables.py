"""The tables of metrics that programs leave: Lightning's metrics.csv, and JSON files of a Trainer of Transformers.

The values of a metric are reduced while they are read.
"""

import csv
import json
import math
import os
import re
import stat
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path, PurePath
from typing import IO, Any

from runmanager.errors import RecordError
from runmanager.records.run.metric_names import column_of_metric

_MAX_POINTS = 2000


@dataclass
class MetricSeries:
    """The values of one metric: the last one, the last one of each epoch, how many there are of an epoch, its course.

    Epochs are numbered as in the file. `first_step` and `last_step` are the lowest and the highest step with a value;
    of equal steps the value written last counts. `has_stray` is whether a value belongs to no known epoch.
    """

    name: str
    last: float = float("nan")
    first_step: int | None = None
    last_step: int | None = None
    by_epoch: dict[int, float] = field(default_factory=dict)
    most_per_epoch: int = 0
    has_stray: bool = False
    low: float = float("inf")
    high: float = float("-inf")
    _counts: dict[int, int] = field(default_factory=dict)
    _sample: dict[int, float] = field(default_factory=dict)
    _stride: int = 1  # how many values there are for one of the sample
    _num_values: int = 0

    @property
    def points(self) -> dict[int, float]:
        """Values by step, of a long series at even numbers of values, the last one included."""
        return self._sample if self.last_step is None else {**self._sample, self.last_step: self.last}

    def add(self, value: float, *, step: int | None, epoch: int | None) -> None:
        """Add a value of a step (None: that follows the one before) and of an epoch (None: not known)."""
        self.low, self.high = min(self.low, value), max(self.high, value)
        if step is None or self.last_step is None or step >= self.last_step:
            self.last = value
            self.last_step = self.last_step if step is None else step
        if step is not None:
            self.first_step = step if self.first_step is None else min(self.first_step, step)
            self._sample_value(step, value)
        if epoch is None:
            self.has_stray = True
            return
        self.by_epoch[epoch] = value
        self._counts[epoch] = count = self._counts.get(epoch, 0) + 1
        self.most_per_epoch = max(self.most_per_epoch, count)

    def _sample_value(self, step: int, value: float) -> None:
        if self._num_values % self._stride == 0:
            self._sample[step] = value
        self._num_values += 1
        if len(self._sample) > _MAX_POINTS:
            self._sample = dict(list(self._sample.items())[::2])
            self._stride *= 2

    def continue_with(self, later: "MetricSeries") -> None:
        """Add the values of a file that continues this one, such as that of a resumed training.

        What it has at several steps, or of several epochs, replaces all from its first one on.
        """
        if later.first_step is not None and later.first_step != later.last_step:
            self._sample = {step: value for step, value in self._sample.items() if step < later.first_step}
        if len(later.by_epoch) > 1:
            first = min(later.by_epoch)
            self.by_epoch = {epoch: value for epoch, value in self.by_epoch.items() if epoch < first}
        self.last, self.last_step = later.last, later.last_step
        self.first_step = min((step for step in (self.first_step, later.first_step) if step is not None), default=None)
        for step, value in later.points.items():
            self._sample_value(step, value)
        self.by_epoch.update(later.by_epoch)
        self.most_per_epoch = max(self.most_per_epoch, later.most_per_epoch)
        self.has_stray |= later.has_stray
        self.low, self.high = min(self.low, later.low), max(self.high, later.high)


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


EVENT_FILE = "event file"
"""The origin of metrics in event files; those in tables have the name of their file."""
_ORIGINS = (*TABLES, EVENT_FILE)  # the better ones first
ADD_HPARAMS = "add_hparams"
"""The last part of the place of metrics that were given to PyTorch's `add_hparams`."""

_MAX_METRICS = 10_000
_MAX_NAME = 200
_MAX_NAMED = 5
_SINGLE_PRECISION = 1e-6


@dataclass(frozen=True)
class ProgramMetric:
    """A metric found in files: its `name` for tables, whether that is a column of every table, its values, its origin.

    `series.name` is the name in the file.
    """

    name: str
    series: MetricSeries
    origin: str
    is_column: bool = False


def name_metrics(places: Mapping[tuple[str, str, str], MetricSeries], notes: list[str]) -> list[ProgramMetric]:
    """Name the metrics, which are given by name in the file, place and origin; a line of `notes` for those left out.

    A place is a folder, empty for the run's own. A metric that several other folders have gets the folder's name before
    its own: `fold_1/val_loss`. So does one that was given to `add_hparams` and logged besides. Of files that hold the
    same values or are in one place, those of the better origin count: tables come before event files, as they have all
    digits. A name that another metric has by then gets a number.
    """
    return _in_columns(_named(places, notes))


def _named(
    places: Mapping[tuple[str, str, str], MetricSeries], notes: list[str]
) -> list[tuple[str, MetricSeries, str]]:
    """Give each metric a name of its own, in order of appearance: (name, values, origin)."""
    by_name: dict[str, list[tuple[str, str, MetricSeries]]] = {}
    for (name, place, origin), series in places.items():
        by_name.setdefault(name, []).append((place, origin, series))
    named: dict[str, tuple[str, MetricSeries, str]] = {}
    outdone: dict[tuple[str, str], list[str]] = {}
    renamed: list[str] = []
    for name, same in by_name.items():
        different: dict[str, tuple[str, MetricSeries]] = {}
        for place, origin, series in _without_copies(same):
            better, held = different.setdefault(place, (origin, series))
            if held is not series:
                outdone.setdefault((better, origin), []).append(name)
        logged = [place for place in different if PurePath(place).name != ADD_HPARAMS]
        for place, (origin, series) in different.items():
            is_plain = not place or len(different) == 1 or logged == [place]
            wanted = unique = name if is_plain else f"{place}/{name}"
            number = 1
            while unique in named:
                number += 1
                unique = f"{wanted} ({number})"
            if number > 1:
                renamed.append(f"{wanted} of {place or 'the folder itself'} is {unique}")
            named[unique] = (unique, series, origin)
    for (better, origin), names in outdone.items():
        worse = f"the {origin}" if origin in TABLES else "event files"
        have = "has" if origin in TABLES else "have"
        notes.append(f"the {better} counts where {worse} beside it {have} other values: {_listed(names)}")
    if renamed:
        notes.append(f"two metrics have one name: {_listed(renamed)}")
    kept = [each for each in named.values() if len(each[0]) <= _MAX_NAME]
    if len(kept) < len(named):
        notes.append(f"a metric's name must have at most {_MAX_NAME} letters, got {len(named) - len(kept)} longer ones")
    if len(kept) > _MAX_METRICS:
        notes.append(f"a run must have at most {_MAX_METRICS:,} metrics, got {len(kept):,}; the rest is left out")
    return kept[:_MAX_METRICS]


def _listed(names: list[str]) -> str:
    more = f" and {len(names) - _MAX_NAMED} more" if len(names) > _MAX_NAMED else ""
    return ", ".join(names[:_MAX_NAMED]) + more


def _without_copies(same: list[tuple[str, str, MetricSeries]]) -> list[tuple[str, str, MetricSeries]]:
    """Leave out metrics whose last value a better origin has too, up to single precision; better ones come first."""
    kept: list[tuple[str, str, MetricSeries]] = []
    for place, origin, series in sorted(same, key=lambda each: _ORIGINS.index(each[1])):
        better = (other.last for _, known, other in kept if known != origin)
        if not any(_are_close(series.last, last) for last in better):
            kept.append((place, origin, series))
    return kept


def _are_close(one: float, other: float) -> bool:
    return math.isclose(one, other, rel_tol=_SINGLE_PRECISION) or (math.isnan(one) and math.isnan(other))


def _in_columns(named: list[tuple[str, MetricSeries, str]]) -> list[ProgramMetric]:
    """Give the columns of every table to the first metric that means each; one that has its very name comes first."""
    taken: dict[str, str] = {}
    for name, series, _ in sorted(named, key=lambda each: column_of_metric(each[0]) != each[0]):
        column = column_of_metric(name)
        if column is not None and _fits(series, column, is_exact=column == name):
            taken.setdefault(column, name)
    names = {name for name, _, _ in named}  # `train_acc` is not `accuracy` beside one in percent
    columns = {name: column for column, name in taken.items() if column == name or column not in names}
    return [ProgramMetric(columns.get(name, name), series, origin, name in columns) for name, series, origin in named]


def _fits(series: MetricSeries, column: str, *, is_exact: bool) -> bool:
    """Whether values mean what a column does: accuracies are fractions, and `loss` is not that of a single batch.

    Several values in an epoch, or of no known epoch, may be those of batches.
    """
    if column.endswith("accuracy") and not 0 <= series.low <= series.high <= 1:
        return False
    is_of_epoch = bool(series.by_epoch) and not series.has_stray and series.most_per_epoch == 1
    return is_exact or column.startswith("val_") or is_of_epoch

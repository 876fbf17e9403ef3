"""Metrics of a cell that its program did not log itself, in order of trust.

======================  ==================================================
origin                  where
======================  ==================================================
(none)                  logged, by the interface of this package
`returned`              what the program's task returned
`printed`               numbers in its output
`metrics.csv`           Lightning's table of metrics, in the run folder
`event file`            scalars of TensorBoard's files, in the run folder
======================  ==================================================

The first source that has a name gives its value.
"""

import csv
import math
import os
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from numbers import Real
from pathlib import Path
from typing import Any

import msgspec

from runmanager.errors import RecordError
from runmanager.records.files.paths import RunPaths
from runmanager.records.run.run_record import EpochRecord, RunRecord
from runmanager.records.storage.reader import read_epochs

__all__ = ["FoundMetrics", "diverged_metric", "logged_only", "merged_metrics", "returned_metrics"]

Metrics = dict[str, float | None]

_COLUMNS = ("loss", "accuracy", "val_loss", "val_accuracy")
_COUNTERS = frozenset({"epoch", "step", "hp_metric"})  # written by Lightning beside the metrics; the last is made up
_LOSS = re.compile(r"(^|[^a-z])loss($|[^a-z])", re.IGNORECASE)
_UNNAMED = "objective"


@dataclass
class FoundMetrics:
    """What a program returned and printed: metrics by name, None for one that is not finite, and notes.

    `value` is the number that it returned, for Hydra.
    """

    returned: Metrics = field(default_factory=dict)
    printed: Metrics = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)
    value: float | None = None


def returned_metrics(value: Any, *, name: str | None) -> FoundMetrics:
    """Return the metrics that a task returned: a number, which is metric `name`, or a mapping of names to numbers.

    A tensor or an array of one element is a number. Anything else is ignored, with a note.
    """
    found = FoundMetrics()
    if value is None:
        return found
    number = _number(value)
    if number is not None:
        return FoundMetrics({name or _UNNAMED: _finite(number)}, value=number)
    if isinstance(value, Mapping):
        numbers = {str(key): _number(each) for key, each in value.items()}
        found.returned = {key: _finite(each) for key, each in numbers.items() if each is not None}
        found.value = numbers.get(name) if name is not None else None
        if ignored := [key for key, each in numbers.items() if each is None]:
            found.notes.append(f"of what the task returned, {', '.join(ignored)} is ignored: not a number")
        return found
    found.notes.append(f"what the task returned is ignored: {type(value).__name__} is neither a number nor a mapping")
    return found


def _number(value: Any) -> float | None:
    if isinstance(value, bool):
        return None
    if isinstance(value, Real):
        return float(value)
    size = getattr(value, "numel", None)  # of a tensor; of an array `size`
    count = size() if callable(size) else getattr(value, "size", None)
    if count != 1 or not hasattr(value, "item"):
        return None
    item = value.item()
    return float(item) if isinstance(item, int | float) and not isinstance(item, bool) else None


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
    epochs = _epochs(paths)
    has_logged = bool(known.summary) or bool(epochs)
    logged = dict.fromkeys(_logged_names(epochs))
    summary: Metrics = dict(known.summary or {})
    origins: dict[str, str] = {}
    sources = {
        "returned": found.returned,
        "printed": found.printed,
        "metrics.csv": _from_tables(paths),
        "event file": _from_event_files(paths, with_own=not has_logged),
    }
    for origin, metrics in sources.items():
        for name, value in metrics.items():
            if name not in summary and name not in logged:
                summary[name], origins[name] = value, origin
    changes = {
        "summary": summary or msgspec.UNSET,
        "origins": origins or msgspec.UNSET,
        "notes": tuple(dict.fromkeys((*known.notes, *found.notes))),
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


def _files_below(root: Path, wanted: Any) -> list[Path]:
    """The files below a run folder that earlier attempts have not left, oldest first."""
    found = []
    for folder, inner, names in os.walk(root):
        inner[:] = [name for name in inner if not (Path(folder) == root and (name == "attempts" or name[0] == "."))]
        found += [Path(folder, name) for name in names if wanted(name)]
    return sorted(found, key=lambda path: path.stat().st_mtime_ns)


def _from_tables(paths: RunPaths) -> Metrics:
    """The last value of each column of Lightning's tables; a cell is empty where a metric was not logged."""
    metrics: Metrics = {}
    for path in _files_below(paths.root, lambda name: name == "metrics.csv"):
        with path.open(newline="", encoding="utf-8", errors="replace") as file:
            for row in csv.DictReader(file):
                metrics.update(_numbers_of_row(row))
    return metrics


def _numbers_of_row(row: Mapping[str | None, Any]) -> Iterator[tuple[str, float | None]]:
    for name, text in row.items():
        if not name or name in _COUNTERS or not isinstance(text, str) or not text.strip():
            continue
        try:
            yield name, _finite(float(text))
        except ValueError:
            continue


def _from_event_files(paths: RunPaths, *, with_own: bool) -> Metrics:
    """The last value of each scalar; files directly in the folder may be ours, where the program has logged."""
    from runmanager.results.tfevents.reader import is_event_file, read_event_files

    files = _files_below(paths.root, is_event_file)
    chosen = [path for path in files if with_own or path.parent != paths.root]
    scalars = read_event_files(chosen).scalars if chosen else {}
    return {tag: _finite(series.values[-1]) for tag, series in scalars.items() if tag not in _COUNTERS}

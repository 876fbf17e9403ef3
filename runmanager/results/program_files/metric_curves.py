"""The course of a metric over its steps, from the files of a run whose epochs do not have it."""

import math
import os
from collections.abc import Mapping, Sequence
from pathlib import Path

import msgspec

from runmanager.records.files.paths import EVENT_WRITER, RunPaths
from runmanager.records.run.run_record import counted_word
from runmanager.records.storage.reader import StoredRun
from runmanager.results.metrics.metric import Metric
from runmanager.results.program_files.folder_metrics import read_metrics
from runmanager.results.program_files.found_metrics import ELSEWHERE_EVENTS
from runmanager.results.program_files.metric_naming import EVENT_FILE
from runmanager.results.tfevents.reader import read_event_files, writer_of

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

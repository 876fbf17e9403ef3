"""The course of a metric over its steps, from the files of a run whose epochs do not have it."""

import math
from collections.abc import Mapping

from runmanager.records.files.paths import EVENT_WRITER, RunPaths
from runmanager.results.program_files.folder_metrics import read_metrics
from runmanager.results.tfevents.reader import read_event_files, writer_of

__all__ = ["metric_by_step", "metrics_by_step"]

_PRINTED = "printed"  # the origin, and the folder where a program logs itself
_EVENTS = "events.out.tfevents.*"


def metrics_by_step(run: RunPaths, origins: Mapping[str, str]) -> dict[str, dict[int, float]]:
    """Return `metric_by_step` of every metric in `origins` that some file has; the files are read once."""
    printed = {name: _printed(run, name) for name, origin in origins.items() if origin == _PRINTED}
    in_files = {name: origin for name, origin in origins.items() if origin != _PRINTED}
    read = read_metrics(run.root).metrics if in_files and run.root.is_dir() else []
    stored = {each.name: each.series.points for each in read if in_files.get(each.name) == each.origin}
    found = {name: printed.get(name) or stored.get(name) or {} for name in origins}
    return {name: points for name, points in found.items() if points}


def metric_by_step(run: RunPaths, name: str, origins: Mapping[str, str]) -> dict[int, float]:
    """Return the values of a metric by step, those of a long series at even steps; empty where no file has them.

    `origins` are those of the run's record. A printed metric counts its values from 1. Damaged files give what could be
    read.
    """
    origin = origins.get(name)
    if origin is None:
        return {}
    if origin == _PRINTED:
        return _printed(run, name)
    if not run.root.is_dir():
        return {}
    found = (each for each in read_metrics(run.root).metrics if each.name == name and each.origin == origin)
    return next((each.series.points for each in found), {})


def _printed(run: RunPaths, name: str) -> dict[int, float]:
    """A printed series: in a file of its own where the program logs itself, else in the run's event file."""
    for folder in (run.root / _PRINTED, run.root):
        files = [path for path in sorted(folder.glob(_EVENTS)) if writer_of(path) == EVENT_WRITER]
        if (series := read_event_files(files).scalars.get(name)) is not None:
            steps = zip(series.steps, series.values, strict=True)
            return {step: value if math.isfinite(value) else math.nan for step, value in steps}
    return {}

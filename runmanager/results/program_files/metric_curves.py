"""The course of a metric over its steps, from the files of a run whose epochs do not have it."""

import math
from collections.abc import Mapping
from pathlib import Path

import msgspec

from runmanager.records.files.paths import EVENT_WRITER, RunPaths
from runmanager.results.program_files.folder_metrics import read_metrics
from runmanager.results.tfevents.reader import read_event_files, writer_of

__all__ = ["metric_by_step"]

_PRINTED = "printed"  # the origin, and the folder where a program logs itself
_EVENTS = "events.out.tfevents.*"


def metric_by_step(
    run: RunPaths, name: str, origins: Mapping[str, str], *, adopted: str | msgspec.UnsetType = msgspec.UNSET
) -> dict[int, float]:
    """Return the values of a metric by step, those of a long series at even steps; empty where no file has them.

    `origins` are those of the run's record; `adopted` is the folder of an adopted run, which has its files. A printed
    metric counts its values from 1. Damaged files give what could be read.
    """
    origin = origins.get(name)
    if origin is None:
        return {}
    if origin == _PRINTED:
        return _printed(run, name)
    folder = Path(adopted) if isinstance(adopted, str) else run.root
    if not folder.is_dir():
        return {}
    found = (each for each in read_metrics(folder).metrics if each.name == name and each.origin == origin)
    return next((each.series.points for each in found), {})


def _printed(run: RunPaths, name: str) -> dict[int, float]:
    """A printed series: in a file of its own where the program logs itself, else in the run's event file."""
    for folder in (run.root / _PRINTED, run.root):
        files = [path for path in sorted(folder.glob(_EVENTS)) if writer_of(path) == EVENT_WRITER]
        if (series := read_event_files(files).scalars.get(name)) is not None:
            steps = zip(series.steps, series.values, strict=True)
            return {step: value if math.isfinite(value) else math.nan for step, value in steps}
    return {}

"""The course of a metric over its steps, from the files of a run whose epochs do not have it."""

import math
from collections.abc import Mapping
from pathlib import Path

import msgspec

from runmanager.records.files.paths import EVENT_WRITER, RunPaths
from runmanager.results.program_files.folder_metrics import read_metrics
from runmanager.results.tfevents.reader import read_event_files, writer_of

__all__ = ["metric_by_step", "metrics_by_step"]

_PRINTED = "printed"  # the origin, and the folder where a program logs itself
_EVENTS = "events.out.tfevents.*"


def metrics_by_step(
    run: RunPaths, origins: Mapping[str, str], *, adopted: str | msgspec.UnsetType = msgspec.UNSET
) -> dict[str, dict[int, float]]:
    """Return the values of each metric in `origins` by step, those of a long series at even steps.

    `origins` are those of the run's record; `adopted` is the folder of an adopted run, which has its files. A metric
    that no file has is left out. A printed metric counts its values from 1. Damaged files give what could be read.
    """
    printed = {name: _printed(run, name) for name, origin in origins.items() if origin == _PRINTED}
    in_files = {name: origin for name, origin in origins.items() if origin != _PRINTED}
    folder = Path(adopted) if isinstance(adopted, str) else run.root
    read = read_metrics(folder).metrics if in_files and folder.is_dir() else []
    stored = {each.name: each.series.points for each in read if in_files.get(each.name) == each.origin}
    found = {name: printed.get(name) or stored.get(name) or {} for name in origins}
    return {name: points for name, points in found.items() if points}


def metric_by_step(
    run: RunPaths, name: str, origins: Mapping[str, str], *, adopted: str | msgspec.UnsetType = msgspec.UNSET
) -> dict[int, float]:
    """Return `metrics_by_step` of one metric; empty where no file has it."""
    origin = {name: origins[name]} if name in origins else {}
    return metrics_by_step(run, origin, adopted=adopted).get(name, {})


def _printed(run: RunPaths, name: str) -> dict[int, float]:
    """A printed series: in a file of its own where the program logs itself, else in the run's event file."""
    for folder in (run.root / _PRINTED, run.root):
        files = [path for path in sorted(folder.glob(_EVENTS)) if writer_of(path) == EVENT_WRITER]
        if (series := read_event_files(files).scalars.get(name)) is not None:
            steps = zip(series.steps, series.values, strict=True)
            return {step: value if math.isfinite(value) else math.nan for step, value in steps}
    return {}

"""The metrics that a program left in files below its run's folder, under the names that tables use."""

from collections.abc import Collection
from dataclasses import dataclass
from pathlib import Path

from runmanager.results.program_files.folder_metrics import read_metrics

__all__ = ["FoundMetrics", "found_metrics"]


@dataclass(frozen=True)
class FoundMetrics:
    """The last value of each metric by name, where it comes from (`event file`, `metrics.csv`), and notes."""

    values: dict[str, float]
    origins: dict[str, str]
    notes: tuple[str, ...] = ()


def found_metrics(folder: Path, *, apart_from: Collection[str] = ()) -> FoundMetrics:
    """Return the metrics that a program left in event files and metrics.csv anywhere below its run's folder.

    Names that mean one of the four columns get its name (`column_of_metric`). Metrics in `apart_from`, which are known
    from a source of more trust, are left out under either name. This package's own event files and those of earlier
    attempts are not read. Never raises for what is on the disk: `notes` name files that are damaged or too large.
    """
    found = read_metrics(folder)
    metrics = [each for each in found.metrics if not {each.name, each.series.name} & set(apart_from)]
    values = {each.name: each.series.last for each in metrics}
    return FoundMetrics(values, {each.name: each.origin for each in metrics}, tuple(found.notes))

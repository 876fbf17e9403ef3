"""The metrics that a program left in files, under the names that tables use."""

from collections.abc import Collection
from dataclasses import dataclass, field

from runmanager.records.files.paths import RunPaths
from runmanager.results.program_files.folder_metrics import ProgramMetrics, read_metrics

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

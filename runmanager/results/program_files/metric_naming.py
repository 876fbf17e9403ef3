"""Names for the metrics of several files: each its own, and that of a column of every table where it means one."""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import PurePath

from runmanager.records.run.metric_names import column_of_metric
from runmanager.results.program_files.metric_series import MetricSeries
from runmanager.results.program_files.metric_tables import TABLES

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

"""What the programs of runs logged: the last value of each metric, the throughput of each unit, declared directions."""

import math
from collections import defaultdict
from collections.abc import Iterable, Sequence

import msgspec

from runmanager.records.run.run_record import EpochRecord
from runmanager.results.stats.descriptive import median

__all__ = [
    "LoggedNames",
    "LoggedNamesTable",
    "declared_directions",
    "last_metrics",
    "unit_names",
    "unit_rate",
    "unit_rates",
]


class LoggedNames(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """The names of what a run logged, in order of appearance, and its declared directions by metric (`min`, `max`)."""

    metrics: tuple[str, ...] = ()
    units: tuple[str, ...] = ()
    better: tuple[tuple[str, str], ...] = ()


class LoggedNamesTable:
    """The different `LoggedNames` of a sweep's runs: almost all runs log the same, so each has an index only.

    Index 0 is that of a run that logged nothing.
    """

    def __init__(self, known: Iterable[LoggedNames] = ()) -> None:
        self._indices = {LoggedNames(): 0}
        for names in known:
            self.index_of(names)

    def index_of(self, names: LoggedNames) -> int:
        """Return the index of these names, which are added if they are new."""
        return self._indices.setdefault(names, len(self._indices))

    @property
    def names(self) -> list[LoggedNames]:
        """All names, by their index."""
        return list(self._indices)


def last_metrics(epochs: Iterable[EpochRecord]) -> dict[str, float | None]:
    """Return each metric's value of the last epoch that logged it; None if that is not finite."""
    values: dict[str, float | None] = {}
    for epoch in epochs:
        if epoch.metrics:
            values.update(epoch.metrics)
    return values


def unit_names(epochs: Iterable[EpochRecord]) -> list[str]:
    """Return the units that the epochs counted beside samples, in order of appearance."""
    return list(dict.fromkeys(unit for epoch in epochs if epoch.units for unit in epoch.units))


def unit_rate(epoch: EpochRecord, unit: str) -> float | None:
    """Return a unit's throughput in the training part of an epoch; None where it has none or it was not timed."""
    count, seconds = (epoch.units or {}).get(unit), epoch.epoch_seconds
    rate = count / seconds if count and count > 0 and seconds and seconds > 0 else None
    return None if rate is None or math.isinf(rate) else rate


def unit_rates(measured: Sequence[EpochRecord], units: Iterable[str]) -> dict[str, float | None]:
    """Return the median throughput of each unit over the measured epochs that have it."""
    rates = {unit: [unit_rate(epoch, unit) for epoch in measured] for unit in units}
    return {unit: median([rate for rate in values if rate is not None]) for unit, values in rates.items()}


def declared_directions(names: Iterable[LoggedNames]) -> dict[str, bool]:
    """Return whether larger values are better, for each metric whose declarations agree in all runs."""
    declared: defaultdict[str, set[str]] = defaultdict(set)
    for each in names:
        for metric, better in each.better:
            declared[metric].add(better)
    return {metric: directions == {"max"} for metric, directions in declared.items() if len(directions) == 1}

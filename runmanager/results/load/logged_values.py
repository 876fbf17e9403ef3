"""What the programs of runs logged: metrics with their last values, units with their throughput."""

import math
from collections.abc import Iterable, Sequence

import msgspec

from runmanager.records.run.measurement import OUTCOMES
from runmanager.records.run.run_record import EpochRecord, RunRecord
from runmanager.results.stats.descriptive import median

__all__ = [
    "LoggedNames",
    "LoggedNamesTable",
    "last_metrics",
    "last_with_outcome",
    "metric_names",
    "summary_metrics",
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


def last_with_outcome(record: RunRecord, epochs: Sequence[EpochRecord], name: str) -> EpochRecord | None:
    """Return the epoch whose value of one of `OUTCOMES` is the run's: the last one.

    Of intervals of steps it is the last one that has any, as few are evaluated.
    """
    if record.interval == "steps":
        return next((each for each in reversed(epochs) if getattr(each, name) is not None), None)
    return epochs[-1] if epochs else None


def last_metrics(epochs: Iterable[EpochRecord]) -> dict[str, float | None]:
    """Return each metric's value of the last epoch that logged it; None if that is not finite."""
    values: dict[str, float | None] = {}
    for epoch in epochs:
        if epoch.metrics:
            values.update(epoch.metrics)
    return values


def metric_names(epochs: Iterable[EpochRecord]) -> list[str]:
    """Return the metrics that the epochs logged, in order of appearance."""
    return list(dict.fromkeys(name for epoch in epochs if epoch.metrics for name in epoch.metrics))


def summary_metrics(record: RunRecord) -> dict[str, float | None]:
    """Return the metrics of a run's summary but for those that have a column of their own."""
    return {name: value for name, value in (record.summary or {}).items() if name not in OUTCOMES}


def unit_names(epochs: Iterable[EpochRecord]) -> list[str]:
    """Return the units that the epochs counted in addition to samples, in order of appearance."""
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

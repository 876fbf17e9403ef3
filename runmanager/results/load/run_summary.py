"""The summary of a run: its row of the results table with what its program logged, small enough to be cached.

What the meters of the run's device say is read here too: columns, and what a reader must know of its clock.
"""

import math
from collections.abc import Container, Iterable, Sequence
from dataclasses import dataclass
from operator import attrgetter
from typing import Any, NamedTuple

import msgspec

from runmanager.records.files.paths import SweepPaths
from runmanager.records.run.environment_changes import describe_attempts
from runmanager.records.run.heartbeat import describe_last_heartbeat
from runmanager.records.run.measurement import MEASUREMENTS, OUTCOMES, Taken, named
from runmanager.records.run.program_report import ProgramKind, kind_of_program
from runmanager.records.run.run_record import DeviceReadings, EpochRecord, RunRecord
from runmanager.records.run.status import is_complete
from runmanager.records.storage.labels import NO_LABELS, SweepLabels
from runmanager.records.storage.reader import Damage, StoredRun, SweepContents
from runmanager.records.sweep.sweep_record import SweepRecord
from runmanager.results.load.contention import Exposure, exposure_of
from runmanager.results.stats.descriptive import iqr, median
from runmanager.results.table_model.columns import RESULT_COLUMNS

READING_COLUMNS = ("energy_joules", "samples_per_joule", "average_power_watts", "gpu_utilization", "throttled_share")

_LEAST_STEPS = 10.0  # of the counter, of which a sum misses or has one too many at either end
_STEADY = 1.1  # clocks of a settled GPU differ by less, and times follow the clock at most in proportion


class ClockChanges(NamedTuple):
    """The share of readings in which a run's device was throttled, and the lowest and the highest clock in hertz."""

    throttled_share: float = 0.0
    lowest: float = 0.0
    highest: float = 0.0

    @property
    def is_unsteady(self) -> bool:
        """Whether the clock at the ends of epochs, or turns, differed by more than a tenth."""
        return self.highest > _STEADY * self.lowest

    def lines(self) -> list[str]:
        """Return what a reader of the run's times must know; empty for a steady clock."""
        share = f"{self.throttled_share:.0%} of the readings" if self.throttled_share >= 0.005 else "a few readings"
        clocks = f"{self.lowest / 1e6:,.0f} to {self.highest / 1e6:,.0f} MHz"
        return [
            *([f"its device was throttled in {share}"] if self.throttled_share else []),
            *([f"its device's clock changed from {clocks}"] if self.is_unsteady else []),
        ]


def clock_changes(run: StoredRun, measured: Sequence[EpochRecord]) -> ClockChanges:
    """Return what happened to the clock in the run's turns, or in these epochs of one that took none."""
    found = _readings(measured)
    in_turns = [turn.clock_hertz or None for turn in run.turns if not turn.warmup]
    clocks = [hertz for hertz in in_turns or [each.clock_hertz for each in found] if hertz]
    return ClockChanges(_mean(found, "throttled_share") or 0.0, min(clocks, default=0.0), max(clocks, default=0.0))


def readings_of(run: StoredRun, measured: Sequence[EpochRecord]) -> dict[str, float | None]:
    """Return `READING_COLUMNS` of a run with these measured epochs.

    The energy is known where that of all these epochs is, and their counter took at least ten steps in them. Of several
    ranks each has a device, of which one was read.
    """
    found = _readings(measured)
    others = any(each.others_share for each in found)
    joules, watts = _energy(found) if len(found) == len(measured) and run.world_size == 1 else (None, None)
    samples = [epoch.known_samples for epoch in measured]
    known = [count for count in samples if count is not None]
    per_joule = sum(known) / joules if joules and sum(known) and len(known) == len(samples) else None
    utilization, throttled = (None if others else _mean(found, name) for name in ("utilization", "throttled_share"))
    return dict(zip(READING_COLUMNS, (joules, per_joule, watts, utilization, throttled), strict=True))


def _energy(found: Sequence[DeviceReadings]) -> tuple[float | None, float | None]:
    """Return the joules and the mean power, each None if unknown."""
    if any(each.joules is None or each.seconds is None or each.counter_steps is None for each in found):
        return None, None
    joules, seconds, steps = (math.fsum(getattr(each, name) for each in found) for name in _OF_COUNTER)
    return (joules, joules / seconds) if steps >= _LEAST_STEPS and joules > 0 and seconds > 0 else (None, None)


_OF_COUNTER = ("joules", "seconds", "counter_steps")


def _readings(measured: Sequence[EpochRecord]) -> list[DeviceReadings]:
    return [epoch.readings for epoch in measured if epoch.readings]


def _mean(found: Sequence[DeviceReadings], name: str) -> float | None:
    values = [value for each in found if (value := getattr(each, name)) is not None]
    return math.fsum(values) / len(values) if values else None


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


SUMMARY_COLUMNS = ("status", "reason", *(name for name in RESULT_COLUMNS if name not in ("contended", "run_dir")))
"""The columns of results.csv that follow from a run alone; contention depends on the other runs."""

OVERALL_RATE = "overall_samples_per_second"
"""The throughput over all measured epochs together, in which slow epochs weigh by their time."""

_EMPTY: dict[str, Any] = dict.fromkeys(SUMMARY_COLUMNS)


class RunSummary(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """The summary of a run: `values` are those of `SUMMARY_COLUMNS`, `folder` is the name of its folder.

    `own_settings` is None, and `choices` is empty, where the sweep's plan has them. `num_unmeasured` counts the epochs
    of a run whose epochs are all warm-up. `attempt_notes` are lines about epochs that were trained elsewhere,
    `deviations` about deviations from the settings. `last_seen` has the last heartbeat of a running run that cannot be
    observed from this host, else it is empty. `logged` is the index of the `SweepSummary.logged_names` of its
    `logged_values`: the metrics' values of the run or of their last epoch, then the median throughput of each unit.
    `clock_notes` are lines about the clock of its device. `kind` is that of its program, `world_size` that of
    `StoredRun`.
    """

    folder: str
    name: str
    signature: str
    values: tuple[Any, ...]
    exposure: Exposure
    own_settings: dict[str, Any] | None = None
    num_unmeasured: int = 0
    attempt_notes: tuple[str, ...] = ()
    last_seen: str = ""
    deviations: tuple[str, ...] = ()
    logged: int = 0
    logged_values: tuple[float | None, ...] = ()
    kind: ProgramKind = ProgramKind.LOOP
    continued_from: str = ""
    world_size: int = 1
    choices: dict[str, Any] = {}
    clock_notes: tuple[str, ...] = ()

    @property
    def settings(self) -> dict[str, Any]:
        assert self.own_settings is not None  # used only where the plan does not have the run
        return self.own_settings

    @property
    def is_adopted(self) -> bool:
        return self.kind is ProgramKind.ADOPTED

    @property
    def status(self) -> str:
        status: str = self.values[_STATUS]
        return status

    @property
    def is_complete(self) -> bool:
        """Whether the run counts: it has finished, and a search has not pruned it."""
        return is_complete(self.status, self.values[_REASON])

    @property
    def started_at(self) -> str | None:
        started: str | None = self.values[_STARTED_AT]
        return started


_STATUS = SUMMARY_COLUMNS.index("status")
_REASON = SUMMARY_COLUMNS.index("reason")
_STARTED_AT = SUMMARY_COLUMNS.index("started_at")


@dataclass(frozen=True)
class SweepSummary:
    """The summaries of a sweep's runs, in order of start, what is damaged, what the runs logged, and the labels."""

    paths: SweepPaths
    runs: Sequence[RunSummary]
    damaged: Sequence[Damage] = ()
    logged_names: Sequence[LoggedNames] = (LoggedNames(),)
    labels: SweepLabels = NO_LABELS


def summarize(sweep: SweepContents, plan: SweepRecord | None) -> SweepSummary:
    """Summarize all runs of a sweep."""
    planned = planned_signatures(plan)
    logged = LoggedNamesTable()
    runs = [summarize_run(run, planned, logged) for run in sweep.runs]
    return SweepSummary(sweep.paths, runs, sweep.damaged, logged.names, sweep.labels)


def planned_signatures(plan: SweepRecord | None) -> Container[str]:
    """Return the signatures of the cells whose settings are in the plan."""
    return frozenset(cell.signature for cell in plan.planned) if plan else frozenset()


def summarize_run(run: StoredRun, planned: Container[str], logged: LoggedNamesTable | None = None) -> RunSummary:
    """Summarize one run, without its settings where it is one of the `planned` ones.

    The names of what it logged are added to `logged`, by default to a table of its own.
    """
    names, values_of_logged = logged_values(run)
    is_warmup = bool(run.epochs) and run.epochs[-1].epoch > 0 and all(epoch.warmup for epoch in run.epochs)
    return RunSummary(
        run.paths.name,
        run.record.name,
        run.record.signature,
        _values(run),
        exposure_of(run),
        None if run.record.signature in planned else run.record.settings,
        sum(epoch.epoch > 0 for epoch in run.epochs) if is_warmup else 0,
        tuple(describe_attempts(run.record)),
        _last_seen(run) if run.record.is_running_elsewhere else "",
        run.record.deviations,
        (logged or LoggedNamesTable()).index_of(names),
        values_of_logged,
        kind_of_program(run.record),
        run.continued_from,
        run.world_size,
        {} if run.record.signature in planned else run.choices,
        tuple(clock_changes(run, measured_epochs(run)).lines()),
    )


def measured_epochs(run: StoredRun) -> list[EpochRecord]:
    """Return the epochs that count in medians: those that were timed and are not warm-up."""
    return [epoch for epoch in run.epochs if not epoch.warmup and epoch.epoch_seconds is not None]


def overall_rate(measured: Sequence[EpochRecord]) -> float | None:
    """Return the samples of all these epochs over their training seconds; None where no epoch has a throughput."""
    timed = [(epoch.samples, epoch.epoch_seconds or 0.0) for epoch in measured if epoch.samples_per_second]
    return sum(samples for samples, _ in timed) / math.fsum(seconds for _, seconds in timed) if timed else None


def _values(run: StoredRun) -> tuple[Any, ...]:
    """Return the values of `SUMMARY_COLUMNS`, in that order."""
    record, epochs = run.record, run.epochs
    row: dict[str, Any] = _EMPTY | {
        "status": record.status.value,
        "reason": None if record.reason is None else record.reason.value,
        "epochs": None if run.is_damaged and not epochs else len(epochs) - (len(epochs) > 0 and epochs[0].epoch == 0),
        "device_name": record.environment.device_name,
        **dict(zip(_OF_RECORD, _values_of_record(record), strict=True)),
    }
    if epochs:
        row.update((name, getattr(last_with_outcome(record, epochs, name), name, None)) for name in OUTCOMES)
        if record.run_seconds is None:
            row["run_seconds"] = epochs[-1].run_seconds
        measured = measured_epochs(run)
        row.update(_times(measured))
        row.update(readings_of(run, measured))
    row.update((name, value) for name, value in (record.summary or {}).items() if name in OUTCOMES)
    return tuple(row.values())


_OF_RECORD = named(each for each in MEASUREMENTS if each.taken is Taken.RECORD)
_values_of_record = attrgetter(*_OF_RECORD)
_MEDIANS = named(each for each in MEASUREMENTS if each.taken is Taken.MEDIAN)
_medians_of = attrgetter(*_MEDIANS)


def _times(measured: Sequence[EpochRecord]) -> dict[str, float | None]:
    """Return each column's median over the epochs that have it, and the interquartile range of `epoch_seconds`."""
    values = zip(*map(_medians_of, measured), strict=True)
    known = {name: [v for v in column if v is not None] for name, column in zip(_MEDIANS, values, strict=False)}
    times = {name: median(column) for name, column in known.items()}
    return times | {"epoch_seconds_iqr": iqr(known.get("epoch_seconds", [])), OVERALL_RATE: overall_rate(measured)}


def logged_values(run: StoredRun) -> tuple[LoggedNames, tuple[float | None, ...]]:
    """Return the names of what a run logged, and the values: those of the metrics, then the rates of the units."""
    metrics = last_metrics(run.epochs) | summary_metrics(run.record)
    units = unit_names(run.epochs)
    rates = unit_rates(measured_epochs(run), units) if units else {}
    better = tuple((run.record.better or {}).items())
    return LoggedNames(tuple(metrics), tuple(units), better), (*metrics.values(), *rates.values())


def _last_seen(run: StoredRun) -> str:
    assert run.record.owner is not None
    return f"{run.record.name} on {run.record.owner.host} ({describe_last_heartbeat(run.beat)})"


def damage_notes(damaged: Iterable[Damage]) -> list[str]:
    """Describe what could not be read, one line each."""
    return [f"Not read: {damage.message}" for damage in damaged]

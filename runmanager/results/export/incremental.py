"""Parts shared by all exports: optional packages, names and fingerprints, and the result of an incremental export."""

import hashlib
import importlib
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from types import ModuleType
from typing import Any

import msgspec

from runmanager.errors import UsageError
from runmanager.records.run.measurement import MEASUREMENTS, OUTCOMES, RUN_FACTS, named
from runmanager.records.run.run_record import EpochRecord
from runmanager.records.settings.values import flatten
from runmanager.records.storage.reader import StoredRun
from runmanager.results.load.run_summary import (
    last_metrics,
    measured_epochs,
    summary_metrics,
    unit_names,
    unit_rate,
    unit_rates,
)
from runmanager.results.table_model.columns import FIXED_COLUMNS, LoggedColumns, logged_columns
from runmanager.text import pluralize

_EPOCH_METRICS = named(each for each in MEASUREMENTS if each.is_of_epochs)
"""The fixed metrics exported for each epoch, by the column names of epochs.csv."""

_RUN_FACTS = ("folder", "deviations")  # names of exported values of a whole run that have no column
_MAX_NAMED = 10


@dataclass(frozen=True)
class ExportResult:
    """The number of runs that an export wrote, and of those that were already up to date.

    `changes` are sentences about what has another name or value there.
    """

    where: str
    num_written: int
    num_kept: int = 0
    changes: tuple[str, ...] = ()

    def describe(self) -> str:
        kept = f", {pluralize(self.num_kept, 'was up to date', 'were up to date')}" if self.num_kept else ""
        return "\n".join([f"{pluralize(self.num_written, 'run')} written to {self.where}{kept}.", *self.changes])


def distinct_names(
    names: Iterable[str],
    convert: Callable[[str], str],
    *,
    max_length: int | None = None,
    is_same_in_any_case: bool = False,
) -> dict[str, str]:
    """Return what `convert` makes of each name, and a number after it where another name has that already.

    Names that need no change come first, those of columns of every table before others, each in alphabetical order: all
    runs of a sweep get the same names if `names` are those of all of them. With `is_same_in_any_case` names that differ
    in case only are not distinct.
    """
    converted = {name: convert(name)[:max_length] for name in names}
    found: dict[str, str] = {}
    taken: set[str] = set()
    for name in sorted(converted, key=lambda name: (converted[name] != name, name not in FIXED_COLUMNS, name)):
        given, number = converted[name], 1
        while (key := given.casefold() if is_same_in_any_case else given) in taken:
            number += 1
            end = f"_{number}"
            given = converted[name][: None if max_length is None else max_length - len(end)] + end
        taken.add(key)
        found[name] = given
    return found


@dataclass(frozen=True)
class NamesElsewhere:
    """The names that another tool gets for the settings and for the metrics of a sweep, by their own names."""

    settings: Mapping[str, str]
    metrics: Mapping[str, str]

    def changes(self, tool: str) -> list[str]:
        """Return a sentence that tells the changed names, if there are any."""
        both = {"setting": self.settings, "metric": self.metrics}
        changed = [f"the {kind} {a} is {b}" for kind, names in both.items() for a, b in names.items() if a != b]
        more = [f"and {len(changed) - _MAX_NAMED:,} more"] if len(changed) > _MAX_NAMED else []
        return [f"Other names in {tool}: {', '.join([*changed[:_MAX_NAMED], *more])}."] if changed else []


def names_elsewhere(
    runs: Iterable[StoredRun],
    *,
    setting_name: Callable[[str], str],
    metric_name: Callable[[str], str],
    max_length: int | None = None,
) -> NamesElsewhere:
    """Return the names that another tool gets, given what it accepts of each; no two of a kind are the same."""
    settings: dict[str, None] = {}
    metrics: dict[str, None] = {}
    for run in runs:
        settings |= dict.fromkeys(flatten(run.record.config))
        metrics |= dict.fromkeys(exported_metrics(run))
    return NamesElsewhere(
        distinct_names(settings, setting_name, max_length=max_length),
        distinct_names(metrics, metric_name, max_length=max_length),
    )


def import_optional(name: str, *, extra: str) -> ModuleType:
    """Import the package that an export needs. Raises `UsageError` with an install command if it is missing."""
    try:
        return importlib.import_module(name)
    except ImportError:
        raise UsageError(
            f"`--to {extra}` must find the package {name}, got none; pip install 'torch-runmanager[{extra}]'."
        ) from None


def run_fingerprint(run: StoredRun, names: NamesElsewhere | None = None) -> str:
    """A text that changes whenever the results of a run do, or its `names` there; stored with each exported run."""
    record = run.record
    # The times distinguish a run from an earlier one of the same cell whose folder was deleted.
    times = f"{record.started_at} {record.resumed_at} {record.ended_at}"
    deviations = f" deviations={len(record.deviations)}" if record.deviations else ""
    state = f"attempt={record.attempt} status={record.status.value} epochs={len(run.epochs)}"
    # Without epochs these are all results, and a run that is adopted again has the same times.
    of_run = hashlib.sha256(msgspec.json.encode(record.summary)).hexdigest()[:16] if record.summary else ""
    renamed = _renamed(run, names) if names else ""
    return f"{record.signature} {state}{deviations} {times}{of_run and f' summary={of_run}'}{renamed}"


def _renamed(run: StoredRun, names: NamesElsewhere) -> str:
    """A hash of the names that are changed, as those of other runs decide about them too; empty without any."""
    settings = [(name, names.settings[name]) for name in flatten(run.record.config)]
    metrics = [(name, names.metrics[name]) for name in exported_metrics(run)]
    found = [pair for pair in (*settings, *metrics) if pair[0] != pair[1]]
    return f" names={hashlib.sha256(repr(found).encode()).hexdigest()[:16]}" if found else ""


def exported_names(run: StoredRun) -> LoggedColumns:
    """The names under which the metrics of a run's epochs and of its summary, and its rates, are exported.

    They are those of the tables, except that a setting may have the same name: other tools keep settings apart.
    """
    metrics = [*last_metrics(run.epochs), *summary_metrics(run.record)]
    return logged_columns(metrics, unit_names(run.epochs), _RUN_FACTS)


def exported_metrics(run: StoredRun) -> list[str]:
    """The names of all metrics that are exported of a run."""
    names = exported_names(run)
    in_columns = [name for name in run.record.summary or {} if name in OUTCOMES]
    return [*_EPOCH_METRICS, *named(RUN_FACTS), *in_columns, *names.metrics.values(), *names.rates.values()]


def epoch_metrics(epoch: EpochRecord, names: LoggedColumns) -> dict[str, float]:
    """The metrics of an epoch that were measured or logged, and the throughput of its units."""
    values: dict[str, Any] = {name: getattr(epoch, name) for name in _EPOCH_METRICS}
    values |= {names.metrics[name]: value for name, value in (epoch.metrics or {}).items()}
    values |= {names.rates[unit]: unit_rate(epoch, unit) for unit in epoch.units or {}}
    return {name: value for name, value in values.items() if value is not None}


def final_metrics(run: StoredRun, names: LoggedColumns) -> dict[str, float | None]:
    """The logged metrics and the rates of a whole run, as in results.csv; None for those that are missing there."""
    values = {names.metrics[name]: value for name, value in last_metrics(run.epochs).items()}
    rates = unit_rates(measured_epochs(run), names.rates)
    return values | summary_values(run, names) | {names.rates[unit]: rate for unit, rate in rates.items()}


def summary_values(run: StoredRun, names: LoggedColumns) -> dict[str, float | None]:
    """The metrics of a run's summary, which no epoch has: those that its program returned or printed, for example."""
    in_columns = {name: value for name, value in (run.record.summary or {}).items() if name in OUTCOMES}
    return in_columns | {names.metrics[name]: value for name, value in summary_metrics(run.record).items()}


def run_facts(run: StoredRun) -> dict[str, float | None]:
    """The numbers that are not those of epochs: parameters, memory."""
    return {name: getattr(run.record, name) for name in named(RUN_FACTS)}


def sync_runs(
    runs: Mapping[str, StoredRun],
    exported: Mapping[str, str],
    *,
    names: NamesElsewhere,
    remove: Callable[[str], None],
    write: Callable[[StoredRun], None],
) -> tuple[int, int]:
    """Bring another tool's store up to date; returns the numbers of runs written and kept.

    `runs` and the fingerprints of `exported` runs have the same keys. A changed run is removed, then written again.
    """
    written = 0
    for key, run in runs.items():
        if exported.get(key) == run_fingerprint(run, names):
            continue
        if key in exported:
            remove(key)
        write(run)
        written += 1
    return written, len(runs) - written

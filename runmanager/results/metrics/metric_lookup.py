"""The metrics that the runs of a sweep can be compared by: the built-in ones, and what their epochs recorded."""

import math
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from runmanager.errors import UsageError
from runmanager.records.run.measurement import COMPARED, LOSSES, OUTCOMES, Measurement, Taken, named
from runmanager.records.run.metric_names import MAX, by_preference
from runmanager.records.run.run_record import RunRecord
from runmanager.records.settings.signature import LATER
from runmanager.records.settings.values import flatten
from runmanager.records.storage.reader import StoredRun
from runmanager.results.load.run_summary import OVERALL_RATE, measured_epochs, overall_rate
from runmanager.results.metrics.metric import (
    LAST,
    THROUGHPUT,
    TIME_TO,
    At,
    Metric,
    epoch_metric,
    inference_metric,
    inference_names,
    recorded_metrics,
    recorded_units,
    time_to,
    time_to_accuracy,
    unit_rate_metric,
)
from runmanager.results.table_model.columns import Directions, LoggedColumns, logged_columns
from runmanager.text import format_value
from runmanager.validation import did_you_mean, fault

_TIME_TO_ACCURACY = "time_to_accuracy"


def _run_time(run: StoredRun) -> list[float]:
    """The time of the whole run, which is not its own if it continues another one.

    Without compilation: that takes a tenth of the time where an earlier run has left its results in a cache.
    """
    seconds = None if run.continued_from else run.record.run_seconds
    return [seconds - (run.record.measurements.compile_seconds or 0.0)] if seconds else []


def _overall(run: StoredRun) -> list[float]:
    rate = overall_rate(measured_epochs(run))
    return [] if rate is None else [rate]


_COMPUTED = {OVERALL_RATE: _overall, "run_seconds": _run_time}


def _metric_of(measured: Measurement) -> Metric:
    """Return the metric of what has a value for each measured epoch, or one for the run."""
    name, is_per_epoch = measured.name, measured.taken is Taken.MEDIAN

    def of_epochs(run: StoredRun) -> list[float]:
        return [value for epoch in run.epochs if not epoch.warmup and (value := getattr(epoch, name))]

    def of_record(run: StoredRun) -> list[float]:
        return [value] if (value := getattr(run.record, name)) else []

    values = _COMPUTED.get(name, of_epochs if is_per_epoch else of_record)
    return Metric(name, measured.effect, values, is_per_epoch, measured.better == MAX, f"no {name}")


_PLAIN_METRICS = named(COMPARED)
"""The metrics that any run may have."""

_BY_NAME = {each.name: _metric_of(each) for each in COMPARED if each.name not in OUTCOMES}
_BY_NAME[THROUGHPUT.name] = THROUGHPUT
SPEEDS = tuple(metric for metric in _BY_NAME.values() if metric.effect == "speedup")
"""Throughput and times."""

RUN_TIME = _BY_NAME["run_seconds"]

METRIC_NAMES: Sequence[str] = (*_PLAIN_METRICS, f"{_TIME_TO_ACCURACY}=SHARE")


def find_metric(text: str, runs: Sequence[StoredRun] = (), *, better: str | None = None, at: At = LAST) -> Metric:
    """Return the metric of that name: a built-in one, or one that an epoch of `runs` recorded.

    `time_to_accuracy=0.95` and `time_to_val/f1=0.8` include their target. `tokens_per_second` is the throughput of a
    recorded unit. Metrics of epochs count `at` the last or the best epoch. Their direction is `better`, else the one
    that the runs declared, else that of the name's words. A logged metric that has the name of another one is found
    under `metrics.`.

    Raises `UsageError` for an unknown metric, for a target that is not valid, for a metric of epochs whose direction is
    not known, and for `better` and `at` with a metric that they do not apply to.
    """
    name, separator, target = text.partition("=")
    if name == _TIME_TO_ACCURACY:
        _refuse(text, better=better, at=at)
        return time_to_accuracy(_parse_accuracy(target, text))
    if (known := _BY_NAME.get(text) or inference_metric(text)) is not None:
        _refuse(text, better=better, at=at)
        return known
    columns = _logged(runs)
    if (recorded := _of_epochs(text, columns)) is not None:
        more_is_better = Directions.of_runs(runs).required(recorded["name"], better=better, shown=text)
        return epoch_metric(text, **recorded, at=at, more_is_better=more_is_better)
    if (unit := _name_of(text, columns.rates)) is not None:
        _refuse(text, better=better, at=at)
        return unit_rate_metric(text, unit)
    name, separator, target = text.rpartition("=")
    goal = name.removeprefix(TIME_TO)
    if separator and goal != name and (recorded := _of_epochs(goal, columns)) is not None:
        _refuse(text, at=at)
        more_is_better = Directions.of_runs(runs).required(recorded["name"], better=better, shown=goal)
        return time_to(goal, **recorded, target=_parse_number(target, text), more_is_better=more_is_better)
    raise UsageError(_unknown(text, runs))


def known_metrics(runs: Sequence[StoredRun]) -> list[str]:
    """Return the names of all metrics of these runs, without times to a target."""
    columns = _logged(runs)
    return [*_PLAIN_METRICS, *inference_names(runs), *columns.metrics.values(), *columns.rates.values()]


def recorded_names(runs: Sequence[StoredRun]) -> list[str]:
    """Return the names of the metrics that the runs recorded themselves: `OUTCOMES` that they have, and logged ones."""
    epochs = [epoch for run in runs for epoch in run.epochs]
    of_runs = {name for run in runs for name in run.record.summary or {}}
    outcomes = [name for name in OUTCOMES if name in of_runs or any(getattr(each, name) is not None for each in epochs)]
    return [*outcomes, *_logged(runs).metrics.values()]


def default_metrics(runs: Sequence[StoredRun]) -> Iterator[str]:
    """Yield the metrics by which cells are ranked where none is requested, in order of preference.

    They are `OUTCOMES` and the logged metrics (`by_preference`); the latter are looked for only when they are needed.
    Each counts only where its direction is known, and losses only where all runs have the same loss function.
    """
    directions = Directions.of_runs(runs)

    def counts(column: str, name: str) -> bool:
        return directions.known(name) is not None and (column not in LOSSES or len(_losses(runs)) < 2)

    first = [name for name in by_preference(OUTCOMES) if name.startswith("val_")]
    yield from (name for name in first if counts(name, name))
    names = {name: name for name in OUTCOMES} | {column: name for name, column in _logged(runs).metrics.items()}
    yield from (each for each in by_preference(names) if each not in first and counts(each, names[each]))


def undirected_names(runs: Sequence[StoredRun]) -> list[str]:
    """Return the names of the recorded metrics if no direction of any is known, so that none ranks by default."""
    names = recorded_names(runs)
    return [] if set(default_metrics(runs)) & set(names) else names


def requested_metric(name: str, runs: Sequence[StoredRun], *, better: str | None = None) -> Metric | None:
    """Return a metric by the name under which a program recorded it; None if it did not, or without a direction."""
    try:
        return find_metric(_logged(runs).metrics.get(name, name), runs, better=better)
    except UsageError:
        return None


def has_metrics(runs: Sequence[StoredRun]) -> bool:
    """Whether any of the runs recorded a metric."""
    epochs = (epoch for run in runs for epoch in run.epochs)
    return any(run.record.summary for run in runs) or any(
        epoch.metrics or any(getattr(epoch, name) is not None for name in OUTCOMES) for epoch in epochs
    )


def finished_without_metrics(runs: Sequence[StoredRun]) -> list[StoredRun]:
    """Return the finished runs if no run recorded any metric, else none."""
    return [] if has_metrics(runs) else [run for run in runs if run.is_complete]


def _losses(runs: Sequence[StoredRun]) -> list[str]:
    return loss_functions([run.record for run in runs])


def any_direction(name: str, runs: Sequence[StoredRun]) -> Metric:
    """Return one of `known_metrics` for its values: its direction is arbitrary where it is not known."""
    try:
        return find_metric(name, runs)
    except UsageError:
        return find_metric(name, runs, better="max")


def _logged(runs: Sequence[StoredRun]) -> LoggedColumns:
    """Return the columns of what was logged, as in results.csv: a text then means the same everywhere."""
    settings = dict.fromkeys(name for run in runs for name in run.record.settings)
    return logged_columns(recorded_metrics(runs), recorded_units(runs), settings)


def _of_epochs(text: str, columns: LoggedColumns) -> dict[str, Any] | None:
    """Return the name in the record of a metric of epochs, and whether it was logged; None for any other text."""
    if text in OUTCOMES:
        return {"name": text, "logged": False}
    name = _name_of(text, columns.metrics)
    return None if name is None else {"name": name, "logged": True}


def _name_of(text: str, columns: Mapping[str, str]) -> str | None:
    return next((name for name, column in columns.items() if column == text), None)


def _refuse(text: str, *, better: str | None = None, at: At = LAST) -> None:
    """Refuse options of metrics of epochs. Raises `UsageError`."""
    if better is not None:
        raise UsageError(fault("--better", "go with a metric of epochs", f"'{text}'", "its direction is known"))
    if at != LAST:
        raise UsageError(fault("--at", "go with a metric of epochs", f"'{text}'", "it is not that of a single epoch"))


def _unknown(text: str, runs: Sequence[StoredRun]) -> str:
    name = text.partition("=")[0]
    known = known_metrics(runs)
    logged = known[len(_PLAIN_METRICS) :]
    goals = [f"{TIME_TO}{each}" for each in (*OUTCOMES, *_logged(runs).metrics.values())]
    listed = ", ".join([*METRIC_NAMES, *logged])
    way_out = did_you_mean(name, dict.fromkeys([*known, _TIME_TO_ACCURACY, *goals]), max_names=1)
    return f"`--metric` must be a metric of the runs, got '{text}'; {way_out or f'they are {listed}.'}"


def _parse_accuracy(target_text: str, text: str) -> float:
    target = _number(target_text)
    if not 0 < target <= 1:
        raise UsageError(
            f"`--metric` must name an accuracy above 0 and at most 1, got '{text}'; as in {_TIME_TO_ACCURACY}=0.95."
        )
    return target


def _parse_number(target_text: str, text: str) -> float:
    target = _number(target_text)
    if not math.isfinite(target):
        example = f"{text.rpartition('=')[0]}=0.8"
        raise UsageError(f"`--metric` must end in the number to reach, got '{text}'; as in {example}.")
    return target


def _number(text: str) -> float:
    try:
        return float(text)
    except ValueError:
        return math.nan


def printed_notes(name: str, runs: Sequence[StoredRun]) -> list[str]:
    """Say that a metric which decides something was printed, where runs have it from nowhere else."""
    is_printed = any((run.record.origins or {}).get(name) == "printed" for run in runs)
    return [f"{name} is what the program printed; it did not log it."] if is_printed else []


_TARGET = "_target_"


def loss_functions(records: Sequence[RunRecord]) -> list[str]:
    """Return the distinct losses of runs as texts: the target, and in brackets its settings.

    Runs of programs that do not set a loss by its target have the one of the built-in job's default.
    """
    settings = {id(loss): loss for record in records if (loss := record.config.get("loss")) is not None}
    texts = {_text(loss): None for loss in settings.values() if isinstance(loss, Mapping) and _TARGET in loss}
    if texts and any("loss" not in record.config for record in records):
        texts.setdefault(str(LATER[f"loss.{_TARGET}"]), None)
    return list(texts)


def _text(loss: Mapping[str, object]) -> str:
    others = [f"{name}={format_value(value)}" for name, value in sorted(flatten(loss).items()) if name != _TARGET]
    return f"{loss[_TARGET]}({', '.join(others)})" if others else str(loss[_TARGET])

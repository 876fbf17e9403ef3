"""The record and the epochs of an adopted run: what its files tell, and nothing else."""

import datetime
import math
from collections.abc import Sequence

import msgspec

from runmanager.app.adopt.found_runs import FoundRun
from runmanager.records.run.run_record import EpochRecord, RunRecord
from runmanager.records.run.status import Reason, Status
from runmanager.results.program_files.folder_metrics import ProgramMetrics
from runmanager.results.program_files.metric_naming import ProgramMetric
from runmanager.text import encodable

__all__ = ["adopted_epochs", "adopted_record", "describe_early_ends"]

_NOTE = "adopted: how the run ended was not recorded, and nothing of it was timed"
_NO_METRICS = "adopted: it left no metrics, and how it ended was not recorded"


def adopted_record(
    run: FoundRun, *, name: str, signature: str, metrics: Sequence[ProgramMetric], deviations: tuple[str, ...] = ()
) -> RunRecord:
    """Return the record of a run that another program made, with these of its metrics.

    It is `finished` where it left any, else `crashed`. It has no time but that of its first event: no tool measured
    the others. `summary` has the metrics that do not belong to epochs.
    """
    last_epoch = max((max(each.series.by_epoch, default=0) for each in metrics), default=0)
    summary = {each.name: _finite(each.series.last) for each in metrics if not _is_of_epochs(each, last_epoch)}
    has_metrics = bool(run.metrics.metrics)
    return RunRecord(
        name=name,
        signature=signature,
        status=Status.FINISHED if has_metrics else Status.CRASHED,
        reason=None if has_metrics else Reason.VANISHED,
        message="" if has_metrics else _NO_METRICS,
        config=run.settings,
        started_at=_moment(run.metrics),
        unsigned=(),
        notes=(*((_NOTE,) if has_metrics else ()), *map(encodable, run.metrics.notes)),
        deviations=deviations,
        summary=summary or msgspec.UNSET,
        origins={each.name: each.origin for each in metrics} or msgspec.UNSET,
        adopted=encodable(str(run.folder)),
        choices=run.choices or msgspec.UNSET,
    )


def adopted_epochs(metrics: Sequence[ProgramMetric]) -> list[EpochRecord]:
    """Return a record for each epoch that a metric has a value of; epochs that the program counts from 0 count from 1.

    Nothing in it is timed. A value that is not finite is None.
    """
    numbers = sorted({epoch for each in metrics for epoch in each.series.by_epoch})
    shift = 1 if numbers[:1] == [0] else 0
    columns = {each.name for each in metrics if each.is_column}
    records = []
    for number in numbers:
        values = {
            each.name: _finite(each.series.by_epoch[number]) for each in metrics if number in each.series.by_epoch
        }
        logged = {name: value for name, value in values.items() if name not in columns}
        epoch = EpochRecord(number + shift, metrics=logged or msgspec.UNSET)
        records.append(msgspec.structs.replace(epoch, **{name: values[name] for name in columns & values.keys()}))
    return records


def describe_early_ends(runs: Sequence[FoundRun]) -> list[tuple[str, ...]]:
    """Return a line for each run whose metrics end before those of others: it was stopped, or was a shorter one."""
    ends = [_end_of(run) for run in runs]
    latest = {unit: max(end for each, end in ends if each == unit) for unit in dict(ends)}
    return [
        (f"its metrics end at {unit} {end}, those of other runs at up to {latest[unit]}",)
        if run.metrics.metrics and end < latest[unit]
        else ()
        for run, (unit, end) in zip(runs, ends, strict=True)
    ]


def _end_of(run: FoundRun) -> tuple[str, int]:
    """Return where a run's metrics end: `epoch` or `step`, and its number as the program counts."""
    series = [each.series for each in run.metrics.metrics]
    if any(each.by_epoch for each in series):
        return "epoch", max(max(each.by_epoch, default=0) for each in series)
    return "step", max((each.last_step or 0 for each in series), default=0)


def _is_of_epochs(metric: ProgramMetric, last_epoch: int) -> bool:
    """Whether the records of epochs hold the last value: tables take that of a column from the last epoch."""
    epochs = metric.series.by_epoch
    if not epochs or metric.series.has_stray:
        return False
    return not metric.is_column or max(epochs) == last_epoch


def _finite(value: float) -> float | None:
    return value if math.isfinite(value) else None


def _moment(metrics: ProgramMetrics) -> str | None:
    """Return the time of the first event in ISO 8601; None where no file has it, or has an impossible one."""
    try:
        known = metrics.started_at
        return None if known is None else datetime.datetime.fromtimestamp(known, datetime.UTC).isoformat()
    except (OverflowError, ValueError, OSError):
        return None

"""What the results table says of a run, worked out of its record and epochs once: small enough to be kept."""

from collections.abc import Container, Iterable, Sequence
from dataclasses import dataclass
from operator import attrgetter
from typing import Any

import msgspec

from runmanager.records.files.paths import SweepPaths
from runmanager.records.run.attempts import describe_attempts
from runmanager.records.run.heartbeat import last_heartbeat
from runmanager.records.run.record import EpochRecord
from runmanager.records.storage.reader import Damage, StoredRun, SweepContents
from runmanager.records.sweep.record import SweepRecord
from runmanager.results.load.contention import Exposure, exposure_of
from runmanager.results.model.columns import PHASE_COLUMNS, RESULT_COLUMNS
from runmanager.results.stats.descriptive import iqr, median

__all__ = [
    "OVERALL_RATE",
    "SUMMARY_COLUMNS",
    "RunSummary",
    "SweepSummary",
    "damage_notes",
    "measured_epochs",
    "overall_rate",
    "planned_signatures",
    "summarize",
    "summarize_run",
]

SUMMARY_COLUMNS = ("status", "reason", *(name for name in RESULT_COLUMNS if name not in ("contended", "run_dir")))
"""The columns of results.csv that follow from a run alone: whom it met is seen from all of them."""

OVERALL_RATE = "overall_samples_per_second"
"""The throughput of all measured epochs together, in which the slow ones weigh as much as they took."""

_NOTHING: dict[str, Any] = dict.fromkeys(SUMMARY_COLUMNS)


class RunSummary(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """A run in short: `values` are those of `SUMMARY_COLUMNS`, `folder` is the name of its folder.

    `own_settings` is None where the sweep's plan has them. `num_unmeasured` counts the epochs of a run that were all
    warm-up; `of_attempts` are lines about epochs made elsewhere, `deviations` about what was done otherwise than asked;
    `heard` says of a run that says `running` where nobody here can see it when it was last heard of.
    """

    folder: str
    name: str
    signature: str
    values: tuple[Any, ...]
    exposure: Exposure
    own_settings: dict[str, Any] | None = None
    num_unmeasured: int = 0
    of_attempts: tuple[str, ...] = ()
    heard: str = ""
    deviations: tuple[str, ...] = ()

    @property
    def settings(self) -> dict[str, Any]:
        assert self.own_settings is not None  # asked for only where the plan does not know the run
        return self.own_settings

    @property
    def status(self) -> str:
        status: str = self.values[_STATUS]
        return status

    @property
    def started_at(self) -> str | None:
        started: str | None = self.values[_STARTED_AT]
        return started


_STATUS = SUMMARY_COLUMNS.index("status")
_STARTED_AT = SUMMARY_COLUMNS.index("started_at")


@dataclass(frozen=True)
class SweepSummary:
    """All runs of a sweep in short, in order of start, and what is damaged."""

    paths: SweepPaths
    runs: Sequence[RunSummary]
    damaged: Sequence[Damage] = ()


def summarize(sweep: SweepContents, plan: SweepRecord | None) -> SweepSummary:
    """What was read of a sweep, in short."""
    planned = planned_signatures(plan)
    return SweepSummary(sweep.paths, [summarize_run(run, planned) for run in sweep.runs], sweep.damaged)


def planned_signatures(plan: SweepRecord | None) -> Container[str]:
    """The cells whose settings are in the plan."""
    return frozenset(cell.signature for cell in plan.planned) if plan else frozenset()


def summarize_run(run: StoredRun, planned: Container[str]) -> RunSummary:
    """One run in short; without its settings where it is one of the `planned`."""
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
        _heard_of(run) if run.record.is_out_of_sight else "",
        run.record.deviations,
    )


def measured_epochs(run: StoredRun) -> list[EpochRecord]:
    """The epochs that count in medians: timed, and not warm-up."""
    return [epoch for epoch in run.epochs if not epoch.warmup and epoch.epoch_seconds is not None]


def overall_rate(measured: Sequence[EpochRecord]) -> float | None:
    """Samples of all these epochs over the seconds of training on them; None where no epoch has a throughput."""
    timed = [(epoch.samples, epoch.epoch_seconds or 0.0) for epoch in measured if epoch.samples_per_second]
    return sum(samples for samples, _ in timed) / sum(seconds for _, seconds in timed) if timed else None


def _values(run: StoredRun) -> tuple[Any, ...]:
    """What the run's record and epochs say, in the order of `SUMMARY_COLUMNS`."""
    record, epochs = run.record, run.epochs
    row: dict[str, Any] = _NOTHING | {
        "status": record.status.value,
        "reason": None if record.reason is None else record.reason.value,
        "epochs": None if run.is_damaged and not epochs else len(epochs) - (len(epochs) > 0 and epochs[0].epoch == 0),
        "run_seconds": record.run_seconds,
        "peak_memory_bytes": record.peak_memory_bytes,
        "num_parameters": record.num_parameters,
        "device_name": record.environment.device_name,
        "started_at": record.started_at,
    }
    if epochs:
        last = epochs[-1]
        row["loss"], row["accuracy"] = last.loss, last.accuracy
        row["val_loss"], row["val_accuracy"] = last.val_loss, last.val_accuracy
        if record.run_seconds is None:
            row["run_seconds"] = last.run_seconds
        row.update(_times(measured_epochs(run)))
    return tuple(row.values())


_MEDIANS = ("epoch_seconds", "samples_per_second", "wall_seconds", *PHASE_COLUMNS)
_medians_of = attrgetter(*_MEDIANS)


def _times(measured: Sequence[EpochRecord]) -> dict[str, float | None]:
    """Each column's median over the epochs that have it, and the spread of `epoch_seconds`."""
    values = zip(*map(_medians_of, measured), strict=True)
    known = {name: [v for v in column if v is not None] for name, column in zip(_MEDIANS, values, strict=False)}
    times = {name: median(column) for name, column in known.items()}
    return times | {"epoch_seconds_iqr": iqr(known.get("epoch_seconds", [])), OVERALL_RATE: overall_rate(measured)}


def _heard_of(run: StoredRun) -> str:
    assert run.record.owner is not None
    return f"{run.record.name} on {run.record.owner.host} ({last_heartbeat(run.beat)})"


def damage_notes(damaged: Iterable[Damage]) -> list[str]:
    """What could not be read, one line each."""
    return [f"Not read: {damage.message}" for damage in damaged]

"""What bounds a run: which resource most of its epoch goes into, by what evidence, and what to change first."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

from runmanager.records.run import RunRecord
from runmanager.records.store import StoredRun
from runmanager.results.statistics import median
from runmanager.results.summary import measured_epochs
from runmanager.results.work import WorkKind, full_batches, work_of

__all__ = ["Bottleneck", "Kind", "find_bottleneck"]

Kind = WorkKind | Literal["input", "transfer"]

_LEAST_WAIT = 0.2
"""Share of the epoch from which waiting for data or transfer is worth a word: taking it away gains 1.25 times."""
_LEAST_WORK = 0.5
"""Share of the compute time that the counted work must explain at the ceilings: below it something else takes most."""
_MOST_WORK = 1.2
"""Above it the estimate is wrong, as nothing runs faster than its ceiling: bytes that stayed in caches, for example."""
_AHEAD = 1.25
"""Times that one kind of work must exceed the next to be named: estimates are no better than that."""


@dataclass(frozen=True)
class Bottleneck:
    """What bounds a run. `share` is the part of the epoch that it explains, `at_most` the times that a cure can gain.

    `evidence` says what becomes of that share, as in "38% of the epoch waits for data"; `cure` what to change first,
    empty where no setting of this run would help.
    """

    kind: Kind
    share: float
    at_most: float
    evidence: str
    cure: str


def find_bottleneck(run: StoredRun) -> Bottleneck | None:
    """What bounds the training part of a run's measured epochs; None where the record does not show it clearly.

    Waiting for data and transfer are measured phases. What the compute phase is bound by is an estimate, each kind's
    time at the device's measured ceiling: operations x the time to dispatch one (`launch`), FLOP at the rate of
    matrix products (`compute`), bytes at the rate of copies (`memory`): the roofline model of Williams, Waterman and
    Patterson, *Communications of the ACM* 52(4), 2009. The kind with the largest share of the epoch is named, if that
    is large enough and, among the estimates, clearly ahead.
    """
    phases = _phases(run)
    if phases is None:
        return None
    epoch, waits = phases
    compute = epoch - sum(waits.values())
    shares: dict[Kind, float] = {kind: seconds / epoch for kind, seconds in waits.items()}
    shares = {kind: share for kind, share in shares.items() if share >= _LEAST_WAIT}
    if compute > 0 and (worked := _clearest(_work_seconds(run), compute)):
        kind, seconds = worked
        shares[kind] = min(seconds, compute) / epoch
    if not shares:
        return None
    kind = max(shares, key=lambda each: shares[each])
    return _DESCRIBED[kind](kind, shares[kind], run.record)


def _phases(run: StoredRun) -> tuple[float, dict[Kind, float]] | None:
    """Median seconds of the measured epochs, and of their waiting for data and for transfer."""
    epochs = [epoch for epoch in measured_epochs(run) if epoch.data_seconds is not None]
    seconds = median([epoch.epoch_seconds for epoch in epochs if epoch.epoch_seconds])
    if not seconds:
        return None
    data = median([epoch.data_seconds or 0.0 for epoch in epochs]) or 0.0
    transfer = median([epoch.transfer_seconds or 0.0 for epoch in epochs]) or 0.0
    return seconds, {"input": data, "transfer": transfer}


def _work_seconds(run: StoredRun) -> dict[Kind, float]:
    """The least that an epoch's counted work takes at this device's ceilings, by kind; what is unknown left out."""
    steps, batches = run.record.measurements.steps_per_epoch, full_batches(run)
    if steps is None or batches is None:
        return {}
    # The last batch of an epoch is smaller, but has as many operations as any.
    return {
        kind: work.per_step * (steps if kind == "launch" else batches) / work.at_best
        for kind, work in work_of(run).items()
        if work.at_best
    }


def _clearest(seconds: Mapping[Kind, float], compute: float) -> tuple[Kind, float] | None:
    """The kind of work that takes most of the compute time, if it is believable and clearly ahead of the others."""
    believed = sorted(((each, kind) for kind, each in seconds.items() if each <= _MOST_WORK * compute), reverse=True)
    if not believed or believed[0][0] < _LEAST_WORK * compute:
        return None
    if len(believed) > 1 and believed[0][0] < _AHEAD * believed[1][0]:
        return None
    return believed[0][1], believed[0][0]


def _without(share: float) -> float:
    """Amdahl's law (*AFIPS Conference Proceedings* 30, 1967): what is gained where this share of the time is gone."""
    return 1 / (1 - min(share, 0.999))


def _waiting(kind: Kind, share: float, record: RunRecord) -> Bottleneck:
    what = "waits for data" if kind == "input" else "is the transfer of batches to the device"
    cure = _load_otherwise(record) if kind == "input" else _transfer_otherwise(record)
    return Bottleneck(kind, share, _without(share), f"of the epoch {what}", cure)


def _launching(kind: Kind, share: float, record: RunRecord) -> Bottleneck:
    facts = record.measurements
    evidence = (
        f"of the epoch goes into starting operations, {facts.operations_per_step:,} a step, however small they are"
    )
    cure = "a larger `batch_size`, which takes fewer steps (and changes what is learnt)"
    settings = record.settings
    if record.environment.compute_capability and settings.get("graphs") is False and settings.get("on_oom") != "halve":
        cure = f"`graphs=true`, which starts a whole step at once; or {cure}"
    return Bottleneck(kind, share, _without(share), evidence, cure if "batch_size" in record.config else "")


def _working(kind: Kind, share: float, record: RunRecord) -> Bottleneck:
    # Taking the work away is no cure: at the ceiling the epoch would still take this share of its time.
    what = "matrix products" if kind == "compute" else "reading and writing memory"
    evidence = f"of the epoch is what {what} would take at this device's measured best"
    cure = "less work, as in a smaller model; the same work can only come nearer to that best"
    return Bottleneck(kind, share, 1 / share, evidence, cure)


_DESCRIBED = {
    "input": _waiting,
    "transfer": _waiting,
    "launch": _launching,
    "compute": _working,
    "memory": _working,
}


def _load_otherwise(record: RunRecord) -> str:
    """What loads faster, of the settings that the run has; empty where it has none."""
    settings = record.settings
    if settings.get("loader.name") != "dataloader":
        return ""  # it is resident already, or somebody's own loop
    if _draws_samples(settings):
        return _more_workers(settings, record)
    # Resident data needs no worker, and the two cannot go together.
    return "`loader=resident`" + ("" if not settings.get("num_workers") else " with `num_workers=0`")


def _transfer_otherwise(record: RunRecord) -> str:
    settings = record.settings
    if settings.get("loader.name") != "dataloader" or _draws_samples(settings):
        return ""
    return "`loader=resident`" + ("" if not settings.get("num_workers") else " with `num_workers=0`")


def _draws_samples(settings: Mapping[str, Any]) -> bool:
    """Whether the dataset may give other samples each time, by transforms of its own: to keep it would freeze them."""
    return settings.get("dataset.name") == "custom"


def _more_workers(settings: Mapping[str, Any], record: RunRecord) -> str:
    workers, cores = settings.get("num_workers"), record.environment.num_cores
    if not isinstance(workers, int) or cores is None or workers >= cores:
        return ""
    return f"a larger `num_workers` than {workers}"

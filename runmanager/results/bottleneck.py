"""What bounds a run: which resource most of its epoch goes into, by what evidence, and what to change first."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

from runmanager.records.ceilings import Ceilings
from runmanager.records.measurements import Measurements
from runmanager.records.run import RunRecord
from runmanager.records.store import StoredRun
from runmanager.results.statistics import median
from runmanager.results.summary import measured_epochs

__all__ = ["Bottleneck", "Kind", "find_bottleneck"]

Kind = Literal["input", "transfer", "launch", "compute", "memory"]

_LEAST_WAIT = 0.2
"""Share of the epoch from which waiting for data or transfer is worth a word: taking it away gains 1.25 times."""
_LEAST_WORK = 0.5
"""Share of the compute time that the counted work must explain at the ceilings: below it something else takes most."""
_MOST_WORK = 1.2
"""Above it the estimate is wrong, as nothing runs faster than its ceiling: bytes that stayed in caches, for example."""
_CACHED_BYTES = 2 * 2**20
"""Operations that touch less than this on average find it in caches, of which the ceiling of copies says nothing."""
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
    facts, ceilings = run.record.measurements, run.record.measurements.ceilings
    steps = facts.steps_per_epoch
    if ceilings is None or steps is None or not _fits(ceilings, run.record):
        return {}
    batches = _full_batches(run, steps)
    best_flops = ceilings.flops_per_second.get(facts.precision or "")
    rates: tuple[tuple[Kind, float | None, float | None], ...] = (
        ("launch", _product(facts.operations_per_step, steps), _inverse(ceilings.dispatch_seconds)),
        ("compute", _product(facts.flop_per_step, batches), best_flops),
        ("memory", _product(_uncached(facts), batches), ceilings.copy_bytes_per_second),
    )
    return {kind: amount / rate for kind, amount, rate in rates if amount and rate}


def _uncached(facts: Measurements) -> int | None:
    """Bytes a step that go to memory; None where they are not known to."""
    moved, operations = facts.bytes_per_step, facts.operations_per_step
    return moved if moved and operations and moved / operations >= _CACHED_BYTES else None


def _fits(ceilings: Ceilings, record: RunRecord) -> bool:
    """Whether the ceilings are those of what the run ran on; a CPU's depend on the threads."""
    environment = record.environment
    same_threads = ceilings.threads is None or ceilings.threads == environment.torch_threads
    return ceilings.device_name == environment.device_name and same_threads


def _full_batches(run: StoredRun, steps: int) -> float:
    """Steps an epoch, its last and smaller batch as the part of a full one that it is."""
    size = run.record.config.get("batch_size")
    samples = run.epochs[-1].samples
    return min(float(steps), samples / size) if isinstance(size, int) and size > 0 and samples else float(steps)


def _product(amount: int | None, times: float) -> float | None:
    return None if amount is None else amount * times


def _inverse(seconds: float | None) -> float | None:
    return 1 / seconds if seconds else None


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

"""What bounds a run: which resource most of its epoch goes into, by what evidence, and what to change first."""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

from runmanager.records.run.record import RunRecord
from runmanager.records.storage.reader import StoredRun
from runmanager.results.findings.roofline import WorkKind, full_batches, work_of
from runmanager.results.load.run_summary import measured_epochs
from runmanager.results.stats.descriptive import median

__all__ = ["Bottleneck", "Kind", "find_bottleneck"]

Kind = WorkKind | Literal["input", "transfer", "eval", "tracking"]

_LEAST_WAIT = 0.2
"""Share from which a measured phase is worth a word, of the training epoch or of the wall time that it is a part of:
taking it away gains 1.25 times."""
_LEAST_NAMED = 0.01
"""Share of the training epoch from which a phase that the cure takes away as well is named with the first one."""
_LEAST_WORK = 0.5
"""Share of the compute time that the counted work must explain at the ceilings: below it something else takes most."""
_MOST_WORK = 1.2
"""Above it the estimate is wrong, as nothing runs faster than its ceiling: bytes that stayed in caches, for example."""
_AHEAD = 1.25
"""Times that one kind of work must exceed the next to be named: estimates are no better than that."""


@dataclass(frozen=True)
class Bottleneck:
    """What bounds a run, and what a cure can gain at most.

    `share` is the part of the training epoch that it explains, `at_most` how many times as fast training can get; both
    are None of what is no training. `whole_share` and `whole_at_most` are the same of the epoch's wall time, where all
    else stays as it is. `evidence` says what becomes of that share, as in "38% of the epoch waits for data"; `cure`
    what to change first, empty where no setting of this run would help.
    """

    kind: Kind
    share: float | None
    at_most: float | None
    whole_share: float
    whole_at_most: float
    evidence: str
    cure: str


@dataclass(frozen=True)
class _Times:
    """Median seconds of the measured epochs; those of data and transfer are None where nothing has timed them."""

    training: float
    data: float | None
    transfer: float
    evaluation: float
    tracking: float
    wall: float


def find_bottleneck(run: StoredRun) -> Bottleneck | None:
    """What bounds a run's measured epochs; None where the record does not show it clearly.

    Waiting for data, transfer, evaluation and tracking are measured phases. What the compute phase is bound by is an
    estimate, each kind's time at the device's measured ceiling: operations x the time to dispatch one (`launch`), FLOP
    at the rate of matrix products (`compute`), bytes at the rate of copies (`memory`): the roofline model of Williams,
    Waterman and Patterson, *Communications of the ACM* 52(4), 2009. The kind with the largest share of the wall time is
    named, if that is large enough and, among the estimates, clearly ahead.
    """
    times = _times_of(run)
    if times is None:
        return None
    phases: list[tuple[Kind, float, float]] = [
        ("eval", times.evaluation, times.wall),
        ("tracking", times.tracking, times.wall),
    ]
    worked = None
    if times.data is not None:
        phases += [("input", times.data, times.training), ("transfer", times.transfer, times.training)]
        compute = times.training - times.data - times.transfer
        worked = _clearest(_work_seconds(run), compute) if compute > 0 else None
    seconds = {kind: taken for kind, taken, of in phases if taken >= _LEAST_WAIT * of}
    if worked is not None:
        seconds[worked[0]] = min(worked[1], compute)
    if not seconds:
        return None
    kind = max(seconds, key=lambda each: seconds[each])
    return _DESCRIBED[kind](kind, seconds[kind], times, run.record)


def _times_of(run: StoredRun) -> _Times | None:
    """None without a measured epoch."""
    epochs = measured_epochs(run)
    training = median([epoch.epoch_seconds for epoch in epochs if epoch.epoch_seconds])
    if not training:
        return None

    def typical(name: str) -> float | None:
        return median([value for epoch in epochs if (value := getattr(epoch, name)) is not None])

    evaluation, tracking = typical("eval_seconds") or 0.0, typical("tracking_seconds") or 0.0
    wall = max(typical("wall_seconds") or 0.0, training + evaluation + tracking)
    return _Times(training, typical("data_seconds"), typical("transfer_seconds") or 0.0, evaluation, tracking, wall)


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


def _gain(seconds: float, saved: float) -> float:
    """Amdahl's law (*AFIPS Conference Proceedings* 30, 1967): times as fast as before without what is saved."""
    return seconds / (seconds - saved) if saved < seconds else math.inf


def _of_training(
    kind: Kind, seconds: float, times: _Times, *, evidence: str, cure: str, saved: float | None = None
) -> Bottleneck:
    """What takes `seconds` of the training epoch, of which a cure can save `saved` (None: all of them)."""
    saved = seconds if saved is None else saved
    training, wall = times.training, times.wall
    gains = _gain(training, saved), _gain(wall, saved)
    return Bottleneck(kind, seconds / training, gains[0], seconds / wall, gains[1], evidence, cure)


def _waiting(kind: Kind, seconds: float, times: _Times, record: RunRecord) -> Bottleneck:
    evidence = "waits for data" if kind == "input" else "is the transfer of batches to the device"
    cure = _resident(record)
    if cure:  # it does without both
        data = times.data or 0.0
        seconds = data + times.transfer
        if min(data, times.transfer) >= _LEAST_NAMED * times.training:
            evidence = "waits for data and its transfer"
    elif kind == "input":
        cure = _more_workers(record)
    return _of_training(kind, seconds, times, evidence=evidence, cure=cure)


def _launching(kind: Kind, seconds: float, times: _Times, record: RunRecord) -> Bottleneck:
    facts = record.measurements
    evidence = f"goes into starting operations, {facts.operations_per_step:,} a step, however small they are"
    cure = "a larger `batch_size`, which takes fewer steps (and changes what is learnt)"
    settings = record.settings
    if record.environment.compute_capability and settings.get("graphs") is False and settings.get("on_oom") != "halve":
        cure = f"`graphs=true`, which starts a whole step at once; or {cure}"
    return _of_training(kind, seconds, times, evidence=evidence, cure=cure if "batch_size" in record.config else "")


def _working(kind: Kind, seconds: float, times: _Times, record: RunRecord) -> Bottleneck:
    # Taking the work away is no cure: at the ceiling the epoch would still take these seconds.
    what = "matrix products" if kind == "compute" else "reading and writing memory"
    evidence = f"is what {what} would take at this device's measured best"
    cure = "less work, as in a smaller model; the same work can only come nearer to that best"
    return _of_training(kind, seconds, times, evidence=evidence, cure=cure, saved=times.training - seconds)


def _beside_training(kind: Kind, seconds: float, times: _Times, record: RunRecord) -> Bottleneck:
    is_eval = kind == "eval"
    evidence = "is evaluation" if is_eval else "is tracking: event files and checkpoints"
    cure = _evaluate_less(record) if is_eval else _save_less(record)
    return Bottleneck(kind, None, None, seconds / times.wall, _gain(times.wall, seconds), evidence, cure)


_DESCRIBED = {
    "input": _waiting,
    "transfer": _waiting,
    "launch": _launching,
    "compute": _working,
    "memory": _working,
    "eval": _beside_training,
    "tracking": _beside_training,
}


def _resident(record: RunRecord) -> str:
    """How a run keeps its data on the device; empty where it does so, or cannot."""
    settings = record.settings
    if settings.get("loader.name") != "dataloader" or _draws_samples(settings):
        return ""  # it is resident already, or a custom loop
    # Resident data needs no worker, and the two cannot go together.
    return "`loader=resident`" + ("" if not settings.get("num_workers") else " with `num_workers=0`")


def _draws_samples(settings: Mapping[str, Any]) -> bool:
    """Whether the dataset may give other samples each time, by transforms of its own: to keep it would freeze them."""
    return settings.get("dataset.name") == "custom"


def _more_workers(record: RunRecord) -> str:
    settings, cores = record.settings, record.environment.num_cores
    workers = settings.get("num_workers")
    if settings.get("loader.name") != "dataloader" or not isinstance(workers, int) or cores is None or workers >= cores:
        return ""
    return f"a larger `num_workers` than {workers}"


def _evaluate_less(record: RunRecord) -> str:
    settings = record.settings
    name = "dataset.holdout" if settings.get("dataset.holdout") else "dataset.val_size"
    return f"fewer samples to evaluate on, by a smaller `{name}`" if name in settings else ""


def _save_less(record: RunRecord) -> str:
    checkpoint = record.config.get("checkpoint")  # no part of a run's identity, so not among its settings
    every = checkpoint.get("every") if isinstance(checkpoint, dict) else None
    return f"a larger `checkpoint.every` than {every}" if every else ""

"""The bottleneck of a run: the resource that takes most of its epoch, the evidence, and what to change first."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from runmanager.records.run.run_record import RunRecord
from runmanager.records.storage.reader import StoredRun
from runmanager.results.compare.comparison_table import CompareOptions
from runmanager.results.compare.matched_pairs import Matches
from runmanager.results.findings.roofline import WorkKind, full_batches, num_devices, work_of
from runmanager.results.load.run_summary import measured_epochs
from runmanager.results.metrics.metric import inference_metric
from runmanager.results.stats.descriptive import median
from runmanager.text import pluralize

BottleneckKind = WorkKind | Literal["input", "transfer", "eval", "tracking"]

_FEW_EPOCHS = CompareOptions.min_epochs
_MIN_PHASE_SHARE = 0.2
"""Smallest share of a phase that is reported, of the training epoch or of the wall time that it is a part of: without
that phase the epoch would be 1.25 times as fast."""
_MIN_NAMED_SHARE = 0.01
"""Smallest share of the training epoch from which a phase that the same cure removes is named with the first one."""
_MIN_EXPLAINED = 0.5
"""Smallest share of the compute time that the counted work must explain at the ceilings: below it, something else takes
most of the time."""
_MAX_EXPLAINED = 1.2
"""Above it the estimate is wrong, as nothing runs faster than its ceiling: bytes that stayed in caches, for example."""
_MIN_LEAD = 1.25
"""How many times one kind of work must exceed the next to be named: the estimates are not more precise."""
_MAX_GAIN = 100
"""Gains above it are not printed as numbers: the remaining share is below the precision of the measurement."""


@dataclass(frozen=True)
class Bottleneck:
    """What bounds a run, and the most that a cure can gain.

    `share` is its part of the training epoch, `at_most` how many times as fast training can get; both are None for
    phases outside training. `whole_share` and `whole_at_most` are the same for the epoch's wall time, if all else stays
    as it is. `evidence` completes a share, as in "38% of the epoch waits for data"; `cure` is what to change first,
    empty where no setting of this run would help.
    """

    kind: BottleneckKind
    share: float | None
    at_most: float | None
    whole_share: float
    whole_at_most: float
    evidence: str
    cure: str


@dataclass(frozen=True)
class _Times:
    """Median seconds of the measured epochs; data and transfer are None where they were not timed."""

    training: float
    data: float | None
    transfer: float
    evaluation: float
    tracking: float
    wall: float


def find_bottleneck(run: StoredRun) -> Bottleneck | None:
    """Find what bounds a run's measured epochs; None where the record does not show it clearly.

    Waiting for data, transfer, evaluation and tracking are measured phases. What bounds the compute phase is estimated
    from each kind's time at the device's measured ceiling: operations x the time to dispatch one (`launch`), FLOP at
    the rate of matrix products (`compute`), bytes at the rate of copies (`memory`): the roofline model of Williams,
    Waterman and Patterson, *Communications of the ACM* 52(4), 2009. The kind with the largest share of the wall time is
    returned, if that is large enough and, among the estimates, clearly ahead.
    """
    times = _times_of(run)
    if times is None:
        return None
    phases: list[tuple[BottleneckKind, float, float]] = [
        ("eval", times.evaluation, times.wall),
        ("tracking", times.tracking, times.wall),
    ]
    largest_work = None
    if times.data is not None:
        phases += [("input", times.data, times.training), ("transfer", times.transfer, times.training)]
        compute = times.training - times.data - times.transfer
        largest_work = _largest_work(_work_seconds(run), compute) if compute > 0 else None
    seconds = {kind: phase for kind, phase, whole in phases if phase >= _MIN_PHASE_SHARE * whole}
    if largest_work is not None:
        seconds[largest_work[0]] = min(largest_work[1], compute)
    if not seconds:
        return None
    kind = max(seconds, key=lambda each: seconds[each])
    return _DESCRIBE[kind](kind, seconds[kind], times, run.record)


def _times_of(run: StoredRun) -> _Times | None:
    """Return the run's median times; None without a measured epoch."""
    epochs = measured_epochs(run)
    training = median([epoch.epoch_seconds for epoch in epochs if epoch.epoch_seconds])
    if not training:
        return None

    def typical(name: str) -> float | None:
        return median([value for epoch in epochs if (value := getattr(epoch, name)) is not None])

    evaluation, tracking = typical("eval_seconds") or 0.0, typical("tracking_seconds") or 0.0
    wall = max(typical("wall_seconds") or 0.0, training + evaluation + tracking)
    return _Times(training, typical("data_seconds"), typical("transfer_seconds") or 0.0, evaluation, tracking, wall)


def _work_seconds(run: StoredRun) -> dict[BottleneckKind, float]:
    """Return the least time of an epoch's counted work at the device's ceilings, by kind; without unknown kinds."""
    steps, batches = run.record.measurements.steps_per_epoch, full_batches(run)
    if steps is None or batches is None:
        return {}
    # The last batch of an epoch is smaller, but takes as many operations as the others.
    return {
        kind: work.per_step * (steps * num_devices(run) if kind == "launch" else batches) / work.at_best
        for kind, work in work_of(run).items()
        if work.at_best
    }


def _largest_work(seconds: Mapping[BottleneckKind, float], compute: float) -> tuple[BottleneckKind, float] | None:
    """Return the kind of work that takes most of the compute time, if that is plausible and clearly ahead."""
    plausible = sorted(
        ((each, kind) for kind, each in seconds.items() if each <= _MAX_EXPLAINED * compute), reverse=True
    )
    if not plausible or plausible[0][0] < _MIN_EXPLAINED * compute:
        return None
    if len(plausible) > 1 and plausible[0][0] < _MIN_LEAD * plausible[1][0]:
        return None
    return plausible[0][1], plausible[0][0]


def _amdahl_speedup(seconds: float, saved: float) -> float:
    """Return how many times as fast a part of `seconds` gets without the `saved` ones.

    Amdahl's law (*AFIPS Conference Proceedings* 30, 1967).
    """
    return seconds / (seconds - saved) if saved < seconds else math.inf


def _of_training(
    kind: BottleneckKind, seconds: float, times: _Times, *, evidence: str, cure: str, saved: float | None = None
) -> Bottleneck:
    """Make a bottleneck that takes `seconds` of the training epoch; a cure can save `saved` of them (None: all)."""
    saved = seconds if saved is None else saved
    training, wall = times.training, times.wall
    gains = _amdahl_speedup(training, saved), _amdahl_speedup(wall, saved)
    return Bottleneck(kind, seconds / training, gains[0], seconds / wall, gains[1], evidence, cure)


def _input_or_transfer(kind: BottleneckKind, seconds: float, times: _Times, record: RunRecord) -> Bottleneck:
    evidence = "waits for data" if kind == "input" else "is the transfer of batches to the device"
    cure = _resident_data(record)
    if cure:  # it removes both phases
        data = times.data or 0.0
        seconds = data + times.transfer
        if min(data, times.transfer) >= _MIN_NAMED_SHARE * times.training:
            evidence = "waits for data and its transfer"
    elif kind == "input":
        cure = _more_workers(record)
    return _of_training(kind, seconds, times, evidence=evidence, cure=cure)


def _launch(kind: BottleneckKind, seconds: float, times: _Times, record: RunRecord) -> Bottleneck:
    facts = record.measurements
    evidence = f"goes into starting operations, {facts.operations_per_step:,} a step, however small they are"
    cure = "a larger `batch_size`, which takes fewer steps (and changes what is learnt)"
    settings = record.settings
    if record.environment.compute_capability and settings.get("graphs") is False and settings.get("on_oom") != "halve":
        cure = f"`graphs=true`, which starts a whole step in one launch; or {cure}"
    return _of_training(kind, seconds, times, evidence=evidence, cure=cure if "batch_size" in record.config else "")


def _compute_or_memory(kind: BottleneckKind, seconds: float, times: _Times, record: RunRecord) -> Bottleneck:
    # Removing this work is not a cure: at the ceiling the epoch would still take these seconds.
    what = "matrix products" if kind == "compute" else "reading and writing memory"
    evidence = f"is what {what} would take at this device's measured best"
    cure = "less work, as in a smaller model; the same work can only come nearer to that best"
    return _of_training(kind, seconds, times, evidence=evidence, cure=cure, saved=times.training - seconds)


def _outside_training(kind: BottleneckKind, seconds: float, times: _Times, record: RunRecord) -> Bottleneck:
    is_eval = kind == "eval"
    evidence = "is evaluation" if is_eval else "is tracking: event files and checkpoints"
    cure = _evaluate_less(record) if is_eval else _save_less(record)
    gain = _amdahl_speedup(times.wall, seconds)
    return Bottleneck(kind, None, None, seconds / times.wall, gain, evidence, cure)


_DESCRIBE = {
    "input": _input_or_transfer,
    "transfer": _input_or_transfer,
    "launch": _launch,
    "compute": _compute_or_memory,
    "memory": _compute_or_memory,
    "eval": _outside_training,
    "tracking": _outside_training,
}


def _resident_data(record: RunRecord) -> str:
    """Return the settings that keep the data on the device; empty where it is there already, or cannot be."""
    settings = record.settings
    if settings.get("loader.name") != "dataloader" or _may_transform(settings):
        return ""  # resident already, or a custom loop
    # Resident data needs no workers, and refuses them.
    return "`loader=resident`" + ("" if not settings.get("num_workers") else " with `num_workers=0`")


def _may_transform(settings: Mapping[str, Any]) -> bool:
    """Whether the dataset may return other samples each time, by its own transforms: residence would freeze them."""
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
    checkpoint = record.config.get("checkpoint")  # not part of a run's identity, so not among its settings
    every = checkpoint.get("every") if isinstance(checkpoint, dict) else None
    return f"a larger `checkpoint.every` than {every}" if every else ""


def bottleneck_notes(matches: Matches) -> list[str]:
    """Describe what bounds the runs of each side, and what to change first; only for comparisons of training's speed.

    Runs of one side with the same bottleneck and cure share a line. Runs without a clear bottleneck have none.
    """
    if matches.metric.effect != "speedup" or inference_metric(matches.metric.name) is not None:
        return []
    return [line for label, runs in matches.runs.items() for line in _describe_runs(label, runs)]


def _describe_runs(label: str, runs: Sequence[StoredRun]) -> list[str]:
    groups: dict[tuple[str, str], list[Bottleneck]] = {}
    epochs: dict[tuple[str, str], int] = {}
    for run in runs:
        if (found := find_bottleneck(run)) is not None:
            kind = found.kind, found.cure
            groups.setdefault(kind, []).append(found)
            epochs[kind] = min(len(measured_epochs(run)), epochs.get(kind, _FEW_EPOCHS))
    return [_describe_group(label, found, len(runs), epochs[kind]) for kind, found in groups.items()]


def _describe_group(label: str, found: Sequence[Bottleneck], num_runs: int, epochs: int) -> str:
    """`cpu, 3 of 4 runs (input): 31 to 38% of the epoch waits for data: …; at most 1.61 times as fast.`

    Where training is not all of an epoch, the line has the shares and gains of both. The `epochs` of a run are named
    where they are fewer than a comparison needs.
    """
    largest = max(found, key=lambda each: each.whole_share)
    which = "" if len(found) == num_runs else f", {len(found)} of {num_runs} runs"
    cure = f": {largest.cure}" if largest.cure else ""
    of_wall, gain = _percent([each.whole_share for each in found]), _gain_text([each.whole_at_most for each in found])
    if largest.share is None:
        text, gain = f"{of_wall} of the epoch's wall time {largest.evidence}", f"{gain} as a whole"
    else:
        share = _percent([each.share for each in found if each.share is not None])
        in_training = _gain_text([each.at_most for each in found if each.at_most is not None])
        if (share, in_training) == (of_wall, gain):
            text = f"{share} of the epoch {largest.evidence}"
        else:
            text = f"{share} of the training epoch {largest.evidence} ({of_wall} of the wall time)"
            gain = f"{in_training} in training, and so {gain} as a whole"
    few = f" (only {pluralize(epochs, 'epoch')} a run)" if epochs < _FEW_EPOCHS else ""
    return f"{label}{which} ({largest.kind}): {text}{cure}; {gain}{few}."


def _percent(shares: Sequence[float]) -> str:
    percents = sorted({f"{share * 100:.0f}" for share in shares}, key=float)
    return f"{percents[0]}%" if len(percents) == 1 else f"{percents[0]} to {percents[-1]}%"


def _gain_text(gains: Sequence[float]) -> str:
    most = max(gains)
    return f"at most {most:.2f} times as fast" if most < _MAX_GAIN else f"over {_MAX_GAIN} times as fast at best"

"""What two sides come to: the effect with its interval, a verdict, and what stands against it."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from runmanager.records.attempts import session_of_epoch
from runmanager.records.store import StoredRun
from runmanager.results.metrics import MEMORY, RUN_TIME, THROUGHPUT
from runmanager.results.options import CompareOptions
from runmanager.results.paired import LEAST_ROUNDS, paired_speedup, ratios_of
from runmanager.results.paired_words import MARGIN, paired_verdict, said_of_rounds, why_so_few
from runmanager.results.sides import Side, differences, memory_kind, must_agree, should_agree, typical
from runmanager.results.statistics import Interval, difference_interval, speedup_interval

__all__ = [
    "CONTENDED",
    "DIFFERENT",
    "NOT_MEASURED",
    "TOO_FEW_EPOCHS",
    "Causes",
    "judge",
    "obstacles",
    "tolerance_of",
    "verdict",
]

NOT_MEASURED = "not measured"
DIFFERENT = ("faster", "slower", "better", "worse")
CONTENDED = "contended:"
TOO_FEW_EPOCHS = "too few epochs"

Causes = Mapping[Path, tuple[str, ...] | None]
"""What each run had to share its host with, by its folder."""

_IN_TURNS = (0.25, 0.75)
_LARGEST = 1e100  # the squares of larger ones are soon infinite


def verdict(interval: Interval, *, tolerance: float) -> str:
    """What an interval of the speedup says: a difference only where it lies wholly outside 1 ± `tolerance`."""
    return ("no difference", "faster", "slower")[_direction(interval, 1 - tolerance, 1 + tolerance)]


def _direction(interval: Interval, low: float, high: float) -> int:
    """1 for an interval wholly above `high`, -1 for one wholly below `low`, else 0."""
    return 1 if interval.low > high else -1 if interval.high < low else 0


def judge(baseline: Side, candidate: Side, shared_host: Causes, options: CompareOptions) -> dict[str, Any]:
    """The measured columns of a comparison's row, its verdict and its reason.

    What was measured also has its `tolerance`, which is no column: how far on either side of no effect the interval
    must lie for a difference to be said.
    """
    metric = candidate.metric
    sides = baseline, candidate
    if metric == THROUGHPUT and baseline.in_turns and candidate.in_turns:
        return _judge_turns(sides, shared_host, options)
    against = obstacles(sides, options)
    remarks = _remarks(sides)
    row: dict[str, Any] = dict(zip(metric.value_columns, (typical(side.values) for side in sides), strict=True))
    row |= {"verdict": NOT_MEASURED} | dict(zip(metric.columns[-2:], _counts(sides), strict=True))
    if not against:
        found, why = _effect(sides, options)
        row |= found
        remarks = [*why, *remarks]
    reason = "; ".join([*_contended(sides, shared_host), *against, *remarks])
    return row | {"reason": reason or None}


def _judge_turns(sides: Sequence[Side], shared_host: Causes, options: CompareOptions) -> dict[str, Any]:
    """The same of sides that were measured side by side: their rounds count, in the place of epochs.

    What was measured also has its `pairs`, no column either: how many pairs of processes there were.
    """
    estimate = paired_speedup(ratios_of(*(side.finished for side in sides)))
    rounds = 0 if estimate is None else estimate.rounds
    row: dict[str, Any] = dict(zip(THROUGHPUT.value_columns, (typical(side.values) for side in sides), strict=True))
    row |= {"verdict": NOT_MEASURED} | dict.fromkeys(THROUGHPUT.columns[-2:], rounds)
    said = _unfinished(sides) or differences(sides, must_agree)
    if estimate is None and not _unfinished(sides):
        way_out = "; a longer `measure.max_seconds` gives more" if _have_met(sides) else ""
        said.append(f"too few rounds: no pair of processes has {LEAST_ROUNDS} measured side by side{way_out}")
    if estimate is not None and not said:
        tolerance = options.paired_drift
        row |= {"speedup": estimate.value, "ci_low": estimate.low, "ci_high": estimate.high}
        row |= {"tolerance": tolerance, "pairs": estimate.sessions}
        row |= {"verdict": paired_verdict(estimate, drift=tolerance, margin=MARGIN)}
        finished = [run for side in sides for run in side.finished]
        said = [
            f"{said_of_rounds(estimate)}: a difference must lie outside 1 ± {tolerance * 100:g}%",
            *why_so_few(estimate, finished),
        ]
    reason = "; ".join([*_contended(sides, shared_host), *said, *_remarks(sides)])
    return row | {"reason": reason or None}


def _have_met(sides: Sequence[Side]) -> bool:
    """Whether the two sides took turns with each other, if only for warm-up."""
    first, second = ({turn.session for run in side.finished for turn in run.turns} for side in sides)
    return bool(first & second)


def _unfinished(sides: Sequence[Side]) -> list[str]:
    return [f"{side.label}: {side.state}" for side in sides if not side.finished]


def _counts(sides: Sequence[Side]) -> list[int]:
    return [sum(map(len, side.values)) for side in sides]


def _effect(sides: Sequence[Side], options: CompareOptions) -> tuple[dict[str, Any], list[str]]:
    """The effect, its interval and what it says, and why that is held against more than the interval."""
    metric = sides[0].metric
    weighed = [[[metric.weighed(value) for value in run] for run in side.values] for side in sides]
    tolerance, why = 0.0, list[str]()
    if metric.effect == "difference":
        estimate = difference_interval(*weighed)
        word = metric.word(_direction(estimate.interval, 0, 0))
    else:
        estimate = speedup_interval(*weighed)
        tolerance, why = tolerance_of(sides, options)
        word = metric.word(_direction(estimate.interval, 1 - tolerance, 1 + tolerance))
    ends = {metric.effect: estimate.value, "ci_low": estimate.low, "ci_high": estimate.high}
    return {**ends, "tolerance": tolerance, "verdict": word}, why


def obstacles(sides: Sequence[Side], options: CompareOptions) -> list[str]:
    """Why the two sides cannot be compared; nothing where they can."""
    if unfinished := _unfinished(sides):
        return unfinished
    metric, counts = sides[0].metric, _counts(sides)
    against = [*_senseless(sides), *differences(sides, must_agree)]
    if metric == MEMORY:
        against += differences(sides, memory_kind)
    if metric == RUN_TIME and any(side.paired for side in sides):
        against.append("run_seconds of paired runs have their rounds in them, which take both sides equally long")
    said = ", ".join(f"{count} of {side.label}" for side, count in zip(sides, counts, strict=True))
    if metric.per_epoch:
        if min(counts) < options.min_epochs:
            against.append(f"{TOO_FEW_EPOCHS}: {said} measured, {options.min_epochs} needed")
    elif lacking := [side for side in sides if side.without_values]:
        # To leave out those that never got there would favour the side that has more of them.
        against += [f"{side.label}: {side.without_values} of {len(side.finished)} {metric.lack}" for side in lacking]
    elif min(counts) < options.min_seeds:
        against.append(f"too few runs: {said}, {options.min_seeds} needed; add seeds, as in seed=1,2,3")
    return against


def _senseless(sides: Sequence[Side]) -> list[str]:
    """Values that no run can have measured, or that reckoning with would leave what a float can hold."""
    least = -_LARGEST if sides[0].metric.effect == "difference" else 1 / _LARGEST
    found = {
        side.label: value for side in sides for run in side.values for value in run if not least < value < _LARGEST
    }
    return [
        f"{label}: {sides[0].metric.name} of {value:g} is no value to reckon with" for label, value in found.items()
    ]


def tolerance_of(sides: Sequence[Side], options: CompareOptions) -> tuple[float, list[str]]:
    """The share around 1 that the interval must leave, and why."""
    baseline, candidate = sides
    interleaved = _side_by_side(baseline, candidate)
    tolerance = options.paired_drift if interleaved else options.drift
    must = f"so a difference must lie outside 1 ± {tolerance * 100:g}%"
    runs = [len(side.values) for side in sides]
    if min(runs) < options.min_runs:
        counts = f"{runs[0]} of {baseline.label}, {runs[1]} of {candidate.label}"
        knows = (
            "the interval knows only the noise between epochs, not between runs"
            if min(runs) == 1
            else "too few to know the noise between runs well"
        )
        return tolerance, [f"fewer than {options.min_runs} runs a side ({counts}): {knows}, {must}"]
    if not interleaved and not _took_turns(baseline, candidate):
        return tolerance, [f"one side ran after the other: the interval knows no drift between them, {must}"]
    return 0.0, []


def _side_by_side(baseline: Side, candidate: Side) -> bool:
    """Whether the epochs of both sides took turns with each other, which asking for it does not make true.

    Those of a side that was run again, as it had died, were trained in a session of their own.
    """
    if not (baseline.in_turns and candidate.in_turns):
        return False
    sessions = [
        {session_of_epoch(run.record, each.epoch) for run in side.finished for each in run.epochs}
        for side in (baseline, candidate)
    ]
    return sessions[0] == sessions[1] and None not in sessions[0]


def _took_turns(baseline: Side, candidate: Side) -> bool:
    """Whether neither side as a whole began before the other: then a drift of the machine hits both alike.

    Judged by the share of all pairs of runs in which the baseline's began first (the statistic of Mann and Whitney
    1947, over the product of the counts): 0.5 for sides that take turns, 0 or 1 where one comes after the other. Runs
    that began at one time count half for either.
    """
    begun = [[run.record.started_at or "" for run in side.finished] for side in (baseline, candidate)]
    first = sum(0.5 * (one <= other) + 0.5 * (one < other) for one in begun[0] for other in begun[1])
    return _IN_TURNS[0] <= first / (len(begun[0]) * len(begun[1])) <= _IN_TURNS[1]


def _remarks(sides: Sequence[Side]) -> list[str]:
    """What a reader must know, though it forbids nothing."""
    if not all(side.finished for side in sides):
        return []
    partial = [f"{side.label}: {side.state}" for side in sides if len(side.finished) < len(side.cells)]
    dirty = [side.label for side in sides if any(run.record.environment.commit_clean is False for run in side.finished)]
    uncommitted = [f"uncommitted changes: {', '.join(dirty)}"] if dirty else []
    # One side is one device: seeds that landed on two kinds of GPU are no repetitions of each other.
    devices = [
        difference
        for side in sides
        for difference in differences([side], lambda environment: {"device": environment.device_name})
    ]
    named = [*differences(sides, should_agree), *devices]
    return [*_deviations(sides), *_unlike_products(sides), *named, *uncommitted, *partial]


def _unlike_products(sides: Sequence[Side]) -> list[str]:
    """What the products of each side were computed in, where all asked for the same and not all got it.

    PyTorch's own default on GPUs rounds those of convolutions to TF32: in somebody's own loop, and in built-in runs of
    versions that left it so.
    """
    runs = [run for side in sides for run in side.finished]
    if len({run.record.config.get("precision", "fp32") for run in runs}) > 1:
        return []
    found = {
        side.label: sorted({kind for run in side.finished if (kind := run.record.measurements.precision)})
        for side in sides
    }
    if len({kind for kinds in found.values() for kind in kinds}) < 2:
        return []
    said = ", ".join(f"{' and '.join(kinds)} ({label})" for label, kinds in found.items() if kinds)
    return [f"precision of products differs: {said}"]


def _deviations(sides: Sequence[Side]) -> list[str]:
    """What runs of a side did otherwise than their settings ask, which sets the sides apart beside the axis."""
    lines = [f"{side.label}: {line}" for side in sides for run in side.finished for line in run.record.deviations]
    return list(dict.fromkeys(lines))


def _contended(sides: Sequence[Side], shared_host: Causes) -> list[str]:
    """Empty, or one sentence that begins with `contended:`: which side shared its host with what."""
    met: dict[str, list[str]] = {}
    for side in sides:
        runs = side.finished or [cell.stored for cell in side.cells if cell.stored is not None]
        for cause in _causes(runs, shared_host):
            met.setdefault(cause, []).append(side.label)
    if not met:
        return []
    return [f"{CONTENDED} " + ", ".join(f"{' and '.join(labels)} met {cause}" for cause, labels in met.items())]


def _causes(runs: list[StoredRun], shared_host: Causes) -> list[str]:
    return list(dict.fromkeys(cause for run in runs for cause in shared_host[run.paths.root] or ()))

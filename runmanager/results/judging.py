"""What two sides come to: the effect with its interval, a verdict, and what stands against it."""

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from runmanager.records.attempts import session_of_epoch
from runmanager.records.store import StoredRun
from runmanager.results.blocks import blocks_of
from runmanager.results.effects import Contrast, contrast, estimates, run_values
from runmanager.results.hidden_costs import hidden_cost_remarks
from runmanager.results.metrics import MEMORY, RUN_TIME, THROUGHPUT, Metric
from runmanager.results.noise import Residuals, joint_confidence
from runmanager.results.options import CompareOptions
from runmanager.results.paired import least_rounds, paired_speedup, ratios_of
from runmanager.results.resolution import collapsed, step_of
from runmanager.results.sides import Side, differences, disagreements, memory_kind, should_agree, unknown_code
from runmanager.results.statistics import Estimate, Interval

__all__ = [
    "CONTENDED",
    "DIFFERENT",
    "INCONCLUSIVE",
    "NOT_MEASURED",
    "NO_DIFFERENCE",
    "TOO_FEW_EPOCHS",
    "VERDICTS",
    "Causes",
    "judge",
    "obstacles",
    "residuals_of",
    "took_turns",
    "verdict",
]

NOT_MEASURED = "not measured"
NO_DIFFERENCE = "no difference"
INCONCLUSIVE = "inconclusive"
DIFFERENT = ("faster", "slower", "better", "worse")
VERDICTS = (*DIFFERENT, NO_DIFFERENCE, INCONCLUSIVE)
"""Those of measured rows."""

CONTENDED = "contended:"
TOO_FEW_EPOCHS = "too few epochs"

Causes = Mapping[Path, tuple[str, ...] | None]
"""What each run had to share its host with, by its folder."""

Sides = tuple[Side, Side]

_IN_TURNS = (0.25, 0.75)
_LARGEST = 1e100  # the squares of larger ones are soon infinite


def verdict(metric: Metric, interval: Interval, *, tolerance: float, margin: float | None) -> str:
    """What an interval of the effect says, the first of these that holds.

    A difference, where it lies wholly outside 1 ± `tolerance` (0 ± for differences); `no difference`, where it lies
    within 1 ± `margin`; else `inconclusive`.
    """
    nothing = 0.0 if metric.effect == "difference" else 1.0
    if interval.low > nothing + tolerance:
        return metric.word(1)
    if interval.high < nothing - tolerance:
        return metric.word(-1)
    if margin is not None and nothing - margin <= interval.low and interval.high <= nothing + margin:
        return NO_DIFFERENCE
    return INCONCLUSIVE


@dataclass(frozen=True)
class _Weighed:
    """A pair before its interval is made: what stands against one, or what it will be made of."""

    sides: Sides
    against: Sequence[str] = ()
    contrast: Contrast | None = None
    ratios: Sequence[float] | None = None
    """The log ratio of each round, of sides that were measured side by side."""

    @property
    def metric(self) -> Metric:
        return self.sides[1].metric


def judge(
    pairs: Sequence[Sides], shared_host: Causes, options: CompareOptions, *, among: int = 0
) -> list[dict[str, Any]]:
    """The measured columns of a comparison's rows, their verdicts and reasons; each pair is baseline, candidate.

    The intervals of all rows hold together with 95% confidence, and with further ones up to `among`, where the pairs
    were picked from so many after looking. What was measured also has, in no column: `tolerance`,
    how far on either side of no effect the interval must lie for a difference to be said; `margin`, within which there
    is none; `error`, the standard error of the effect (of its logarithm for a ratio), and its degrees of `freedom`.
    """
    weighed = [_weigh(sides, options) for sides in pairs]
    contrasts = [each.contrast for each in weighed if each.contrast is not None]
    rows = max(among, len(contrasts) + sum(each.ratios is not None for each in weighed))
    found = iter(estimates(contrasts, rows=rows))
    return [_row(each, found, rows, shared_host, options) for each in weighed]


def residuals_of(pairs: Sequence[Sides]) -> Residuals:
    """What the runs of all pairs that can be compared show of the noise between runs."""
    weighed = [_weigh(sides, CompareOptions()) for sides in pairs]
    seen = [each.contrast.residuals for each in weighed if each.contrast is not None]
    return Residuals(math.fsum(each.squares for each in seen), math.fsum(each.freedom for each in seen))


def _weigh(sides: Sides, options: CompareOptions) -> _Weighed:
    metric = sides[1].metric
    if metric == THROUGHPUT and all(side.in_turns for side in sides):
        ratios = ratios_of(*(side.finished for side in sides))
        against = _unfinished(sides) or disagreements(sides)
        if paired_speedup(ratios) is None and not _unfinished(sides):
            against.append(_too_few_rounds(sides, len(ratios), least_rounds(joint_confidence(1))))
        return _Weighed(sides, against, ratios=None if against else ratios)
    if against := obstacles(sides, options):
        return _Weighed(sides, against)
    found = _contrast(sides)
    return _Weighed(sides, [_SILENT]) if found.is_silent else _Weighed(sides, contrast=found)


_SILENT = "no run differs from another of its side by more than rounding: their noise is not known; do the seeds count?"


def _contrast(sides: Sides) -> Contrast:
    baseline, candidate = (dict(zip(_folders(side), side.values, strict=True)) for side in sides)
    blocks = blocks_of(*([run for run, _ in side.measured] for side in sides))
    metric = sides[1].metric
    values = [list(baseline.values()), list(candidate.values())]
    if blocks is not None:
        values = [
            [of_side[block[at].paths.root] for block in blocks] for at, of_side in enumerate((baseline, candidate))
        ]
    if metric.is_time:  # its speedup is that of the inverse
        values.reverse()
    is_ratio = metric.effect != "difference"
    step = 0.0 if is_ratio else step_of(metric, sides)
    runs = [run_values(side, is_ratio=is_ratio) for side in values]
    return contrast(*runs, is_ratio=is_ratio, are_blocks=blocks is not None, step=step)


def _folders(side: Side) -> list[Path]:
    return [run.paths.root for run, _ in side.measured]


def _row(
    weighed: _Weighed, found: Iterator[Estimate], rows: int, shared_host: Causes, options: CompareOptions
) -> dict[str, Any]:
    sides, metric = weighed.sides, weighed.metric
    row: dict[str, Any] = dict(zip(metric.value_columns, (side.typical for side in sides), strict=True))
    row |= {"verdict": NOT_MEASURED} | dict(zip(metric.columns[-2:], _counts(sides), strict=True))
    said = list(weighed.against)
    if weighed.contrast is not None:
        tolerance, why = _tolerance_of(sides, options)
        row |= _judged(metric, next(found), tolerance, options)
        said = [*why, *_assumed(weighed.contrast)]
    elif metric == THROUGHPUT and all(side.in_turns for side in sides):
        counted, said = _row_of_rounds(weighed, rows, options)
        row |= counted
    remarks = [*hidden_cost_remarks(sides), *_remarks(sides)]
    reason = "; ".join([*_contended(sides, shared_host), *said, *remarks])
    return row | {"reason": reason or None}


def _judged(metric: Metric, estimate: Estimate, tolerance: float, options: CompareOptions) -> dict[str, Any]:
    """The columns that an interval has, and its verdict."""
    margin = options.margin_of(metric.effect)
    return {
        metric.effect: estimate.value,
        "ci_low": estimate.low,
        "ci_high": estimate.high,
        "tolerance": tolerance,
        "margin": margin,
        "error": estimate.error,
        "freedom": estimate.freedom,
        "verdict": verdict(metric, estimate.interval, tolerance=tolerance, margin=margin),
    }


def _assumed(found: Contrast) -> list[str]:
    """Whether the noise between runs was measured at all."""
    if found.residuals.freedom or not found.is_ratio:
        return []
    return ["one run a side: the noise between runs is assumed, not measured; more seeds measure it"]


def _row_of_rounds(weighed: _Weighed, rows: int, options: CompareOptions) -> tuple[dict[str, Any], list[str]]:
    """What sides come to that were measured side by side, and why: their rounds count, in the place of epochs."""
    sides, said = weighed.sides, list(weighed.against)
    ratios = weighed.ratios if weighed.ratios is not None else ratios_of(*(side.finished for side in sides))
    row: dict[str, Any] = dict.fromkeys(THROUGHPUT.columns[-2:], len(ratios))
    if weighed.ratios is None:
        return row, said
    estimate = paired_speedup(ratios, confidence=joint_confidence(rows))
    if estimate is None:
        return row, [_too_few_rounds(sides, len(ratios), least_rounds(joint_confidence(rows)))]
    row |= dict(zip(THROUGHPUT.value_columns, _rates_at(estimate.value, sides), strict=True))
    tolerance = options.paired_drift
    said = [f"{len(ratios)} rounds side by side: a difference must lie outside 1 ± {tolerance * 100:g}%"]
    return row | _judged(THROUGHPUT, estimate, tolerance, options), said


def _rates_at(speedup: float, sides: Sides) -> tuple[float, float]:
    """What each side does in a typical round, so that the two have the speedup of the rounds between them."""
    baseline, candidate = (side.typical or 1.0 for side in sides)
    middle = math.sqrt(baseline * candidate)
    low = middle / math.sqrt(speedup)
    return low, low * speedup


def _too_few_rounds(sides: Sides, count: int, needed: int) -> str:
    way_out = "; a longer `measure.max_seconds` gives more" if _have_met(sides) else ""
    return f"too few rounds: {count} measured side by side, {needed} needed{way_out}"


def _have_met(sides: Sequence[Side]) -> bool:
    """Whether the two sides took turns with each other, if only for warm-up."""
    first, second = ({turn.session for run in side.finished for turn in run.turns} for side in sides)
    return bool(first & second)


def _unfinished(sides: Sequence[Side]) -> list[str]:
    return [f"{side.label}: {side.state}" for side in sides if not side.finished]


def _counts(sides: Sequence[Side]) -> list[int]:
    return [sum(map(len, side.values)) for side in sides]


def obstacles(sides: Sequence[Side], options: CompareOptions) -> list[str]:
    """Why the two sides cannot be compared; nothing where they can."""
    if unfinished := _unfinished(sides):
        return unfinished
    metric, counts = sides[0].metric, _counts(sides)
    against = [*_senseless(sides), *disagreements(sides)]
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


def _tolerance_of(sides: Sides, options: CompareOptions) -> tuple[float, list[str]]:
    """The share around 1 that the interval must leave, and why; the interval knows the noise of what took turns."""
    baseline, candidate = sides
    if candidate.metric.effect == "difference":
        return 0.0, []
    if _side_by_side(baseline, candidate):
        share = options.paired_drift
        return share, [f"epochs side by side: a difference must lie outside 1 ± {share * 100:g}%"]
    if took_turns(*([run.record.started_at or "" for run in side.finished] for side in sides)):
        return 0.0, []
    share = options.drift
    must = f"so a difference must lie outside 1 ± {share * 100:g}%"
    return share, [f"one side ran after the other: the interval does not know the machine's drift between them, {must}"]


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


def took_turns(baseline: Sequence[str], candidate: Sequence[str]) -> bool:
    """Whether neither side as a whole began before the other: then a drift of the machine hits both alike.

    Given is when the runs of each side began. Judged by the share of all pairs of runs in which the baseline's began
    first (the statistic of Mann and Whitney 1947, over the product of the counts): 0.5 for sides that take turns, 0 or
    1 where one comes after the other. Runs that began at one time count half for either.
    """
    first = sum(0.5 * (one <= other) + 0.5 * (one < other) for one in baseline for other in candidate)
    return _IN_TURNS[0] <= first / (len(baseline) * len(candidate)) <= _IN_TURNS[1]


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
    lost = [*collapsed(sides), *_deviations(sides), *_unlike_products(sides)]
    return [*lost, *named, *unknown_code(sides), *uncommitted, *partial]


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

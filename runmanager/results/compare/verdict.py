"""What two sides come to: the effect with its interval, a verdict, and what stands against it."""

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from runmanager.records.run.attempts import session_of_epoch
from runmanager.results.compare.blocks import Block, blocks_of, seeds_of
from runmanager.results.compare.caveats import Causes, contended, remarks
from runmanager.results.compare.comparison_table import MeasuredEffect
from runmanager.results.compare.hidden_costs import hidden_cost_remarks
from runmanager.results.compare.metrics import MEMORY, RUN_TIME, THROUGHPUT, Metric
from runmanager.results.compare.options import CompareOptions
from runmanager.results.compare.paired_caveats import said_of_rounds, why_so_few
from runmanager.results.compare.resolution import step_of
from runmanager.results.compare.side import Side, differences, disagreements, memory_kind
from runmanager.results.stats.descriptive import Estimate, Interval, median
from runmanager.results.stats.effects import ROUNDING, Contrast, contrast, estimates, run_values
from runmanager.results.stats.noise_model import Residuals
from runmanager.results.stats.paired_speedup import LEAST_ROUNDS, PairedSpeedup, paired_speedup, ratios_of

__all__ = [
    "DIFFERENT",
    "INCONCLUSIVE",
    "NOT_MEASURED",
    "NO_DIFFERENCE",
    "TOO_FEW_EPOCHS",
    "VERDICTS",
    "Judgement",
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

TOO_FEW_EPOCHS = "too few epochs"

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
class Judgement:
    """The verdict on a pair with its reason, and what it rests on; each tuple is baseline, candidate.

    `values` are the sides' own values of the metric, `counts` the numbers of measured values. `effect` is None where
    the pair is not measured.
    """

    verdict: str
    reason: str | None
    values: tuple[float | None, float | None]
    counts: tuple[int, int]
    effect: MeasuredEffect | None


@dataclass(frozen=True)
class _Weighed:
    """A pair before its interval is made: what stands against one, or what it will be made of."""

    sides: Sides
    against: Sequence[str] = ()
    contrast: Contrast | None = None
    seeds: Sequence[str] = ()
    """Of the pairs of runs that the contrast is made of, where each pair is one of a seed."""
    rounds: Sequence[Sequence[float]] | None = None
    """The log ratio of each round, session by session, of sides that were measured side by side."""

    @property
    def metric(self) -> Metric:
        return self.sides[1].metric


def judge(pairs: Sequence[Sides], shared_host: Causes, options: CompareOptions, *, among: int = 0) -> list[Judgement]:
    """Judge each pair of a comparison (baseline, candidate): its effect with an interval, its verdict and reason.

    The intervals of all rows hold simultaneously with 95% confidence, together with further ones up to `among`, where
    the pairs were picked from that many after looking at the results.
    """
    weighed = [_weigh(sides, options) for sides in pairs]
    contrasts = [each.contrast for each in weighed if each.contrast is not None]
    rows = max(among, len(contrasts) + sum(each.rounds is not None and not each.against for each in weighed))
    found = iter(estimates(contrasts, rows=rows))
    return [_judge(each, found, rows, shared_host, options) for each in weighed]


def residuals_of(pairs: Sequence[Sides]) -> Residuals:
    """What the runs of all pairs that can be compared show of the noise between runs."""
    weighed = [_weigh(sides, CompareOptions()) for sides in pairs]
    seen = [each.contrast.residuals for each in weighed if each.contrast is not None]
    return Residuals(math.fsum(each.squares for each in seen), math.fsum(each.freedom for each in seen))


def _weigh(sides: Sides, options: CompareOptions) -> _Weighed:
    metric = sides[1].metric
    if metric == THROUGHPUT and all(side.in_turns for side in sides):
        rounds = ratios_of(*(side.finished for side in sides))
        against = _unfinished(sides) or disagreements(sides)
        if not rounds and not _unfinished(sides):
            against.append(_too_few_rounds(sides))
        return _Weighed(sides, against, rounds=rounds)
    if against := obstacles(sides, options):
        return _Weighed(sides, against)
    blocks = blocks_of(*([run for run, _ in side.measured] for side in sides))
    found = _contrast(sides, blocks)
    return (
        _Weighed(sides, [_silence(sides)])
        if found.is_silent
        else _Weighed(sides, contrast=found, seeds=seeds_of(blocks))
    )


def _silence(sides: Sides) -> str:
    """Why nothing is known of the noise: runs that are all alike, or pairs of runs that are."""
    if all(max(values) - min(values) <= ROUNDING * max(map(abs, values)) for values in map(_middles, sides)):
        return (
            "no run differs from another of its side by more than rounding: their noise is not known; do the seeds "
            "count?"
        )
    return "the two sides differ by the same in each pair of runs, up to rounding: the noise of that is not known"


def _middles(side: Side) -> list[float]:
    return [middle for values in side.values if (middle := median(values)) is not None]


def _contrast(sides: Sides, blocks: Sequence[Block] | None) -> Contrast:
    baseline, candidate = (dict(zip(_folders(side), side.values, strict=True)) for side in sides)
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


def _judge(
    weighed: _Weighed, found: Iterator[Estimate], rows: int, shared_host: Causes, options: CompareOptions
) -> Judgement:
    sides, metric = weighed.sides, weighed.metric
    baseline, candidate = sides
    values, counts = (baseline.typical, candidate.typical), _counts(sides)
    effect: MeasuredEffect | None = None
    said = list(weighed.against)
    if weighed.contrast is not None:
        tolerance, why = _tolerance_of(sides, options)
        by_seed = dict(zip(weighed.seeds, weighed.contrast.differences, strict=False))
        effect = MeasuredEffect(next(found), tolerance, options.margin_of(metric.effect), by_seed)
        said = [*why, *_assumed(weighed.contrast)]
    elif weighed.rounds is not None:
        estimate = paired_speedup(weighed.rounds, rows=rows)
        counts = (estimate.rounds, estimate.rounds) if estimate else (0, 0)
        if estimate is not None and not weighed.against:
            values = _rates_at(estimate.value, sides)
            effect, said = _effect_of_rounds(estimate, sides, options)
    hidden = [] if weighed.against else hidden_cost_remarks(sides)  # of what is not measured it would read as the cause
    reason = "; ".join([*contended(sides, shared_host), *said, *hidden, *remarks(sides)])
    return Judgement(
        NOT_MEASURED if effect is None else _verdict_on(metric, effect), reason or None, values, counts, effect
    )


def _verdict_on(metric: Metric, effect: MeasuredEffect) -> str:
    return verdict(metric, effect.estimate.interval, tolerance=effect.tolerance, margin=effect.margin)


def _assumed(found: Contrast) -> list[str]:
    """Whether the noise between runs was measured at all."""
    if found.residuals.freedom or not found.is_ratio:
        return []
    return ["one run a side: the noise between runs is assumed, not measured; more seeds measure it"]


def _effect_of_rounds(
    estimate: PairedSpeedup, sides: Sides, options: CompareOptions
) -> tuple[MeasuredEffect, list[str]]:
    """The effect of sides that were measured side by side, and what it rests on: rounds count in place of epochs."""
    drift = options.paired_drift
    effect = MeasuredEffect(estimate, drift, options.margin_of(THROUGHPUT.effect), {}, estimate.sessions)
    must = f"{said_of_rounds(estimate)}: a difference must lie outside 1 ± {drift * 100:g}%"
    return effect, [must, *why_so_few(estimate, [run for side in sides for run in side.finished])]


def _rates_at(speedup: float, sides: Sides) -> tuple[float, float]:
    """What each side does in a typical round, so that the two have the speedup of the rounds between them."""
    baseline, candidate = (side.typical or 1.0 for side in sides)
    middle = math.sqrt(baseline * candidate)
    low = middle / math.sqrt(speedup)
    return low, low * speedup


def _too_few_rounds(sides: Sides) -> str:
    way_out = "; a longer `measure.max_seconds` gives more" if _have_met(sides) else ""
    return f"too few rounds: no pair of processes has {LEAST_ROUNDS} measured side by side{way_out}"


def _have_met(sides: Sequence[Side]) -> bool:
    """Whether the two sides took turns with each other, if only for warm-up."""
    first, second = ({turn.session for run in side.finished for turn in run.turns} for side in sides)
    return bool(first & second)


def _unfinished(sides: Sequence[Side]) -> list[str]:
    return [f"{side.label}: {side.state}" for side in sides if not side.finished]


def _counts(sides: Sides) -> tuple[int, int]:
    baseline, candidate = (sum(map(len, side.values)) for side in sides)
    return baseline, candidate


def obstacles(sides: Sides, options: CompareOptions) -> list[str]:
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

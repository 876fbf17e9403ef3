"""The verdict on each pair of a comparison, from the interval of its effect, with the reason."""

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from runmanager.records.run.attempts import measured_since, session_of_epoch
from runmanager.results.compare.caveats import ContentionCauses, contention_caveats, hidden_cost_caveats, pair_caveats
from runmanager.results.compare.comparability import compared_environments, count_values, obstacles
from runmanager.results.compare.comparison_side import Side, resolution_of
from runmanager.results.compare.comparison_table import MeasuredEffect
from runmanager.results.compare.options import CompareOptions
from runmanager.results.compare.paired_effect import paired_effect, paired_obstacles, paired_rates
from runmanager.results.compare.run_pairs import RunPair, pair_runs, pair_seeds
from runmanager.results.metrics.metric import THROUGHPUT, Metric
from runmanager.results.stats.descriptive import Estimate, Interval, median
from runmanager.results.stats.effects import ROUNDING, Contrast, make_contrast, run_values, simultaneous_estimates
from runmanager.results.stats.noise_model import Residuals
from runmanager.results.stats.paired_speedup import log_ratios_by_session, paired_speedup

__all__ = [
    "DIFFERENT",
    "INCONCLUSIVE",
    "NOT_MEASURED",
    "NO_DIFFERENCE",
    "VERDICTS",
    "Judgement",
    "judge",
    "residuals_of_pairs",
    "took_turns",
    "verdict",
]

NOT_MEASURED = "not measured"
NO_DIFFERENCE = "no difference"
INCONCLUSIVE = "inconclusive"
DIFFERENT = ("faster", "slower", "better", "worse")
VERDICTS = (*DIFFERENT, NO_DIFFERENCE, INCONCLUSIVE)
"""The verdicts on measured pairs."""

Sides = tuple[Side, Side]

_BALANCED = (0.25, 0.75)


def verdict(metric: Metric, interval: Interval, *, tolerance: float, margin: float | None) -> str:
    """Return the verdict on an effect with this interval, the first that applies.

    A difference, where the interval lies wholly outside 1 ± `tolerance` (0 ± for differences); `no difference`, where
    it lies within 1 ± `margin`; else `inconclusive`.
    """
    no_effect = 0.0 if metric.effect == "difference" else 1.0
    if interval.low > no_effect + tolerance:
        return metric.verdict_word(1)
    if interval.high < no_effect - tolerance:
        return metric.verdict_word(-1)
    if margin is not None and no_effect - margin <= interval.low and interval.high <= no_effect + margin:
        return NO_DIFFERENCE
    return INCONCLUSIVE


@dataclass(frozen=True)
class Judgement:
    """The verdict on a pair with its reason, and what it rests on; each tuple is baseline, candidate.

    `values` are the sides' own values of the metric, `counts` the numbers of measured values. `effect` is None where
    the pair is not measured, `are_equal` whether that is because the runs of both sides have the same values.
    """

    verdict: str
    reason: str | None
    values: tuple[float | None, float | None]
    counts: tuple[int, int]
    effect: MeasuredEffect | None
    are_equal: bool = False


@dataclass(frozen=True)
class _Evidence:
    """A pair before its interval is computed: the obstacles to a comparison, or the data for it.

    `seeds` are those of the pairs of runs in the `contrast`, empty where the runs are not paired by seed. `rounds` are
    the log ratios of each round, session by session, of sides that were measured side by side.
    """

    sides: Sides
    obstacles: Sequence[str] = ()
    contrast: Contrast | None = None
    seeds: Sequence[str] = ()
    rounds: Sequence[Sequence[float]] | None = None
    are_equal: bool = False

    @property
    def metric(self) -> Metric:
        return self.sides[1].metric


def judge(
    pairs: Sequence[Sides], shared_host: ContentionCauses, options: CompareOptions, *, among: int = 0
) -> list[Judgement]:
    """Judge each pair of a comparison (baseline, candidate): its effect with an interval, its verdict and reason.

    The intervals of all rows hold simultaneously with 95% confidence, together with further ones up to `among`, where
    the pairs were picked from that many after looking at the results.
    """
    evidence = [_gather_evidence(sides, options) for sides in pairs]
    contrasts = [each.contrast for each in evidence if each.contrast is not None]
    rows = max(among, len(contrasts) + sum(each.rounds is not None and not each.obstacles for each in evidence))
    found = iter(simultaneous_estimates(contrasts, rows=rows))
    return [_judge(each, found, rows, shared_host, options) for each in evidence]


def residuals_of_pairs(pairs: Sequence[Sides]) -> Residuals:
    """Return the noise between runs that all comparable pairs show together."""
    evidence = [_gather_evidence(sides, CompareOptions()) for sides in pairs]
    seen = [each.contrast.residuals for each in evidence if each.contrast is not None]
    return Residuals(math.fsum(each.squares for each in seen), math.fsum(each.dof for each in seen))


def _gather_evidence(sides: Sides, options: CompareOptions) -> _Evidence:
    if sides[1].metric == THROUGHPUT and all(side.in_turns for side in sides):
        rounds = log_ratios_by_session(*(side.finished for side in sides))
        return _Evidence(sides, paired_obstacles(sides, rounds), rounds=rounds)
    if found := obstacles(sides, options):
        return _Evidence(sides, found)
    run_pairs = pair_runs(*([run for run, _ in side.measured] for side in sides))
    contrast = _contrast(sides, run_pairs)
    if contrast.has_unknown_noise:
        are_equal = run_pairs is not None and not any(contrast.differences)
        return _Evidence(sides, [_why_noise_is_unknown(sides)], are_equal=are_equal)
    return _Evidence(sides, contrast=contrast, seeds=pair_seeds(run_pairs))


def _why_noise_is_unknown(sides: Sides) -> str:
    medians = ([middle for values in side.values if (middle := median(values)) is not None] for side in sides)
    if all(max(values) - min(values) <= ROUNDING * max(map(abs, values)) for values in medians):
        return (
            "no run differs from another of its side by more than rounding, so their noise is not known; does the seed "
            "change anything?"
        )
    return "the two sides differ equally in each pair of runs, up to rounding, so the noise of that is not known"


def _contrast(sides: Sides, run_pairs: Sequence[RunPair] | None) -> Contrast:
    by_folder: list[dict[Path, list[float]]] = [
        {run.paths.root: values for run, values in side.measured} for side in sides
    ]
    metric = sides[1].metric
    if run_pairs is None:
        values = [list(each.values()) for each in by_folder]
    else:
        values = [[each[pair[at].paths.root] for pair in run_pairs] for at, each in enumerate(by_folder)]
    if metric.is_time:  # its speedup is that of the inverse
        values.reverse()
    is_ratio = metric.effect != "difference"
    resolution = 0.0 if is_ratio else resolution_of(metric, sides)
    baseline, candidate = (run_values(side, is_ratio=is_ratio) for side in values)
    paired = run_pairs is not None
    return make_contrast(baseline, candidate, is_ratio=is_ratio, are_paired=paired, resolution=resolution)


def _judge(
    evidence: _Evidence,
    found: Iterator[Estimate],
    rows: int,
    shared_host: ContentionCauses,
    options: CompareOptions,
) -> Judgement:
    sides, metric = evidence.sides, evidence.metric
    baseline, candidate = sides
    values, counts = (baseline.typical, candidate.typical), count_values(sides)
    effect: MeasuredEffect | None = None
    basis = list(evidence.obstacles)
    if evidence.contrast is not None:
        tolerance, why = _tolerance(sides, options)
        by_seed = dict(zip(evidence.seeds, evidence.contrast.differences, strict=False))
        effect = MeasuredEffect(next(found), tolerance, options.margin_of(metric.effect), by_seed)
        basis = [*why, *_noise_caveat(evidence.contrast)]
    elif evidence.rounds is not None:
        estimate = paired_speedup(evidence.rounds, rows=rows)
        counts = (estimate.rounds, estimate.rounds) if estimate else (0, 0)
        if estimate is not None and not evidence.obstacles:
            values = paired_rates(estimate.value, sides)
            effect, basis = paired_effect(estimate, sides, options)
    # Of a pair that is not measured, hidden costs would read as the cause.
    hidden = [] if evidence.obstacles else hidden_cost_caveats(sides)
    caveats = pair_caveats(sides, is_compared=not evidence.obstacles)
    contended = contention_caveats(sides, shared_host) if metric.effect == "speedup" else []  # it changes no result
    reason = "; ".join([*contended, *compared_environments(sides), *basis, *hidden, *caveats])
    return Judgement(
        NOT_MEASURED if effect is None else _verdict_on(metric, effect),
        reason or None,
        values,
        counts,
        effect,
        evidence.are_equal,
    )


def _verdict_on(metric: Metric, effect: MeasuredEffect) -> str:
    return verdict(metric, effect.estimate.interval, tolerance=effect.tolerance, margin=effect.margin)


def _noise_caveat(contrast: Contrast) -> list[str]:
    if contrast.residuals.dof or not contrast.is_ratio:
        return []
    return ["one run a side: the noise between runs is assumed, not measured; more seeds measure it"]


def _tolerance(sides: Sides, options: CompareOptions) -> tuple[float, list[str]]:
    """Return how far from 1 the interval of a difference must lie, and why.

    It is the machine's possible drift between the sides. Where the runs took turns it is 0: the interval includes it.
    """
    if sides[1].metric.effect == "difference":
        return 0.0, []
    if _are_interleaved(sides):
        share = options.paired_drift
        return share, [f"epochs side by side: a difference must lie outside 1 ± {share * 100:g}%"]
    baseline, candidate = ([measured_since(run.record, run.epochs) or "" for run in side.finished] for side in sides)
    if took_turns(baseline, candidate):
        return 0.0, []
    share = options.drift
    rule = f"so a difference must lie outside 1 ± {share * 100:g}%"
    return share, [f"one side ran after the other: the interval does not know the machine's drift between them, {rule}"]


def _are_interleaved(sides: Sides) -> bool:
    """Whether the epochs of both sides took turns with each other; a setting that asks for it does not prove it.

    A side that died and was run again trained those epochs in a session alone.
    """
    if not all(side.in_turns for side in sides):
        return False
    baseline, candidate = (
        {session_of_epoch(run.record, each.epoch) for run in side.finished for each in run.epochs} for side in sides
    )
    return baseline == candidate and None not in baseline


def took_turns(baseline: Sequence[str], candidate: Sequence[str]) -> bool:
    """Whether neither side as a whole started before the other, so that a drift of the machine affects both equally.

    `baseline` and `candidate` are the times at which the runs were measured. The criterion is the share of all pairs of
    runs in which the baseline's came first (the statistic of Mann and Whitney 1947, over the product of the counts):
    0.5 for sides that take turns, 0 or 1 where one follows the other. Equal times count half for either side.
    """
    first = sum(0.5 * (one <= other) + 0.5 * (one < other) for one in baseline for other in candidate)
    return _BALANCED[0] <= first / (len(baseline) * len(candidate)) <= _BALANCED[1]

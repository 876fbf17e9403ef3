"""The verdict on each pair of a comparison, from the interval of its effect, with the reason."""

import dataclasses
import datetime
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from runmanager.records.run.attempts import measured_since, session_of_epoch
from runmanager.records.settings.grid import seed_text
from runmanager.records.storage.reader import StoredRun
from runmanager.results.compare.caveats import ContentionCauses, contention_caveats, hidden_cost_caveats, pair_caveats
from runmanager.results.compare.comparability import compared_environments, count_values, obstacles
from runmanager.results.compare.comparison_table import CompareOptions, MeasuredEffect, Side, resolution_of
from runmanager.results.compare.paired_effect import paired_effect, paired_obstacles, paired_rates
from runmanager.results.metrics.metric import THROUGHPUT, Metric
from runmanager.results.stats.descriptive import Estimate, Interval, Sample, make_sample, median
from runmanager.results.stats.effects import (
    ROUNDING,
    Contrast,
    assumed_share,
    likely_deviations,
    pooled_residuals,
    simultaneous_estimates,
    smallest_detectable,
)
from runmanager.results.stats.noise_model import Residuals
from runmanager.results.stats.paired_speedup import log_ratios_by_session, paired_speedup


class Look(NamedTuple):
    """How a verdict is shown: its style in a terminal, and in figures the number of its colour (None: grey) and mark.

    The mark points to the side of the interval; it is hollow where that shows no difference.
    """

    style: str
    colour: int | None
    mark: str

    @property
    def is_hollow(self) -> bool:
        return self.colour is None


AHEAD, BEHIND = ("faster", "better"), ("slower", "worse")  # by speed, and by any other metric
DIFFERENT = tuple(word for pair in zip(AHEAD, BEHIND, strict=True) for word in pair)
NO_DIFFERENCE, INCONCLUSIVE, NOT_MEASURED = "no difference", "inconclusive", "not measured"

_AHEAD_LOOK, _BEHIND_LOOK = Look("green", 0, ">"), Look("magenta", 3, "<")
VERDICTS = {
    **{word: _AHEAD_LOOK if word in AHEAD else _BEHIND_LOOK for word in DIFFERENT},
    NO_DIFFERENCE: Look("", None, "o"),
    INCONCLUSIVE: Look("yellow", None, "d"),
}
"""The verdicts on measured pairs, in the order in which they are told."""

Sides = tuple[Side, Side]

_BALANCED = (0.25, 0.75)


def verdict(metric: Metric, interval: Interval, *, tolerance: float, margin: float | None, drift: float = 0.0) -> str:
    """Return the verdict on an effect with this interval, the first that applies.

    A difference, where the interval lies wholly outside 1 ± `tolerance` (0 ± for differences); `no difference`, where
    it lies within 1 ± `margin`, and that is more than the `drift`; else `inconclusive`.
    """
    no_effect = 0.0 if metric.effect == "difference" else 1.0
    if interval.low > no_effect + tolerance:
        return _word(metric, is_more=True)
    if interval.high < no_effect - tolerance:
        return _word(metric, is_more=False)
    if margin is None or (drift and margin <= drift):
        return INCONCLUSIVE
    is_within = no_effect - margin <= interval.low and interval.high <= no_effect + margin
    return NO_DIFFERENCE if is_within else INCONCLUSIVE


def _word(metric: Metric, *, is_more: bool) -> str:
    """Return the verdict on an effect above or below no effect."""
    is_speed = metric.effect == "speedup"
    is_ahead = is_more if is_speed else is_more == metric.more_is_better
    return (AHEAD if is_ahead else BEHIND)[not is_speed]


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

    `seeds` are those of the pairs of runs in the `contrast`, empty where the runs are not paired. `rounds` are the log
    ratios of each round, session by session, of sides that were measured side by side.
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
    pairs: Sequence[Sides],
    shared_host: ContentionCauses,
    options: CompareOptions,
    *,
    among: int = 0,
    is_one_sided: bool = False,
) -> list[Judgement]:
    """Judge each pair of a comparison (baseline, candidate): its effect with an interval, its verdict and reason.

    The intervals of all rows hold simultaneously but for the error rate of the `options`, together with further ones up
    to `among`, where the pairs were picked from that many after looking at the results. If it `is_one_sided`, one end
    of each is what is to hold.
    """
    confidence = 1 - (2 if is_one_sided else 1) * options.error_rate
    evidence = [_gather_evidence(sides, options) for sides in pairs]
    contrasts = [each.contrast for each in evidence if each.contrast is not None]
    rows = max(among, len(contrasts) + sum(each.rounds is not None and not each.obstacles for each in evidence))
    found = iter(simultaneous_estimates(contrasts, rows=rows, confidence=confidence, is_joint=options.is_joint))
    noise = pooled_residuals(contrasts)
    return [_judge(each, found, noise, rows, shared_host, options) for each in evidence]


def residuals_of_pairs(pairs: Sequence[Sides]) -> Residuals:
    """Return the noise between runs that all comparable pairs show together."""
    evidence = [_gather_evidence(sides, CompareOptions()) for sides in pairs]
    return pooled_residuals([each.contrast for each in evidence if each.contrast is not None])


def _gather_evidence(sides: Sides, options: CompareOptions) -> _Evidence:
    if sides[1].metric == THROUGHPUT and all(side.in_turns for side in sides):
        rounds = log_ratios_by_session(*(side.finished for side in sides))
        return _Evidence(sides, paired_obstacles(sides, rounds), rounds=rounds)
    if found := obstacles(sides, options):
        return _Evidence(sides, found)
    seeds = _common_seeds(sides)
    contrast = _contrast(sides, seeds, options)
    if contrast.has_unknown_noise:
        are_equal = bool(seeds) and not any(contrast.differences)
        return _Evidence(sides, [_why_noise_is_unknown(sides)], are_equal=are_equal)
    return _Evidence(sides, contrast=contrast, seeds=seeds)


def _why_noise_is_unknown(sides: Sides) -> str:
    medians = ([middle for values in side.values if (middle := median(values)) is not None] for side in sides)
    if all(max(values) - min(values) <= ROUNDING * max(map(abs, values)) for values in medians):
        return (
            "no run differs from another of its side by more than rounding, so their noise is not known; does the seed "
            "change anything?"
        )
    return "the two sides differ equally in each pair of runs, up to rounding, so the noise of that is not known"


def _common_seeds(sides: Sides) -> list[str]:
    """Return the seeds by which runs are paired: those of both sides, if they are equal and each is there once.

    A seed decides what is learnt, and so is shared by both sides; it does not decide how fast a machine is.
    """
    if sides[1].metric.effect == "speedup":
        return []
    first, second = ([seed_text(side.seeds_of(run)) for run, _ in side.measured] for side in sides)
    are_common = len(first) > 1 and len(first) == len(set(first)) and sorted(first) == sorted(second)
    return first if are_common else []


def _contrast(sides: Sides, seeds: Sequence[str], options: CompareOptions) -> Contrast:
    metric = sides[1].metric
    is_ratio = metric.effect != "difference"
    resolution = 0.0 if is_ratio else resolution_of(metric, sides)
    baseline, candidate = (
        _sample(side, seeds, name) for side, name in zip(sides, ("baseline", "candidate"), strict=True)
    )
    if metric.is_time:  # its speedup is that of the inverse
        baseline, candidate = candidate, baseline
    drift = 0.0 if metric.effect != "speedup" or _are_interleaved(sides) or _took_turns(sides) else options.drift
    return Contrast(baseline, candidate, bool(seeds), resolution, drift)


def _sample(side: Side, seeds: Sequence[str], name: str) -> Sample:
    """Return the measured runs of a side, in the order of their seeds where they are paired."""
    measured = list(side.measured)
    if seeds:
        of_seed = {seed_text(side.seeds_of(run)): (run, values) for run, values in measured}
        measured = [of_seed[seed] for seed in seeds]
    is_speed = side.metric.effect == "speedup"
    starts = [_measured_since(run) for run, _ in measured] if is_speed else [""]
    times = [datetime.datetime.fromisoformat(each).timestamp() for each in starts] if all(starts) else []
    return make_sample(
        [values for _, values in measured],
        is_ratio=side.metric.effect != "difference",
        name=name,
        key=tuple(sorted((str(run.paths.root), tuple(values)) for run, values in measured)),
        times=times,
    )


def _judge(
    evidence: _Evidence,
    found: Iterator[Estimate],
    noise: Residuals,
    rows: int,
    shared_host: ContentionCauses,
    options: CompareOptions,
) -> Judgement:
    sides, metric = evidence.sides, evidence.metric
    baseline, candidate = sides
    values, counts = (baseline.typical, candidate.typical), count_values(sides)
    effect: MeasuredEffect | None = None
    basis = list(evidence.obstacles)
    contended = contention_caveats(sides, shared_host) if metric.effect == "speedup" else []  # it changes no result
    if evidence.contrast is not None:
        effect, basis = _effect(evidence, evidence.contrast, next(found), noise, options)
        if contended:
            effect = dataclasses.replace(effect, detectable=_detectable(evidence.contrast, noise, rows))
            basis += _too_small_to_see(effect)
    elif evidence.rounds is not None:
        estimate = paired_speedup(evidence.rounds, rows=rows)
        counts = (estimate.rounds, estimate.rounds) if estimate else (0, 0)
        if estimate is not None and not evidence.obstacles:
            values = paired_rates(estimate.value, sides)
            effect, basis = paired_effect(estimate, sides, options)
    # Of a pair that is not measured, hidden costs would read as the cause.
    hidden = [] if evidence.obstacles else hidden_cost_caveats(sides)
    caveats = pair_caveats(sides, is_compared=not evidence.obstacles)
    reason = "; ".join([*contended, *compared_environments(sides), *basis, *hidden, *caveats])
    return Judgement(
        NOT_MEASURED if effect is None else verdict_on(metric, effect),
        reason or None,
        values,
        counts,
        effect,
        evidence.are_equal,
    )


def verdict_on(metric: Metric, effect: MeasuredEffect) -> str:
    """Return the verdict on a measured effect."""
    interval = effect.estimate.interval
    found = verdict(metric, interval, tolerance=effect.tolerance, margin=effect.margin, drift=effect.drift)
    return INCONCLUSIVE if found in DIFFERENT and is_too_small_to_see(effect) else found


def _effect(
    evidence: _Evidence, contrast: Contrast, estimate: Estimate, noise: Residuals, options: CompareOptions
) -> tuple[MeasuredEffect, list[str]]:
    """Return the effect of a pair, and the sentences that say what its interval rests on."""
    sides, metric, said = evidence.sides, evidence.metric, list[str]()
    tolerance = 0.0
    if metric.effect == "speedup" and _are_interleaved(sides):
        tolerance = options.paired_drift
        said.append(f"epochs side by side: a difference must lie outside 1 ± {tolerance * 100:g}%")
    if contrast.drift:
        said.append(
            f"one side ran after the other: the interval includes a drift of the machine by {contrast.drift * 100:g}%"
        )
    if contrast.is_ratio and (shift := estimate.value / contrast.value - 1):
        said.append(f"the machine's speed drifted: the speedup is corrected by {shift * 100:+.2g}%")
    said += _assumed(contrast, estimate, noise)
    by_seed = dict(zip(evidence.seeds, contrast.differences, strict=True))
    effect = MeasuredEffect(estimate, tolerance, options.margin_of(metric.effect), by_seed, contrast.drift)
    return effect, said


_LEAST_NAMED = 0.001  # half-width of an interval of ratios: who assumes less need not say so


def _assumed(contrast: Contrast, estimate: Estimate, noise: Residuals) -> list[str]:
    """Say what part of an interval's width is owed to assumptions instead of the runs, where it is more than half."""
    if not contrast.residuals.dof and contrast.is_ratio:
        return ["one run a side: the noise between runs is assumed, not measured; more seeds measure it"]
    share = assumed_share(contrast, estimate, noise)
    if share <= 0.5 or (contrast.is_ratio and estimate.high <= estimate.value * (1 + _LEAST_NAMED)):
        return []
    what = "an unseen drift" if contrast.drift else "the noise between runs, which so few do not show"
    return [f"of its width {share:.0%} is assumed: {what}"]


def _detectable(contrast: Contrast, noise: Residuals, rows: int) -> float:
    """Return the smallest difference in speed that the noise of all pairs lets see: what the report says of it."""
    runs = min(len(contrast.baseline.runs), len(contrast.candidate.runs))
    return smallest_detectable(contrast.drift, deviations=likely_deviations(noise), runs=runs, rows=rows)


def is_too_small_to_see(effect: MeasuredEffect) -> bool:
    """Whether the effect of contended runs is smaller than what their noise lets see."""
    return bool(effect.detectable) and max(effect.estimate.value, 1 / effect.estimate.value) - 1 <= effect.detectable


def _too_small_to_see(effect: MeasuredEffect) -> list[str]:
    if not is_too_small_to_see(effect):
        return []
    return [f"contended runs show {detectable_text(effect.detectable)}"]


def detectable_text(least: float) -> str:
    """Describe the smallest difference in speed (a ratio less 1) that can be seen."""
    above = f"above about {least:.0%}" if least < 1 else f"of more than a factor of about {1 + least:.0f}"
    return f"only differences in speed {above}"


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


def _took_turns(sides: Sides) -> bool:
    return took_turns(*([_measured_since(run) for run in side.finished] for side in sides))


def _measured_since(run: StoredRun) -> str:
    return measured_since(run.record, run.epochs) or ""


def took_turns(baseline: Sequence[str], candidate: Sequence[str]) -> bool:
    """Whether neither side as a whole started before the other, so that a drift of the machine affects both equally.

    `baseline` and `candidate` are the times at which the runs were measured. The criterion is the share of all pairs of
    runs in which the baseline's came first (the statistic of Mann and Whitney 1947, over the product of the counts):
    0.5 for sides that take turns, 0 or 1 where one follows the other. Equal times count half for either side.
    """
    first = sum(0.5 * (one <= other) + 0.5 * (one < other) for one in baseline for other in candidate)
    return _BALANCED[0] <= first / (len(baseline) * len(candidate)) <= _BALANCED[1]

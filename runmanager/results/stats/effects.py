"""The ratio or difference of two sides with its interval, for all rows of a comparison together. Pure functions.

With the drift of a machine's speed, seen or assumed, and the power: how often a comparison finds a true difference.
"""

import math
from collections.abc import Hashable, Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache

from runmanager.results.stats.descriptive import Estimate, Runs, Sample, make_sample, mean, ratio_factor, residuals
from runmanager.results.stats.noise_model import (
    CONFIDENCE,
    DIFFERENCES,
    RATIOS,
    Difference,
    LearntNoise,
    Reach,
    Residuals,
    critical_value,
)

_QUANTILE = 1.96  # of 95% of normal errors
_LEAST_DOF = 3
_LEAST_REST = 1e-6
_DRIFTING = 0.15  # probability of a trend before the runs are seen
_EXPECTED_DRIFT = 0.1


def drift_variance(drift: float) -> float:
    """Return the variance of a drift, in logarithms of a speed, that exceeds this bound in 1 of 20 cases."""
    return (math.log1p(drift) / _QUANTILE) ** 2


@dataclass(frozen=True)
class Trend:
    """A drift of the machine's speed that is linear in time, and how sure it is.

    `slope` is that of the logarithm of the speed by seconds, with its `variance`; `chance` is the probability that
    there is a drift. Unless it is more probable than not, values are left as they are, and it is a part of the error.
    `dof` are the degrees of freedom of the runs that it was seen in.
    """

    slope: float = 0.0
    variance: float = 0.0
    chance: float = 0.0
    dof: float = 0.0

    @property
    def is_seen(self) -> bool:
        return self.chance > 0.5

    def between(self, baseline: Sample, candidate: Sample) -> float:
        """Return how much faster the candidate ran for its time alone, in logarithms."""
        return self.chance * self.slope * _seconds_between(baseline, candidate) if self.is_seen else 0.0

    def variance_between(self, baseline: Sample, candidate: Sample) -> float:
        """Return the variance of the difference of two sides that the trend leaves."""
        left = self.variance + (1 - self.chance if self.is_seen else 1.0) * self.slope**2
        return self.chance * left * _seconds_between(baseline, candidate) ** 2

    def rest_of(self, sample: Sample) -> Residuals:
        """Return the residuals of a sample without the trend."""
        found = sample.residuals
        if not self.is_seen or not sample.times:
            return found
        middle = mean(sample.times)
        values = [
            value - self.chance * self.slope * (time - middle)
            for value, time in zip(sample.values, sample.times, strict=True)
        ]
        return Residuals(residuals(values).squares, found.dof * (1 - self.chance / self.dof))


def _seconds_between(baseline: Sample, candidate: Sample) -> float:
    are_known = baseline.times and candidate.times
    return mean(candidate.times) - mean(baseline.times) if are_known else 0.0


def fit_trend(samples: Sequence[Sample]) -> Trend:
    """Fit one trend to the runs of all samples, by their residuals alone; none where their times do not tell.

    Its probability is that of Bayes' theorem for a g-prior (Zellner 1986) that expects a drift of 10% over all runs.
    """
    known = {(number, each.key) if each.key is None else each.key: each for number, each in enumerate(samples)}
    cells = [each for each in known.values() if each.is_ratio and len(each.times) == len(each.runs) > 1]
    dof = math.fsum(len(each.runs) - 1 for each in cells)
    if dof < _LEAST_DOF:
        return Trend()
    seen = [each.residuals for each in cells]
    common = math.fsum(each.squares for each in seen) / dof
    if not common:
        return Trend()
    information = moment = before = 0.0
    for cell, of_cell in zip(cells, seen, strict=True):
        weight = (of_cell.dof + 1) / (of_cell.squares + common)
        middle = mean(cell.times)
        information += weight * math.fsum((time - middle) ** 2 for time in cell.times)
        moment += weight * math.fsum(
            (time - middle) * value for time, value in zip(cell.times, cell.values, strict=True)
        )
        before += weight * of_cell.squares
    times = [time for cell in cells for time in cell.times]
    span = max(times) - min(times)
    if not information:
        return Trend()
    slope = moment / information
    after = max(before - slope**2 * information, _LEAST_REST * before)
    noise = after / (dof - 1)
    expected = drift_variance(_EXPECTED_DRIFT) / span**2 * information / noise
    evidence = dof / 2 * math.log(before / after) - 0.5 * math.log1p(expected)
    odds = _DRIFTING / (1 - _DRIFTING) * math.exp(min(evidence, 700.0))
    learnt = expected / (1 + expected)  # the rest of a slope is what is expected of it: none
    return Trend(learnt * slope, learnt * noise / information, odds / (1 + odds), dof)


ROUNDING = 1e-9
"""Relative difference up to which two values count as equal."""


@dataclass(frozen=True)
class Contrast:
    """Two sides before their interval is computed.

    `are_paired`: their runs are pairs in their order. `resolution` is the smallest difference of two values that the
    metric can show. `drift` bounds an unseen drift of the machine between the sides with 95% (a ratio less 1).
    """

    baseline: Sample
    candidate: Sample
    are_paired: bool = False
    resolution: float = 0.0
    drift: float = 0.0

    @property
    def is_ratio(self) -> bool:
        return self.baseline.is_ratio

    @property
    def value(self) -> float:
        """Candidate / baseline, or candidate - baseline."""
        low, high = self.baseline.typical, self.candidate.typical
        return high / low if self.is_ratio else high - low

    @cached_property
    def differences(self) -> list[float]:
        """The differences of the pairs of runs, of logarithms for a ratio; empty for two independent samples."""
        if not self.are_paired:
            return []
        return [other - one for one, other in zip(self.baseline.values, self.candidate.values, strict=True)]

    @property
    def residuals(self) -> Residuals:
        """The noise between runs of equal settings that the two sides show."""
        if self.are_paired:
            return residuals(self.differences, share=0.5)
        seen = self.baseline.residuals, self.candidate.residuals
        return Residuals(seen[0].squares + seen[1].squares, seen[0].dof + seen[1].dof)

    @property
    def has_unknown_noise(self) -> bool:
        """Whether no run differs from another of its side by more than rounding, so that the noise is not known."""
        scale = max(abs(self.baseline.typical), abs(self.candidate.typical))
        return not self.is_ratio and not self.resolution and self.residuals.squares <= (ROUNDING * scale) ** 2

    @property
    def least_variance(self) -> float:
        """The variance of the difference that the epochs alone explain."""
        return self.baseline.least_variance + self.candidate.least_variance


def make_contrast(
    baseline: Runs, candidate: Runs, *, is_ratio: bool, are_paired: bool = False, resolution: float = 0.0
) -> Contrast:
    """Contrast the values of two sides. Raises as `make_sample`."""
    low = make_sample(baseline, is_ratio=is_ratio, name="baseline")
    high = make_sample(candidate, is_ratio=is_ratio, name="candidate")
    return Contrast(low, high, are_paired, resolution)


def simultaneous_estimates(
    contrasts: Sequence[Contrast],
    *,
    rows: int | None = None,
    confidence: float = CONFIDENCE,
    is_joint: bool = True,
) -> list[Estimate]:
    """Estimate the rows of a comparison, all ratios or all differences, with simultaneous intervals if `is_joint`.

    `rows` counts further rows whose intervals are of another kind. The noise is learnt from all rows together
    (`noise_model.py`), and so is a drift of the machine over time where the order of the runs lets it be seen.
    """
    if not contrasts:
        return []
    is_ratio = contrasts[0].is_ratio
    sources: dict[Hashable, tuple[int, Residuals]] = {}
    trend = fit_trend([sample for each in contrasts for sample in (each.baseline, each.candidate)])

    def source_of(key: Hashable, seen: Residuals) -> int:
        return sources.setdefault(key, (len(sources), seen))[0]

    differences = []
    for number, each in enumerate(contrasts):
        count = len(each.baseline.runs)
        if each.are_paired:
            # Its residuals are a single run's part of the difference.
            terms = [(source_of(("pairs", number), each.residuals), math.sqrt(2 / count))]
        else:
            terms = [
                (source_of(_key(sample, number, sign), trend.rest_of(sample)), sign / math.sqrt(len(sample.runs)))
                for sign, sample in ((-1, each.baseline), (1, each.candidate))
            ]
        # A trend is not extrapolated from one side to a later one: the bound of the drift stands for it.
        extra = drift_variance(each.drift) if each.drift else trend.variance_between(each.baseline, each.candidate)
        differences.append(Difference(terms, each.least_variance, extra))
    noise = LearntNoise([seen for _, seen in sources.values()], RATIOS if is_ratio else DIFFERENCES)
    reaches = noise.reaches(differences, rows=rows, confidence=confidence, is_joint=is_joint)
    return [
        _estimate(each, 0.0 if each.drift else trend.between(each.baseline, each.candidate), reach)
        for each, reach in zip(contrasts, reaches, strict=True)
    ]


def _key(sample: Sample, number: int, sign: int) -> Hashable:
    return (number, sign) if sample.key is None else (sample.key,)


def _estimate(contrast: Contrast, shift: float, reach: Reach) -> Estimate:
    half_width = max(reach.half_width, contrast.resolution * (1 + ROUNDING))
    if contrast.is_ratio:
        value, factor = contrast.value * math.exp(-shift), ratio_factor(half_width)
        return Estimate(value, value / factor, value * factor, reach.error, reach.dof)
    value = contrast.value
    return Estimate(value, value - half_width, value + half_width, reach.error, reach.dof)


def pooled_residuals(contrasts: Sequence[Contrast]) -> Residuals:
    """Return the noise between runs of equal settings that all rows show together, without a drift that is seen."""
    trend = fit_trend([sample for each in contrasts for sample in (each.baseline, each.candidate)])
    seen = [each.residuals for each in contrasts if each.are_paired]
    unpaired = [(number, each) for number, each in enumerate(contrasts) if not each.are_paired]
    samples = {
        _key(sample, number, sign): sample
        for number, each in unpaired
        for sign, sample in ((-1, each.baseline), (1, each.candidate))
    }
    seen += [trend.rest_of(sample) for sample in samples.values()]
    return Residuals(math.fsum(each.squares for each in seen), math.fsum(each.dof for each in seen))


def assumed_share(contrast: Contrast, estimate: Estimate, pooled: Residuals) -> float:
    """Return the share of an interval's width that runs do not explain, but what is assumed of them.

    Runs explain the larger one of Welch's interval (*Biometrika* 34, 1947) and Student's t by the `pooled` residuals of
    all rows; with one run a side nothing.
    """
    width = estimate.error * critical_value(estimate.dof, 1)
    if not 0 < width < math.inf or not contrast.residuals.dof:
        return float(not contrast.residuals.dof)
    counts = len(contrast.baseline.runs), len(contrast.candidate.runs)
    error = math.sqrt(pooled.squares / pooled.dof * sum(1 / count for count in counts))
    explained = max(_width_by_runs(contrast), critical_value(pooled.dof, 1) * error)
    return max(0.0, 1 - explained / width)


def _width_by_runs(contrast: Contrast) -> float:
    seen = [contrast.baseline.residuals, contrast.candidate.residuals]
    if contrast.are_paired:
        seen = [residuals(contrast.differences)]
    if not all(each.dof for each in seen):
        return 0.0
    variances = [each.squares / each.dof / (each.dof + 1) for each in seen]
    total = math.fsum(variances)
    if not total:
        return 0.0
    dof = 1 / math.fsum((each / total) ** 2 / of.dof for each, of in zip(variances, seen, strict=True))
    return math.sqrt(total) * critical_value(dof, 1)


def error_of_first(samples: Sequence[Sample]) -> float:
    """Return the standard error of the mean of the first sample, whose noise is learnt from all."""
    prior = RATIOS if samples[0].is_ratio else DIFFERENCES
    mean_of_runs = Difference([(0, math.sqrt(1 / len(samples[0].runs)))])
    return LearntNoise([each.residuals for each in samples], prior).reaches([mean_of_runs])[0].error


def typical_interval(runs: Runs) -> Estimate:
    """Estimate a side's throughput, the geometric mean over runs, with its 95% interval.

    Raises as `make_sample`.
    """
    sample = make_sample(runs, is_ratio=True)
    difference = Difference([(0, math.sqrt(1 / len(sample.runs)))], sample.least_variance)
    (reach,) = LearntNoise([sample.residuals], RATIOS).reaches([difference])
    value, factor = sample.typical, ratio_factor(reach.half_width)
    return Estimate(value, value / factor, value * factor, reach.error, reach.dof)


MAX_RUNS = 100
"""The largest number of runs a side that is proposed."""

_ASSUMED_DEVIATION = 0.02  # of the logarithm of the speed of runs of equal settings, where too few were measured
_MIN_DOF = 2  # of measured runs, to be used
_STEPS = 3
_MAX_ROWS = 4  # more rows hardly teach more of the noise


def likely_deviations(seen: Residuals) -> tuple[float, ...]:
    """Return deviations of runs of equal settings that are equally probable: one, an assumption, if too few were seen.

    They are those of the logarithm of a speed, in order.
    """
    if seen.dof < _MIN_DOF:
        return (_ASSUMED_DEVIATION,)
    return tuple(LearntNoise([seen], RATIOS).deviations(0, _STEPS))


@lru_cache(maxsize=4096)
def power(difference: float, *, deviations: tuple[float, ...], runs: int, rows: int = 1) -> float:
    """Return the probability that a true difference gets its verdict, `faster` or `slower`.

    `difference` is the true ratio less 1, `deviations` are equally probable standard deviations of the logarithm of a
    run's speed among runs of equal settings, `runs` their number a side, and `rows` the number of rows of the
    comparison, each of which has two sides with this deviation, that take turns. The interval is that of the comparison
    (`noise_model.py`); as the estimated variances are uncertain, the power is averaged over their distribution.
    Choosing the number of runs by measured variances follows Kalibera and Jones ("Rigorous benchmarking in reasonable
    time", ISMM 2013).
    """
    from scipy.special import gammaincinv, ndtr

    dof = 2 * (runs - 1.0)
    chances = [(step + 0.5) / _STEPS for step in range(_STEPS)]
    scales = [2 * float(gammaincinv(dof / 2, chance)) / dof for chance in chances] if dof else [1.0]
    found = []
    for deviation in deviations:
        error = max(deviation, 1e-9) * math.sqrt(2 / runs)
        reached = (_half_width(scale, deviation, runs, rows) for scale in scales)
        found += [float(ndtr((abs(math.log1p(difference)) - each) / error)) for each in reached]
    return math.fsum(found) / len(found)


def smallest_detectable(drift: float, *, deviations: tuple[float, ...], runs: int, rows: int = 1) -> float:
    """Return the difference (a ratio less 1) that gets its verdict in half of the cases.

    `drift` is the 95% bound of an unseen drift of the machine between the sides (a ratio less 1): 0 if they take turns.
    """
    return math.expm1(_half_width(1.0, deviations[len(deviations) // 2], runs, rows, drift=drift))


@lru_cache(maxsize=4096)
def _half_width(scale: float, deviation: float, runs: int, rows: int, *, drift: float = 0.0) -> float:
    """Return the half-width where the variances of a row's sides are `scale` times the true one."""
    dof = runs - 1.0
    own, other = (Residuals(each * dof * deviation**2, dof) for each in (scale, 1.0))
    noise = LearntNoise([own] * 2 + [other] * 2 * (min(rows, _MAX_ROWS) - 1), RATIOS)
    factor = math.sqrt(1 / runs)
    between = Difference([(0, factor), (1, -factor)], extra_variance=drift_variance(drift))
    return noise.reaches([between], rows=rows)[0].half_width


def runs_needed(difference: float, *, deviations: tuple[float, ...], share: float, rows: int = 1) -> int | None:
    """Return the smallest number of runs a side with a power of at least `share`; None above `MAX_RUNS`."""
    if power(difference, deviations=deviations, runs=MAX_RUNS, rows=rows) < share:
        return None
    low, high = 1, MAX_RUNS  # the power grows with the runs
    while low < high:
        middle = (low + high) // 2
        if power(difference, deviations=deviations, runs=middle, rows=rows) < share:
            low = middle + 1
        else:
            high = middle
    return low

"""The ratio or difference of two sides with its interval, for all rows of a comparison together. Pure functions."""

import math
from collections.abc import Hashable, Sequence
from dataclasses import dataclass
from functools import cached_property

from runmanager.results.stats.descriptive import Estimate, Runs, Sample, make_sample, ratio_factor, residuals
from runmanager.results.stats.drift import drift_variance, fit_trend
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

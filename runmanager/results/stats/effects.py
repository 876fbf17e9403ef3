"""The ratio or difference of two sides with its interval, for all rows of a comparison together. Pure functions."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

from runmanager.errors import UsageError
from runmanager.results.stats.descriptive import Estimate, mean, median, ratio_factor
from runmanager.results.stats.noise_model import NO_PRIOR, RATIO_PRIOR, Noise, Residuals, moderate_noise

__all__ = [
    *("ROUNDING", "Contrast", "RunValue", "geometric_mean", "make_contrast", "residuals_of_side", "run_values"),
    *("simultaneous_estimates", "speedup_interval", "typical_interval"),
]

Runs = Sequence[Sequence[float]]
"""The values of a side: for each run those of its measured epochs, or its single value."""

ROUNDING = 1e-9
"""Relative difference up to which two values count as equal."""
_MAX_AUTOCORRELATION = 0.9  # of neighbouring epochs: a short series cannot show more


@dataclass(frozen=True)
class Contrast:
    """Two sides before their interval is computed: their typical values, and the noise that their runs show.

    `runs` are their counts. `residuals` are those of a single run's value, of its logarithm for a ratio.
    `min_variance` is the variance of a run's value that the epochs alone explain, `resolution` the smallest difference
    of two values that the metric can show. `differences` are those of the pairs of runs (of logarithms for a ratio),
    empty for two independent samples.
    """

    baseline: float
    candidate: float
    runs: tuple[int, int]
    residuals: Residuals
    is_ratio: bool
    min_variance: float = 0.0
    resolution: float = 0.0
    differences: Sequence[float] = ()

    @property
    def has_unknown_noise(self) -> bool:
        """Whether no run differs from another of its side by more than rounding, so that the noise is not known."""
        scale = max(abs(self.baseline), abs(self.candidate))
        return not self.is_ratio and not self.resolution and self.residuals.squares <= (ROUNDING * scale) ** 2

    @property
    def value(self) -> float:
        """Candidate / baseline, or candidate - baseline."""
        return self.candidate / self.baseline if self.is_ratio else self.candidate - self.baseline


@dataclass(frozen=True)
class RunValue:
    """The value of a run: the median of its epochs, the same on the scale of the contrast, and its variance.

    `scaled` is the logarithm of the median for a ratio, else the median; `variance` is what the epochs give `scaled`.
    """

    median: float
    scaled: float
    variance: float


def run_values(runs: Runs, *, is_ratio: bool, name: str = "side") -> list[RunValue]:
    """Return the values of a side's runs; `name` is that of the side in errors.

    Raises `UsageError` for a side without runs, a run without values, and for values that cannot be compared.
    """
    if not runs or not all(runs):
        raise UsageError(f"The {name} of a comparison must have a measured value in each run, got {list(runs)}.")
    return [_run_value(run, is_ratio, name) for run in runs]


def _run_value(run: Sequence[float], is_ratio: bool, name: str) -> RunValue:
    for value in run:
        if not math.isfinite(value):
            raise UsageError(f"Values of the {name} must be finite, got {value}.")
        if is_ratio and value <= 0:
            raise UsageError(f"Values of the {name} must be above 0 to have a ratio, got {value}.")
    middle = median(run)
    assert middle is not None  # a run without values is rejected
    return RunValue(middle, math.log(middle) if is_ratio else middle, _variance_of_median(run, is_ratio))


def make_contrast(
    baseline: Sequence[RunValue],
    candidate: Sequence[RunValue],
    *,
    is_ratio: bool,
    are_paired: bool = False,
    resolution: float = 0.0,
) -> Contrast:
    """Contrast two sides: their geometric means over runs for a ratio, else their means, and their noise.

    With `are_paired`, the runs of both sides are pairs in their order. Then the noise is that of the pairs'
    differences, without what both runs of a pair share, such as the effect of their seed or the machine's drift.
    """
    scaled = [[run.scaled for run in side] for side in (baseline, candidate)]
    medians = [[run.median for run in side] for side in (baseline, candidate)]
    low, high = (geometric_mean(each) if is_ratio else mean(each) for each in medians)
    differences = [other - one for one, other in zip(*scaled, strict=True)] if are_paired else []
    if are_paired:
        residuals = _residuals(differences, share=0.5)
    else:
        residuals = _two_sample_residuals(*(_residuals(values) for values in scaled))
    variance = mean([run.variance for run in (*baseline, *candidate)])
    runs = len(baseline), len(candidate)
    return Contrast(low, high, runs, residuals, is_ratio, variance, resolution, differences)


def simultaneous_estimates(contrasts: Sequence[Contrast], *, rows: int | None = None) -> list[Estimate]:
    """Estimate the rows of a comparison, all ratios or all differences, with simultaneous 95% intervals.

    `rows` is the number of rows of the comparison, where others have intervals of another kind. Each row's noise is
    estimated from all of them (`noise_model.py`).
    """
    if not contrasts:
        return []
    prior = RATIO_PRIOR if contrasts[0].is_ratio else NO_PRIOR
    noises = moderate_noise([each.residuals for each in contrasts], prior)
    count = len(contrasts) if rows is None else rows
    return [
        _estimate(each, noise.at_least(each.min_variance), count) for each, noise in zip(contrasts, noises, strict=True)
    ]


def _estimate(contrast: Contrast, noise: Noise, rows: int) -> Estimate:
    value, error = contrast.value, noise.standard_error(*contrast.runs)
    half_width = max(noise.half_width(*contrast.runs, rows=rows), contrast.resolution * (1 + ROUNDING))
    if contrast.is_ratio:
        factor = ratio_factor(half_width)
        return Estimate(value, value / factor, value * factor, error, noise.dof)
    return Estimate(value, value - half_width, value + half_width, error, noise.dof)


def speedup_interval(baseline: Runs, candidate: Runs, *, are_paired: bool = False) -> Estimate:
    """Estimate the ratio of two sides' throughputs (samples a second, by run and epoch) with its 95% interval.

    Raises `UsageError` for a side without runs, a run without epochs, or a throughput that is not above 0.
    """
    sides = [
        run_values(side, is_ratio=True, name=name) for name, side in (("baseline", baseline), ("candidate", candidate))
    ]
    return simultaneous_estimates([make_contrast(sides[0], sides[1], is_ratio=True, are_paired=are_paired)])[0]


def typical_interval(runs: Runs) -> Estimate:
    """Estimate a side's throughput, the geometric mean over runs, with its 95% interval.

    Raises as `speedup_interval`.
    """
    side = run_values(runs, is_ratio=True)
    residuals = _residuals([run.scaled for run in side])
    noise = RATIO_PRIOR.updated(residuals).at_least(mean([run.variance for run in side]))
    value, factor = geometric_mean([run.median for run in side]), ratio_factor(noise.half_width(len(side)))
    return Estimate(value, value / factor, value * factor, noise.standard_error(len(side)), noise.dof)


def residuals_of_side(runs: Runs) -> Residuals:
    """Return the noise that the runs of one side show. Raises as `speedup_interval`."""
    return _residuals([run.scaled for run in run_values(runs, is_ratio=True)])


def geometric_mean(values: Sequence[float]) -> float:
    """Return the geometric mean of at least one value above 0; that of equal values is exactly the value."""
    first = values[0]
    return first * math.exp(mean([math.log(value / first) for value in values]))


def _residuals(values: Sequence[float], *, share: float = 1.0) -> Residuals:
    """Return the residuals about the mean; `share` of the squares is one run's part."""
    middle = mean(values)
    return Residuals(share * math.fsum((value - middle) ** 2 for value in values), len(values) - 1.0)


def _two_sample_residuals(first: Residuals, second: Residuals) -> Residuals:
    """Return the residuals of a single run of either side that give the difference of the two means its variance.

    The sides may have different noise and different numbers of runs: each mean has its own variance, and the degrees of
    freedom are Welch's (*Biometrika* 34, 1947). A single run shows no noise: its side is assumed to have the other's.
    """
    if not (first.dof and second.dof):
        return Residuals(first.squares + second.squares, first.dof + second.dof)
    shares = [1 / (each.dof + 1) for each in (first, second)]
    variances = [share * each.squares / each.dof for share, each in zip(shares, (first, second), strict=True)]
    total = math.fsum(variances)
    if not total:
        return Residuals(0.0, first.dof + second.dof)
    parts = [(variance / total) ** 2 / each.dof for variance, each in zip(variances, (first, second), strict=True)]
    dof = 1 / math.fsum(parts)
    return Residuals(total / math.fsum(shares) * dof, dof)


def _variance_of_median(values: Sequence[float], is_ratio: bool) -> float:
    """Return the variance of a run's median that its epochs explain, of its logarithm for a ratio; 0 for one epoch.

    Under normal noise the median has π/2 times the variance of the mean (David and Nagaraja, *Order Statistics*, 2003),
    and that of the mean grows by (1 + r) / (1 - r) where neighbours have the correlation r (Bartlett, *JRSS* 8, 1946).
    """
    count = len(values)
    if count < 2:
        return 0.0
    middle = math.fsum(values) / count
    deviations = [value - middle for value in values]
    squares = math.fsum([each * each for each in deviations])
    if not squares:
        return 0.0
    autocorrelation = math.fsum([one * other for one, other in pairwise(deviations)]) / squares
    r = min(max(autocorrelation, 0.0), _MAX_AUTOCORRELATION)
    variance = math.pi / 2 * squares / (count - 1) / count * (1 + r) / (1 - r)
    return variance / middle**2 if is_ratio else variance

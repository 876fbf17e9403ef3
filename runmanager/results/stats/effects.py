"""Two sides' ratio or difference with its interval, of one row of a comparison or of all its rows together. Pure."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

from runmanager.errors import UsageError
from runmanager.results.stats.descriptive import Estimate, mean, median
from runmanager.results.stats.noise_model import (
    BETWEEN_RUNS,
    UNKNOWN,
    Noise,
    Residuals,
    noises,
)

__all__ = [
    *("ROUNDING", "Contrast", "RunValue", "contrast", "estimates", "geometric_mean"),
    *("residuals_of_side", "run_values", "speedup_interval", "typical_interval"),
]

Runs = Sequence[Sequence[float]]
"""The values of a side: of each run those of its measured epochs, or the one that it has."""

ROUNDING = 1e-9
"""Share of a value by which two may differ and still be the same."""
_MOST_CORRELATED = 0.9  # of neighbouring epochs: a short series cannot show more


@dataclass(frozen=True)
class Contrast:
    """Two sides before they are judged: their typical values, and what their runs show of their noise.

    `runs` are their counts. `residuals` are those of a single run's value, of its logarithm for a ratio. `least` is the
    variance that the epochs alone give a run's value, `step` the distance of two values that can be told apart.
    `differences` are those of the pairs of runs (of logarithms for a ratio), empty of two samples.
    """

    baseline: float
    candidate: float
    runs: tuple[int, int]
    residuals: Residuals
    is_ratio: bool
    least: float = 0.0
    step: float = 0.0
    differences: Sequence[float] = ()

    @property
    def is_silent(self) -> bool:
        """Whether nothing is known of the noise: no run differs from another of its side by more than rounding."""
        scale = max(abs(self.baseline), abs(self.candidate))
        return not self.is_ratio and not self.step and self.residuals.squares <= (ROUNDING * scale) ** 2

    @property
    def value(self) -> float:
        """Candidate / baseline, or candidate - baseline."""
        return self.candidate / self.baseline if self.is_ratio else self.candidate - self.baseline


@dataclass(frozen=True)
class RunValue:
    """What a run counts with: the median of its epochs, its logarithm for a ratio, and the variance these give it."""

    middle: float
    weighed: float
    least: float


def run_values(runs: Runs, *, is_ratio: bool, name: str = "side") -> list[RunValue]:
    """Those of a side's runs; `name` is what the side is called.

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
    assert middle is not None  # a run without values is refused
    return RunValue(middle, math.log(middle) if is_ratio else middle, _variance_of_middle(run, is_ratio))


def contrast(
    baseline: Sequence[RunValue],
    candidate: Sequence[RunValue],
    *,
    is_ratio: bool,
    are_blocks: bool = False,
    step: float = 0.0,
) -> Contrast:
    """What two sides come to: their geometric means over runs for a ratio, else their means, and their noise.

    `are_blocks` says that the runs of both sides belong together in pairs, in their order: then the noise is that of
    the pairs' differences, and what both runs of a pair share, as a seed's luck or the machine's drift, is not in it.
    """
    logs = [[run.weighed for run in side] for side in (baseline, candidate)]
    middles = [[run.middle for run in side] for side in (baseline, candidate)]
    low, high = (geometric_mean(each) if is_ratio else mean(each) for each in middles)
    differences = [other - one for one, other in zip(*logs, strict=True)] if are_blocks else []
    if are_blocks:
        residuals = _residuals(differences, share=0.5)
    else:
        residuals = _of_two_samples(*(_residuals(values) for values in logs))
    least = mean([run.least for run in (*baseline, *candidate)])
    return Contrast(low, high, (len(baseline), len(candidate)), residuals, is_ratio, least, step, differences)


def estimates(contrasts: Sequence[Contrast], *, rows: int | None = None) -> list[Estimate]:
    """The intervals of a comparison's rows, all of them of ratios or all of differences, at 95% confidence together.

    `rows` is how many rows the comparison has, where others have intervals of another kind. Each row's noise is learned
    from all of them (`noise.py`).
    """
    if not contrasts:
        return []
    prior = BETWEEN_RUNS if contrasts[0].is_ratio else UNKNOWN
    found = noises([each.residuals for each in contrasts], prior)
    count = len(contrasts) if rows is None else rows
    return [_estimate(each, noise.at_least(each.least), count) for each, noise in zip(contrasts, found, strict=True)]


def _estimate(each: Contrast, noise: Noise, rows: int) -> Estimate:
    value, error = each.value, noise.deviation_of_mean(*each.runs)
    reach = max(noise.reach(*each.runs, rows=rows), each.step * (1 + ROUNDING))
    if each.is_ratio:
        factor = math.exp(min(reach, _MOST_REACH))
        return Estimate(value, value / factor, value * factor, error, noise.freedom)
    return Estimate(value, value - reach, value + reach, error, noise.freedom)


_MOST_REACH = 300.0  # in logarithms: what a float can hold


def speedup_interval(baseline: Runs, candidate: Runs, *, are_blocks: bool = False) -> Estimate:
    """The ratio of two sides' throughputs (samples a second, by run and epoch) with its 95% interval.

    Raises `UsageError` for a side without runs, a run without epochs, or a throughput that is not above 0.
    """
    sides = [
        run_values(side, is_ratio=True, name=name) for name, side in (("baseline", baseline), ("candidate", candidate))
    ]
    return estimates([contrast(*sides, is_ratio=True, are_blocks=are_blocks)])[0]


def typical_interval(runs: Runs) -> Estimate:
    """A side's own throughput, the geometric mean of its runs', and its 95% interval. Raises as `speedup_interval`."""
    side = run_values(runs, is_ratio=True)
    noise = BETWEEN_RUNS.updated(_residuals([run.weighed for run in side])).at_least(mean([run.least for run in side]))
    value, factor = geometric_mean([run.middle for run in side]), math.exp(noise.reach(len(side)))
    return Estimate(value, value / factor, value * factor, noise.deviation_of_mean(len(side)), noise.freedom)


def residuals_of_side(runs: Runs) -> Residuals:
    """What a side's runs show of their noise, whatever they are compared with. Raises as `speedup_interval`."""
    return _residuals([run.weighed for run in run_values(runs, is_ratio=True)])


def geometric_mean(values: Sequence[float]) -> float:
    """Of values above 0, at least one; that of equal values is the value itself."""
    first = values[0]
    return first * math.exp(mean([math.log(value / first) for value in values]))


def _residuals(values: Sequence[float], *, share: float = 1.0) -> Residuals:
    """About their mean; `share` of the squares is one run's part."""
    middle = mean(values)
    return Residuals(share * math.fsum((value - middle) ** 2 for value in values), len(values) - 1.0)


def _of_two_samples(first: Residuals, second: Residuals) -> Residuals:
    """Those of a single run of either side, such that the difference of the two means has its variance.

    The sides may have different noise, and different numbers of runs: each mean has its own variance, and the degrees
    of freedom are Welch's (*Biometrika* 34, 1947). A single run shows no noise: its side is taken to have the other's.
    """
    if not (first.freedom and second.freedom):
        return Residuals(first.squares + second.squares, first.freedom + second.freedom)
    shares = [1 / (each.freedom + 1) for each in (first, second)]
    means = [share * each.squares / each.freedom for share, each in zip(shares, (first, second), strict=True)]
    whole = math.fsum(means)
    if not whole:
        return Residuals(0.0, first.freedom + second.freedom)
    parts = [(mean / whole) ** 2 / each.freedom for mean, each in zip(means, (first, second), strict=True)]
    freedom = 1 / math.fsum(parts)
    return Residuals(whole / math.fsum(shares) * freedom, freedom)


def _variance_of_middle(values: Sequence[float], is_ratio: bool) -> float:
    """What the epochs of a run give the variance of their median, of its logarithm for a ratio; 0 of a single one.

    Of normal noise the median has π/2 times the variance of the mean (David and Nagaraja, *Order Statistics*, 2003),
    and that of the mean grows by (1 + r) / (1 - r) where neighbours have the correlation r (Bartlett, *JRSS* 8, 1946).
    """
    count = len(values)
    if count < 2:
        return 0.0
    middle = sum(values) / count
    off = [value - middle for value in values]
    squares = sum([each * each for each in off])
    if not squares:
        return 0.0
    together = sum([one * other for one, other in pairwise(off)]) / squares
    correlated = min(max(together, 0.0), _MOST_CORRELATED)
    variance = math.pi / 2 * squares / (count - 1) / count * (1 + correlated) / (1 - correlated)
    return variance / middle**2 if is_ratio else variance

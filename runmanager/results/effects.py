"""Two sides' ratio or difference with its interval, of one row of a comparison or of all its rows together. Pure."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

from runmanager.errors import UsageError
from runmanager.results.noise import (
    BETWEEN_RUNS,
    UNKNOWN,
    Noise,
    Residuals,
    noises,
)
from runmanager.results.statistics import Estimate, mean, median

__all__ = ["Contrast", "contrast", "difference_interval", "estimates", "geometric_mean", "speedup_interval"]
__all__ += ["typical_interval"]

Runs = Sequence[Sequence[float]]
"""The values of a side: of each run those of its measured epochs, or the one that it has."""

_ROUNDING = 1e-9
_MOST_CORRELATED = 0.9  # of neighbouring epochs: a short series cannot show more


@dataclass(frozen=True)
class Contrast:
    """Two sides before they are judged: their typical values, and what their runs show of their noise.

    `runs` are their counts. `residuals` are those of a single run's value, of its logarithm for a ratio. `least` is the
    variance that the epochs alone give a run's value, `step` the distance of two values that can be told apart.
    """

    baseline: float
    candidate: float
    runs: tuple[int, int]
    residuals: Residuals
    is_ratio: bool
    least: float = 0.0
    step: float = 0.0

    @property
    def is_silent(self) -> bool:
        """Whether nothing is known of the noise: no run differs from another of its side by more than rounding."""
        scale = max(abs(self.baseline), abs(self.candidate))
        return not self.is_ratio and not self.step and self.residuals.squares <= (_ROUNDING * scale) ** 2

    @property
    def value(self) -> float:
        """Candidate / baseline, or candidate - baseline."""
        return self.candidate / self.baseline if self.is_ratio else self.candidate - self.baseline


def contrast(
    baseline: Runs, candidate: Runs, *, is_ratio: bool, are_blocks: bool = False, step: float = 0.0
) -> Contrast:
    """What two sides come to. A run's value is the median over its epochs.

    A side's is the geometric mean of its runs' for a ratio, else their mean. `are_blocks` says that the runs of both
    sides belong together in pairs, in their order: then the noise is that of the pairs' differences, and what both runs
    of a pair share, as a seed's luck or the machine's drift, is not in it.

    Raises `UsageError` for a side without runs, a run without values, and for values that cannot be compared.
    """
    sides = _checked("baseline", baseline, is_ratio), _checked("candidate", candidate, is_ratio)
    values = [[_middle(run) for run in side] for side in sides]
    typical = [geometric_mean(each) if is_ratio else mean(each) for each in values]
    logs = [[math.log(value) for value in each] for each in values] if is_ratio else values
    if are_blocks:
        residuals = _residuals([high - low for low, high in zip(*logs, strict=True)], share=0.5)
    else:
        first, second = (_residuals(values) for values in logs)
        residuals = Residuals(first.squares + second.squares, first.freedom + second.freedom)
    own = [_variance_of_middle(run, is_ratio) for side in sides for run in side]
    counts = len(logs[0]), len(logs[1])
    return Contrast(typical[0], typical[1], counts, residuals, is_ratio, mean(own), step)


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
    reach = max(noise.reach(*each.runs, rows=rows), each.step * (1 + _ROUNDING))
    if each.is_ratio:
        factor = math.exp(min(reach, _MOST_REACH))
        return Estimate(value, value / factor, value * factor, error, noise.freedom)
    return Estimate(value, value - reach, value + reach, error, noise.freedom)


_MOST_REACH = 300.0  # in logarithms: what a float can hold


def speedup_interval(baseline: Runs, candidate: Runs, *, are_blocks: bool = False) -> Estimate:
    """The ratio of two sides' throughputs (samples a second, by run and epoch) with its 95% interval.

    Raises `UsageError` for a side without runs, a run without epochs, or a throughput that is not above 0.
    """
    return estimates([contrast(baseline, candidate, is_ratio=True, are_blocks=are_blocks)])[0]


def difference_interval(baseline: Runs, candidate: Runs, *, are_blocks: bool = False, step: float = 0.0) -> Estimate:
    """Candidate - baseline with its 95% interval, which never reaches less than `step` to either side.

    Raises `UsageError` for a side without runs, a run without values, or a value that is not finite.
    """
    return estimates([contrast(baseline, candidate, is_ratio=False, are_blocks=are_blocks, step=step)])[0]


def typical_interval(runs: Runs) -> Estimate:
    """A side's own throughput, the geometric mean of its runs', and its 95% interval. Raises as `speedup_interval`."""
    side = _checked("side", runs, True)
    logs = [math.log(_middle(run)) for run in side]
    least = mean([_variance_of_middle(run, True) for run in side])
    noise = BETWEEN_RUNS.updated(_residuals(logs)).at_least(least)
    value = geometric_mean([_middle(run) for run in side])
    factor = math.exp(noise.reach(len(logs)))
    return Estimate(value, value / factor, value * factor, noise.deviation_of_mean(len(logs)), noise.freedom)


def geometric_mean(values: Sequence[float]) -> float:
    """Of values above 0, at least one; that of equal values is the value itself."""
    first = values[0]
    return first * math.exp(mean([math.log(value / first) for value in values]))


def _checked(name: str, runs: Runs, is_ratio: bool) -> Runs:
    if not runs or not all(runs):
        raise UsageError(f"The {name} of a comparison must have a measured value in each run, got {list(runs)}.")
    for run in runs:
        for value in run:
            if not math.isfinite(value):
                raise UsageError(f"Values of the {name} must be finite, got {value}.")
            if is_ratio and value <= 0:
                raise UsageError(f"Values of the {name} must be above 0 to have a ratio, got {value}.")
    return runs


def _middle(values: Sequence[float]) -> float:
    middle = median(values)
    assert middle is not None  # a run without values is refused
    return middle


def _residuals(values: Sequence[float], *, share: float = 1.0) -> Residuals:
    """About their mean; `share` of the squares is one run's part."""
    middle = mean(values)
    return Residuals(share * math.fsum((value - middle) ** 2 for value in values), len(values) - 1.0)


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

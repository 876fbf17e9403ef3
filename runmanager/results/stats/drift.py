"""The drift of a machine's speed while runs are compared: one that is seen, and one that may not be. Pure functions."""

import math
from collections.abc import Sequence
from dataclasses import dataclass

from runmanager.results.stats.descriptive import Sample, mean, residuals
from runmanager.results.stats.noise_model import Residuals

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

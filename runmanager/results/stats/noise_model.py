"""How far runs of the same settings differ from each other: what is assumed, what runs teach, what it means. Pure.

A comparison needs the variance of one run's value, and a few runs know it badly. The variance is therefore moderated
(Smyth, "Linear models and empirical Bayes methods for assessing differential expression in microarray experiments",
*Statistical Applications in Genetics and Molecular Biology* 3(1), 2004; the conjugate prior is in Gelman et al.,
*Bayesian Data Analysis*, 3rd ed. 2013, section 3.3): a prior that is worth `freedom` degrees of freedom is updated by
the runs of the other rows of a comparison and by those of the row itself. Student's t with all these degrees of freedom
then gives an interval from one run a side on, and for several rows the largest of their values of t does (max-t).
`benchmarks/compare_truth.py` shows by simulation what it is worth.
"""

import math
import statistics
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import lru_cache

__all__ = [
    "BETWEEN_RUNS",
    "MOST_LEARNED",
    "UNKNOWN",
    "Noise",
    "Residuals",
    "critical",
    "learned",
    "noises",
]

CONFIDENCE = 0.95
MOST_LEARNED = 4.0
"""Degrees of freedom that all other rows of a comparison count for at most: their settings may be quieter than this."""

_WILD = 4.0  # a variance that is so many times the typical one counts as no more than that
_NEXT_TO_NONE = 1e-4  # of the typical variance: runs that are the same but for rounding have none
_ENOUGH_ROWS = 3  # of which one wild row does not make the median


@dataclass(frozen=True)
class Residuals:
    """What runs show of their noise: the sum of squared distances from their means, and its degrees of freedom."""

    squares: float = 0.0
    freedom: float = 0.0


@dataclass(frozen=True)
class Noise:
    """The variance of one run's value, and with how many degrees of freedom it is known (0: not at all).

    `own` is how many of these come from the row's own runs; the others it shares with the other rows of a comparison.
    """

    variance: float
    freedom: float
    own: float = 0.0

    def updated(self, seen: Residuals, *, are_own: bool = True) -> "Noise":
        """What is known after runs were seen: the mean of both variances, weighted by their degrees of freedom.

        Where the runs vary more than was known before, that counts for less, by the square of the ratio of both
        variances: else it would make wild runs look quiet.
        """
        if not seen.freedom:
            return self
        variance = seen.squares / seen.freedom
        trust = (self.variance / variance) ** 2 if variance > self.variance else 1.0
        before, own = trust * self.freedom, trust * self.own + (seen.freedom if are_own else 0.0)
        freedom = before + seen.freedom
        return Noise((before * self.variance + seen.squares) / freedom, freedom, own)

    def at_least(self, variance: float) -> "Noise":
        """The same, where it is not below what is known otherwise, as of the epochs within a run."""
        return self if self.variance >= variance else replace(self, variance=variance)

    def deviation_of_mean(self, *runs: int) -> float:
        """The standard deviation of the difference of two means over so many runs; of one mean for one count."""
        return math.sqrt(self.variance * sum(1 / count for count in runs))

    def reach(self, *runs: int, rows: int = 1) -> float:
        """How far the interval of that difference reaches to either side, as one of `rows` that hold together.

        Infinite where nothing is known.
        """
        if not self.freedom:
            return math.inf
        return critical(self.freedom, rows, own=self.own) * self.deviation_of_mean(*runs)


BETWEEN_RUNS = Noise(0.0745**2, 3.0)
"""The prior of ratios, of the logarithm of a run's value: a deviation of 7.5%, worth three degrees of freedom.

So wide that one run a side gives an interval of a factor of 1.4 either way, 3.18 x 0.0745 x √2 in logarithms, and so
weak that five quiet runs a side find a difference of 10%.
"""

UNKNOWN = Noise(0.0, 0.0)
"""The prior of differences, as of accuracies and losses, whose unit is not known: none."""


def noises(seen: Sequence[Residuals], prior: Noise) -> list[Noise]:
    """The noise of each row's runs, by what they and the other rows of the comparison show."""
    lessons = learned(seen, prior)
    return [prior.updated(lesson, are_own=False).updated(own) for own, lesson in zip(seen, lessons, strict=True)]


def learned(seen: Sequence[Residuals], prior: Noise) -> list[Residuals]:
    """What the others teach each row: their mean variance, as `MOST_LEARNED` degrees of freedom at most.

    A wild row must not spoil the others. Where there is a prior, they teach no more than its variance, or than the
    median one where three rows or more say that it is larger; where there is none, each variance counts as four times
    the median one at most (winsorised, as limma's robust version does: Phipson et al., *Annals of Applied Statistics*
    10(2), 2016).
    """
    known = [each for each in seen if each.freedom]
    typical = _typical_variance(known) if known else math.inf
    wild = math.inf if prior.freedom else _WILD * typical
    squares = [min(each.squares, wild * each.freedom) if each.freedom else 0.0 for each in seen]
    most, worth = math.inf, MOST_LEARNED
    if prior.freedom:
        most = max(prior.variance, typical) if len(known) >= _ENOUGH_ROWS else prior.variance
    elif len(known) >= _ENOUGH_ROWS:
        worth = min(MOST_LEARNED, _likeness(known, least=typical * _NEXT_TO_NONE))
    whole, freedom = math.fsum(squares), math.fsum(each.freedom for each in seen)
    lessons = []
    for own, each in zip(squares, seen, strict=True):
        others = freedom - each.freedom
        if others <= 0:
            lessons.append(Residuals())
            continue
        variance = max(0.0, whole - own) / others
        counted = min(worth, others)
        lessons.append(Residuals(counted * min(variance, most), counted))
    return lessons


def _likeness(known: Sequence[Residuals], *, least: float) -> float:
    """How many degrees of freedom the variance of one row is worth to another: few where they spread more than chance.

    It is Smyth's estimate (2004, section 6.2): the logarithms of the estimates have a variance of trigamma(f / 2) by
    their own f degrees of freedom, and of trigamma(d / 2) by rows that are unlike; d is what is sought. The inverse of
    trigamma follows the first terms of its series. A variance below `least` counts as that.
    """
    from scipy.special import polygamma

    freedom = math.fsum(each.freedom for each in known) / len(known)
    logs = [math.log(max(each.squares / each.freedom, least)) for each in known] if least else []
    beyond = statistics.variance(logs) - float(polygamma(1, freedom / 2)) if logs else 0.0
    return (1 + math.sqrt(1 + 2 * beyond)) / beyond if beyond > 0 else math.inf


def _typical_variance(known: Sequence[Residuals]) -> float:
    """The median of the estimates, over what the median of such estimates is of the true variance (chi-squared)."""
    from scipy.special import chdtri

    freedom = math.fsum(each.freedom for each in known) / len(known)
    middle = statistics.median([each.squares / each.freedom for each in known])
    return middle * freedom / float(chdtri(freedom, 0.5))


def joint_confidence(rows: int) -> float:
    """The confidence of each of so many intervals of any kind that hold together with 95% (Šidák, *JASA* 62, 1967)."""
    return float(CONFIDENCE ** (1 / max(rows, 1)))


def critical(freedom: float, rows: int, *, own: float = 0.0) -> float:
    """What the largest of `rows` values of Student's t stays below in 95% of cases, on either side of 0.

    Where all values have one noise, known with `freedom` degrees of freedom, that is the quantile of the studentized
    maximum modulus (Hochberg and Tamhane, *Multiple Comparison Procedures*, 1987, appendix 2); where each has a noise
    of its own, Student's t at Šidák's level. Here `own` of the degrees of freedom are of the value's own noise: the
    answer lies as far between the two as these are a share of all. Of one value both are Student's t.
    """
    from scipy.special import stdtrit

    apart = float(stdtrit(freedom, (1 + joint_confidence(rows)) / 2))
    if rows <= 1:
        return apart
    together = _maximum_modulus(max(round(freedom, 1), 0.1), rows)
    return together + (apart - together) * own / freedom


@lru_cache(maxsize=4096)
def _maximum_modulus(freedom: float, rows: int) -> float:
    import numpy as np
    from scipy.special import gammaincinv, ndtr, stdtrit

    chances = (np.arange(_STEPS) + 0.5) / _STEPS
    noise = np.sqrt(2 / freedom * gammaincinv(freedom / 2, chances))  # over the true one, at even chances
    low, highest = 0.0, float(stdtrit(freedom, (1 + joint_confidence(rows)) / 2))
    while highest - low > _PRECISION:
        middle = (low + highest) / 2
        if float(np.mean((2 * ndtr(middle * noise) - 1) ** rows)) < CONFIDENCE:
            low = middle
        else:
            highest = middle
    return highest


_STEPS = 2000
_PRECISION = 1e-6

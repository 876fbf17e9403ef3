"""The noise between runs of equal settings: the prior, its update by runs, and the resulting intervals. Pure functions.

A comparison needs the variance of one run's value, and a few runs estimate it badly. Therefore it is moderated (Smyth,
"Linear models and empirical Bayes methods for assessing differential expression in microarray experiments",
*Statistical Applications in Genetics and Molecular Biology* 3(1), 2004; the conjugate prior is in Gelman et al.,
*Bayesian Data Analysis*, 3rd ed. 2013, section 3.3): a prior with `dof` degrees of freedom is updated by the runs of
the other rows of a comparison and by those of the row itself. Student's t with all these degrees of freedom then gives
an interval from one run a side on; for several rows the largest of their values of t does (max-t).
`benchmarks/compare_truth.py` measures its coverage by simulation.
"""

import math
import statistics
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import lru_cache

__all__ = [
    "MAX_SHARED_DOF",
    "NO_PRIOR",
    "RATIO_PRIOR",
    "Noise",
    "Residuals",
    "critical_value",
    "moderate_noise",
    "pool_other_rows",
]

CONFIDENCE = 0.95
MAX_SHARED_DOF = 4.0
"""Most degrees of freedom that the other rows of a comparison add in total: their settings may be quieter."""

_MAX_VARIANCE_RATIO = 4.0  # a variance counts as at most this many times the typical one
_MIN_VARIANCE_RATIO = 1e-4  # of the typical variance: runs that are equal up to rounding have none
_MIN_ROWS = 3  # with fewer, one outlying row determines the median


@dataclass(frozen=True)
class Residuals:
    """The residuals of runs: the sum of squared distances from their means, and its degrees of freedom."""

    squares: float = 0.0
    dof: float = 0.0


@dataclass(frozen=True)
class Noise:
    """The variance of one run's value, and its degrees of freedom (0: unknown).

    `own` of these come from the row's own runs; the others are shared with the other rows of a comparison.
    """

    variance: float
    dof: float
    own: float = 0.0

    def updated(self, seen: Residuals, *, are_own: bool = True) -> "Noise":
        """Return the noise after runs were seen: the mean of both variances, weighted by their degrees of freedom.

        Where the runs vary more than expected, the prior is weighted down by the square of the ratio of both variances:
        else it would make noisy runs look quiet.
        """
        if not seen.dof:
            return self
        variance = seen.squares / seen.dof
        weight = (self.variance / variance) ** 2 if variance > self.variance else 1.0
        prior_dof, own = weight * self.dof, weight * self.own + (seen.dof if are_own else 0.0)
        dof = prior_dof + seen.dof
        return Noise((prior_dof * self.variance + seen.squares) / dof, dof, own)

    def at_least(self, variance: float) -> "Noise":
        """Return the noise with at least this variance, such as the one from the epochs within a run."""
        return self if self.variance >= variance else replace(self, variance=variance)

    def standard_error(self, *runs: int) -> float:
        """Return the standard error of the difference of two means over `runs` runs each; of one mean for one count."""
        return math.sqrt(self.variance * sum(1 / count for count in runs))

    def half_width(self, *runs: int, rows: int = 1) -> float:
        """Return the half-width of the interval of that difference, one of `rows` simultaneous ones.

        Infinite where the variance is unknown.
        """
        if not self.dof:
            return math.inf
        return critical_value(self.dof, rows, own=self.own) * self.standard_error(*runs)


RATIO_PRIOR = Noise(0.0745**2, 3.0)
"""The prior of ratios, for the logarithm of a run's value: a deviation of 7.5% with three degrees of freedom.

Wide enough that one run a side gives an interval of a factor of 1.4 either way, 3.18 x 0.0745 x √2 in logarithms; weak
enough that five quiet runs a side find a difference of 10%.
"""

NO_PRIOR = Noise(0.0, 0.0)
"""Differences, as of accuracies and losses, have no prior, because their unit is not known."""


def moderate_noise(seen: Sequence[Residuals], prior: Noise) -> list[Noise]:
    """Return the noise of each row's runs, estimated from them and from the other rows of the comparison."""
    pooled = pool_other_rows(seen, prior)
    return [prior.updated(others, are_own=False).updated(own) for own, others in zip(seen, pooled, strict=True)]


def pool_other_rows(seen: Sequence[Residuals], prior: Noise) -> list[Residuals]:
    """Return the pooled residuals of the other rows, for each row: their mean variance, at most `MAX_SHARED_DOF`.

    An outlying row must not affect the others. With a prior, the pooled variance is at most the prior's, or the median
    one where three or more rows show that this is larger; without a prior, each variance counts as at most four times
    the median one (winsorised, as in limma's robust version: Phipson et al., *Annals of Applied Statistics* 10(2),
    2016).
    """
    known = [each for each in seen if each.dof]
    typical = _typical_variance(known) if known else math.inf
    winsor = math.inf if prior.dof else _MAX_VARIANCE_RATIO * typical
    squares = [min(each.squares, winsor * each.dof) if each.dof else 0.0 for each in seen]
    max_variance, max_dof = math.inf, MAX_SHARED_DOF
    if prior.dof:
        max_variance = max(prior.variance, typical) if len(known) >= _MIN_ROWS else prior.variance
    elif len(known) >= _MIN_ROWS:
        max_dof = min(MAX_SHARED_DOF, _shared_dof(known, least=typical * _MIN_VARIANCE_RATIO))
    total, total_dof = math.fsum(squares), math.fsum(each.dof for each in seen)
    pooled = []
    for own, each in zip(squares, seen, strict=True):
        others_dof = total_dof - each.dof
        if others_dof <= 0:
            pooled.append(Residuals())
            continue
        variance = max(0.0, total - own) / others_dof
        dof = min(max_dof, others_dof)
        pooled.append(Residuals(dof * min(variance, max_variance), dof))
    return pooled


def _shared_dof(known: Sequence[Residuals], *, least: float) -> float:
    """Return the degrees of freedom that one row's variance adds to another's: few where they spread beyond chance.

    This is Smyth's estimate (2004, section 6.2): the logarithms of the estimates have a variance of trigamma(f / 2)
    from their own f degrees of freedom, and of trigamma(d / 2) from rows with different variances; d is returned. The
    inverse of trigamma uses the first terms of its series. A variance below `least` counts as `least`.
    """
    from scipy.special import polygamma

    dof = math.fsum(each.dof for each in known) / len(known)
    logs = [math.log(max(each.squares / each.dof, least)) for each in known] if least else []
    beyond = statistics.variance(logs) - float(polygamma(1, dof / 2)) if logs else 0.0
    return (1 + math.sqrt(1 + 2 * beyond)) / beyond if beyond > 0 else math.inf


def _typical_variance(known: Sequence[Residuals]) -> float:
    """Return the median of the estimates, corrected by the median of their chi-squared distribution."""
    from scipy.special import chdtri

    dof = math.fsum(each.dof for each in known) / len(known)
    middle = statistics.median([each.squares / each.dof for each in known])
    return middle * dof / float(chdtri(dof, 0.5))


def joint_confidence(rows: int) -> float:
    """Return the confidence of each of `rows` intervals of any kind that hold simultaneously with 95%.

    Šidák, *JASA* 62, 1967.
    """
    return float(CONFIDENCE ** (1 / max(rows, 1)))


def critical_value(dof: float, rows: int, *, own: float = 0.0) -> float:
    """Return the two-sided 95% critical value of the largest of `rows` values of Student's t.

    Where all values share one noise, known with `dof` degrees of freedom, it is the quantile of the studentized maximum
    modulus (Hochberg and Tamhane, *Multiple Comparison Procedures*, 1987, appendix 2); where each has its own noise, it
    is Student's t at Šidák's level. Here `own` of the degrees of freedom belong to the value's own noise, and the
    result is interpolated between the two by their share. For one row both are Student's t.
    """
    from scipy.special import stdtrit

    independent = float(stdtrit(dof, (1 + joint_confidence(rows)) / 2))
    if rows <= 1:
        return independent
    shared = _maximum_modulus(max(round(dof, 1), 0.1), rows)
    return shared + (independent - shared) * own / dof


@lru_cache(maxsize=4096)
def _maximum_modulus(dof: float, rows: int) -> float:
    import numpy as np
    from scipy.special import gammaincinv, ndtr, stdtrit

    chances = (np.arange(_STEPS) + 0.5) / _STEPS
    noise = np.sqrt(2 / dof * gammaincinv(dof / 2, chances))  # over the true one, at equal probabilities
    low, highest = 0.0, float(stdtrit(dof, (1 + joint_confidence(rows)) / 2))
    while highest - low > _PRECISION:
        middle = (low + highest) / 2
        if float(np.mean((2 * ndtr(middle * noise) - 1) ** rows)) < CONFIDENCE:
            low = middle
        else:
            highest = middle
    return highest


_STEPS = 2000
_PRECISION = 1e-6

"""The noise between runs of equal settings, learnt from the runs that are compared, and the intervals that follow.

A comparison needs the deviation of one run's value, and few runs estimate it badly. So the deviations of all compared
cells are learnt together (a hierarchical model, Gelman et al., *Bayesian Data Analysis*, 3rd ed. 2013, chapter 5): the
logarithm of each is normal about a level. Either the cells are alike, and the level is learnt from all of them, or each
has a deviation of its own; the runs say which is more probable. The intervals average over all deviations that the runs
leave possible, so one method serves one, two or many runs a side. `benchmarks/compare_truth.py` measures their coverage
by simulation.
"""

import math
from bisect import bisect_left
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt

    Floats = npt.NDArray[np.float64]

CONFIDENCE = 0.95


@dataclass(frozen=True)
class Residuals:
    """The residuals of runs: the sum of squared distances from their means, and its degrees of freedom."""

    squares: float = 0.0
    dof: float = 0.0


@dataclass(frozen=True)
class Prior:
    """What is assumed of the deviation between runs: its typical size, the spread of its logarithm, and an upper limit.

    Above `most` few deviations are expected. Without a `deviation` the unit is not known: any size is equally probable,
    and `spread` is that between cells.
    """

    deviation: float | None
    spread: float
    most: float = math.inf


RATIOS = Prior(0.012, 2.4, 0.5)
"""Of the logarithm of a speed."""

DIFFERENCES = Prior(None, 2.0)
"""Of metrics such as accuracies and losses."""


@dataclass(frozen=True)
class Difference:
    """A difference of means: each of `terms` is a source of noise, and the factor of its deviation.

    Its variance is at least `least_variance`, as from the epochs within a run; `extra_variance` is added.
    """

    terms: Sequence[tuple[int, float]]
    least_variance: float = 0.0
    extra_variance: float = 0.0


@dataclass(frozen=True)
class Reach:
    """The half-width of an interval, with the standard error and the degrees of freedom of a like Student's t."""

    half_width: float
    error: float
    dof: float


class LearntNoise:
    """The deviations of several sources of noise, such as the cells of a comparison, given the residuals of each."""

    def __init__(self, seen: Sequence[Residuals], prior: Prior) -> None:
        """Learn from the residuals of all sources."""
        self._seen = seen
        self._dof = math.fsum(each.dof for each in seen)
        squares = math.fsum(each.squares for each in seen)
        self._is_known = prior.deviation is not None or (squares > 0 and self._dof > 0)
        if self._is_known:
            deviation = prior.deviation or math.sqrt(squares / self._dof)
            self._learn(math.log(deviation), prior)

    def reaches(
        self,
        differences: Sequence[Difference],
        *,
        rows: int | None = None,
        confidence: float = CONFIDENCE,
        is_joint: bool = True,
    ) -> list[Reach]:
        """Return how far the interval of each difference reaches; together they hold with this confidence.

        Where that is not to be `is_joint`, each holds with it by itself. `rows` counts further intervals of another
        kind that are to hold as well. Without a known unit and without residuals the intervals are infinite, or of no
        width where equal values are all that was seen.
        """
        import numpy as np

        if not self._is_known or not differences:
            return [Reach(0.0 if self._dof else math.inf, 0.0, self._dof) for _ in differences]
        variances = [self._variances(each) for each in differences]
        shares = np.stack([_grouped(each) for each in variances])
        reached = _half_widths(shares, confidence ** (1 / max(len(differences), rows or 0) if is_joint else 1))
        if len(differences) > 1 and is_joint:
            # Šidák's level, by which rows hold jointly, is for independent ones. These share noise.
            alone = _half_widths(shares, confidence)
            needed = self._joint_factor(differences, variances, alone, confidence)
            reached = reached * needed * alone / _half_widths(shares, confidence ** (1 / len(differences)))
        halves, most = (_half_widths(shares, share) for share in (0.5, CONFIDENCE))
        return [
            Reach(float(each), *_students(half, end)) for each, half, end in zip(reached, halves, most, strict=True)
        ]

    def deviations(self, source: int, count: int) -> list[float]:
        """Return so many deviations of a source, all equally probable and in order; empty where none is known."""
        import numpy as np

        if not self._is_known:
            return []
        return list(map(float, np.quantile(self._draws(source)[0], (np.arange(count) + 0.5) / count)))

    def _learn(self, center: float, prior: Prior) -> None:
        import numpy as np

        below = _GRID_REACH
        if prior.deviation is None:  # where a run collapsed, the others may be quieter by many orders of magnitude
            quietest = min(each.squares / each.dof for each in self._seen if each.squares > 0)
            below = min(max(below, math.ceil(_BELOW + center - math.log(quietest) / 2)), _MOST_REACH)
        alike = _ALIKE_PAIR if sum(each.dof > 0 for each in self._seen) <= 2 else _ALIKE
        grid, chances, weights = _alternatives(prior, below, alike)
        self._grid, found = center + grid, np.log(weights)
        precision = np.exp(-2 * self._grid)
        self._likelihoods = []
        for each in self._seen:
            logs = -each.dof * self._grid - each.squares / 2 * precision
            likelihood = np.exp(logs - logs.max())
            self._likelihoods.append(likelihood)
            found += np.log(chances @ likelihood)
        found = np.exp(found - found.max())
        found /= found.sum()
        kept = found > _LEAST_WEIGHT
        self._chances = chances[kept]
        self._num_draws = _NUM_DRAWS if len(self._seen) <= _MANY_SOURCES else _NUM_DRAWS // 8
        ends = np.cumsum(found[kept] / found[kept].sum())
        ends[-1] = 1.0
        counts = np.diff(np.round(ends * self._num_draws), prepend=0).astype(int)
        self._chances, counts = self._chances[counts > 0], counts[counts > 0]
        self._level_of_draw = np.repeat(np.arange(len(counts)), counts)
        self._starts, self._counts = np.cumsum(counts) - counts, counts
        self._drawn: dict[int, tuple[Floats, Floats]] = {}

    def _draws(self, source: int) -> "tuple[Floats, Floats]":
        """Return possible deviations of a source, and errors of them: as many of each level as it is probable."""
        if source not in self._drawn:
            import numpy as np
            from scipy.special import ndtri

            generator = np.random.default_rng([_SEED, source])
            order = np.argsort(self._level_of_draw + generator.random(self._num_draws))
            ranks = np.empty(self._num_draws)
            ranks[order] = np.arange(self._num_draws)
            level = self._level_of_draw
            shares = (ranks - self._starts[level] + 0.5) / self._counts[level]
            chances = np.cumsum(self._chances * self._likelihoods[source], axis=1)
            chances = np.pad(chances / chances[:, -1:], ((0, 0), (1, 0)))
            known = (chances + np.arange(len(chances))[:, None]).ravel()
            step = self._grid[1] - self._grid[0]  # each value stands for the range about it
            ends = np.concatenate([self._grid[:1] - step / 2, self._grid + step / 2])
            logs = np.interp(level + shares, known, np.tile(ends, len(chances)))
            errors = ndtri((generator.permutation(self._num_draws) + 0.5) / self._num_draws)
            self._drawn[source] = np.exp(logs), errors
        return self._drawn[source]

    def _variances(self, difference: Difference) -> "Floats":
        import numpy as np

        total = np.zeros(self._num_draws)
        for source, factor in difference.terms:
            total += (factor * self._draws(source)[0]) ** 2
        return np.asarray(np.maximum(total, difference.least_variance) + difference.extra_variance)

    def _joint_factor(
        self,
        differences: Sequence[Difference],
        variances: "Sequence[Floats]",
        half_widths: "Floats",
        confidence: float,
    ) -> float:
        """Return the factor by which intervals of single rows are widened to hold together."""
        import numpy as np

        furthest = np.zeros(self._num_draws)
        for number, (each, variance, half_width) in enumerate(zip(differences, variances, half_widths, strict=True)):
            error = np.zeros(self._num_draws)
            known = np.zeros(self._num_draws)
            for source, factor in each.terms:
                deviations, errors = self._draws(source)
                error += factor * deviations * errors
                known += (factor * deviations) ** 2
            rest = np.random.default_rng([_SEED, number, 1]).standard_normal(self._num_draws)
            error += rest * np.sqrt(np.maximum(variance - known, 0.0))
            furthest = np.maximum(furthest, np.abs(error) / half_width)
        return float(np.quantile(furthest, confidence))


_SEED = 20261127
_NUM_DRAWS = 8192
_MANY_SOURCES = 200
_GRID_REACH, _GRID_STEP = 8.0, 0.1  # in logarithms
_BELOW = 4.0  # reach below the quietest source
_MOST_REACH = 40.0
_ALIKE, _ALIKE_PAIR = 0.5, 0.12  # probability that all cells are alike; two are often two devices
_ODD = 0.05  # probability that a cell is unlike the others where these are alike, as where a run collapsed
_ALIKE_SHARE = 0.05  # of the variance of their logarithms, which is then left between cells
_STEPS_A_LEVEL = 8 / 3  # of the grid
_SPREAD_BEYOND = 0.25  # of the logarithm, above the upper limit
_LEAST_BEYOND = 0.05  # of the density without the limit: pauses make some latencies ten times as long
_FLOOR = 1e-8  # a deviation that no level expects is still possible
_LEAST_WEIGHT = 1e-4
_GROUPS = 256
_LEAST_ESTIMATED_DOF = 1.5  # one run a side has fewer: nothing but the prior
_STEPS = 40
_MOST_ERRORS = 40.0  # of the largest deviation, that a half-width has


@lru_cache(maxsize=16)
def _alternatives(prior: Prior, below: float, alike_share: float) -> "tuple[Floats, Floats, Floats]":
    """Return a grid of deviations, their chances if the level is known, for each level, and the chances of the levels.

    The grid has logarithms over the typical one. First come the levels about which all cells are alike, then those
    about which each has its own.
    """
    import numpy as np

    grid = np.linspace(-below, _GRID_REACH, round((below + _GRID_REACH) / _GRID_STEP) + 1)
    step = _STEPS_A_LEVEL * _GRID_STEP  # levels reach beyond the grid, so that none of its values is rarer
    levels = np.arange(grid[0] - 3 * prior.spread, grid[-1] + 3 * prior.spread, step)[:, None]
    if prior.deviation is None:
        of_levels, own = np.ones(len(levels)), np.exp(-0.5 * ((grid - levels) / prior.spread) ** 2)
    else:
        of_levels, own = _density(levels[:, 0], prior), _density(grid, prior)[None]
    alike = np.exp(-0.5 * ((grid - levels) / (math.sqrt(_ALIKE_SHARE) * prior.spread)) ** 2)
    alike, own = (each / each.sum(axis=1).max() for each in (alike, own))
    alike = (1 - _ODD) * alike + _ODD * own
    chances = _FLOOR + np.concatenate([alike, own])
    of_own = of_levels if len(own) > 1 else np.ones(1)
    weights = np.concatenate([alike_share * of_levels / of_levels.sum(), (1 - alike_share) * of_own / of_own.sum()])
    return grid, chances, np.maximum(weights, _FLOOR)


def _density(logs: "Floats", prior: Prior) -> "Floats":
    """Return the density of the logarithm of a deviation over the typical one, up to a factor."""
    import numpy as np

    beyond = np.maximum(logs - math.log(prior.most / (prior.deviation or 1.0)), 0.0)
    rarer = np.maximum(np.exp(-0.5 * (beyond / _SPREAD_BEYOND) ** 2), _LEAST_BEYOND)
    return np.asarray(np.exp(-0.5 * (logs / prior.spread) ** 2) * rarer)


def _grouped(variances: "Floats") -> "Floats":
    """Return the square roots of the means of neighbouring variances, as few numbers give the same interval."""
    import numpy as np

    return np.asarray(np.sqrt(np.sort(variances).reshape(_GROUPS, -1).mean(axis=1)))


def _half_widths(deviations: "Floats", confidence: float) -> "Floats":
    """Return the half-width of each row, which errors of its deviations, all equally probable, rarely exceed."""
    import numpy as np
    from scipy.special import ndtr

    low, high = np.zeros(len(deviations)), _MOST_ERRORS * deviations[:, -1]
    for _ in range(_STEPS):
        middle = (low + high) / 2
        is_exceeded = 2 * ndtr(-middle[:, None] / deviations).mean(axis=1) > 1 - confidence
        low, high = np.where(is_exceeded, middle, low), np.where(is_exceeded, high, middle)
    return high


def _students(half: float, most: float) -> tuple[float, float]:
    """Return the standard error and the degrees of freedom of Student's t, given its 50% and its 95% half-width."""
    ratios, dofs = _ratios_of_students()
    dof = dofs[min(bisect_left(ratios, -most / half), len(dofs) - 1)]
    return float(most / critical_value(dof, 1)), dof


def error_of_sum(parts: Sequence[tuple[float, float]]) -> tuple[float, float]:
    """Return the standard error and the degrees of freedom of a Student's t like a sum of independent ones.

    `parts` are those of each. Where one is assumed more than estimated, the sum is simulated, none of its deviations
    larger than twice its interval; else Satterthwaite's degrees of freedom (*Biometrics Bulletin* 2, 1946) are right.
    """
    error = math.hypot(*(each for each, _ in parts))
    if min(dof for _, dof in parts) >= _LEAST_ESTIMATED_DOF:
        return error, error**4 / math.fsum(each**4 / dof for each, dof in parts)
    import numpy as np
    from scipy.special import chdtri

    shares = (np.arange(_NUM_DRAWS) + 0.5) / _NUM_DRAWS
    # Pairs of one comparison mostly share their degrees of freedom, and inverting a distribution takes long.
    scales = {
        dof: np.minimum(np.sqrt(dof / chdtri(dof, shares)), 2 * critical_value(dof, 1))
        for dof in {dof for _, dof in parts}
    }
    total = np.zeros(_NUM_DRAWS)
    for number, (error, dof) in enumerate(parts):
        order = np.random.default_rng([_SEED, number, 2]).permutation(_NUM_DRAWS)
        total += (error * scales[dof][order]) ** 2
    half, most = (float(_half_widths(_grouped(total)[None], share)[0]) for share in (0.5, CONFIDENCE))
    return _students(half, most)


@lru_cache(maxsize=1)
def _ratios_of_students() -> tuple[list[float], list[float]]:
    from scipy.special import stdtrit

    dofs = [10 ** (step / 200) / 2 for step in range(1001)]  # 0.5 to 50,000
    return [-float(stdtrit(dof, 0.975) / stdtrit(dof, 0.75)) for dof in dofs], dofs


def critical_value(dof: float, rows: int) -> float:
    """Return the two-sided 95% critical value of Student's t for one of `rows` intervals that hold together.

    By Šidák's level (*JASA* 62, 1967).
    """
    from scipy.special import stdtrit

    return float(stdtrit(dof, (1 + CONFIDENCE ** (1 / max(rows, 1))) / 2))

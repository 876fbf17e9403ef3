"""The statistics of a measurement: medians, spreads, and two sides' ratio or difference with its interval. Pure."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING

from runmanager.errors import UsageError

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt

    Floats = npt.NDArray[np.float64]

__all__ = [
    "Estimate",
    "Interval",
    "difference_interval",
    "iqr",
    "mean",
    "median",
    "quantile",
    "speedup_interval",
    "typical_interval",
]

CONFIDENCE = 0.95
_RESAMPLES = 2000
_ENOUGH_RUNS = 5


@dataclass(frozen=True)
class Interval:
    """An interval of ratios or of differences, both ends included."""

    low: float
    high: float


@dataclass(frozen=True)
class Estimate:
    """A side's typical value, or a ratio or difference of two sides, with its 95% bootstrap interval."""

    value: float
    low: float
    high: float

    @property
    def interval(self) -> Interval:
        return Interval(self.low, self.high)


def mean(values: Sequence[float]) -> float:
    """Of at least one value; sums that no float can hold, as of losses about to be infinite, do no harm."""
    try:
        return math.fsum(values) / len(values)
    except OverflowError:
        return math.fsum(value / len(values) for value in values)


def median(values: Sequence[float]) -> float | None:
    """The middle value, the mean of the two middle ones for an even count; None of nothing."""
    if not values:
        return None
    ordered = sorted(values)
    half, odd = divmod(len(ordered), 2)
    if odd:
        return ordered[half]
    low, high = ordered[half - 1 : half + 1]
    return (low + high) / 2 if math.isfinite(low + high) else low / 2 + high / 2


def quantile(ordered: Sequence[float], share: float) -> float:
    """The `share` quantile of sorted values by linear interpolation (type 7 of Hyndman and Fan 1996, as in NumPy)."""
    position = (len(ordered) - 1) * share
    below = math.floor(position)
    above = min(below + 1, len(ordered) - 1)
    return ordered[below] + (ordered[above] - ordered[below]) * (position - below)


def iqr(values: Sequence[float]) -> float | None:
    """The interquartile range: third quartile less first; None of nothing, 0 of a single value."""
    if not values:
        return None
    ordered = sorted(values)
    return quantile(ordered, 0.75) - quantile(ordered, 0.25)


def speedup_interval(
    baseline: Sequence[Sequence[float]],
    candidate: Sequence[Sequence[float]],
    *,
    resamples: int = _RESAMPLES,
    seed: int = 0,
) -> Estimate:
    """The ratio of two sides' throughputs and its 95% interval.

    A side is its runs, a run the throughputs (samples a second) of its measured epochs. The throughput of a side is
    the median over its runs of the median over a run's epochs. The interval is the percentile interval of the log
    ratio over `resamples` bootstrap samples in two levels: runs are drawn with replacement, then epochs within each
    run drawn (Davison and Hinkley, *Bootstrap Methods and their Application*, 1997, section 3.8). Where a side has two
    to four runs it is stretched about the estimate, see `_stretch`. The same numbers and the same `seed` give the
    same interval.

    Raises `UsageError` for a side without runs, a run without epochs, or a throughput that is not above 0.
    """
    sides = _checked("baseline", baseline), _checked("candidate", candidate)
    for name, side in zip(("baseline", "candidate"), sides, strict=True):
        if refused := [value for epochs in side for value in epochs if value <= 0]:
            raise UsageError(f"Throughputs of the {name} must be above 0 and finite, got {refused[0]}.")
    return _interval(*sides, _checked_resamples(resamples), seed, True)


def difference_interval(
    baseline: Sequence[Sequence[float]],
    candidate: Sequence[Sequence[float]],
    *,
    resamples: int = _RESAMPLES,
    seed: int = 0,
) -> Estimate:
    """Candidate - baseline with its 95% interval, made as `speedup_interval` makes that of a ratio.

    Raises `UsageError` for a side without runs, a run without values, or a value that is not finite.
    """
    sides = _checked("baseline", baseline), _checked("candidate", candidate)
    return _interval(*sides, _checked_resamples(resamples), seed, False)


def typical_interval(runs: Sequence[Sequence[float]], *, resamples: int = _RESAMPLES, seed: int = 0) -> Estimate:
    """A side's own throughput and its 95% interval: those of its speedup over one sample a second that never varies.

    Raises `UsageError` as `speedup_interval` does of its candidate.
    """
    return speedup_interval([[1.0]], runs, resamples=resamples, seed=seed)


_Side = tuple[tuple[float, ...], ...]


def _checked(name: str, runs: Sequence[Sequence[float]]) -> _Side:
    side = tuple(tuple(float(value) for value in epochs) for epochs in runs)
    if not side or not all(side):
        raise UsageError(f"The {name} of a comparison must have a measured value in each run, got {side}.")
    if refused := [value for epochs in side for value in epochs if not math.isfinite(value)]:
        raise UsageError(f"Values of the {name} must be finite, got {refused[0]}.")
    return side


def _checked_resamples(resamples: int) -> int:
    if resamples < 1:
        raise UsageError(f"`resamples` must be at least 1, got {resamples}.")
    return resamples


# The tables are rewritten whenever a run ends: pairs that have not changed since then are not resampled again.
@lru_cache(maxsize=4096)
def _interval(baseline: _Side, candidate: _Side, resamples: int, seed: int, is_ratio: bool) -> Estimate:
    import numpy as np

    generator = np.random.default_rng(seed)
    drawn = [_resampled(side, resamples, generator) for side in (baseline, candidate)]
    spreads = [float(np.var(np.log(draws) if is_ratio else draws)) for draws in drawn]
    stretch = _stretch(spreads, [len(baseline), len(candidate)])
    tails = (1 - CONFIDENCE) / 2, (1 + CONFIDENCE) / 2
    if is_ratio:
        ratio = _typical(candidate) / _typical(baseline)
        ratios = np.sort(drawn[1] / drawn[0]).tolist()
        low, high = (_log_quantile(ratios, share) for share in tails)
        if stretch != 1:
            low, high = (ratio * (end / ratio) ** stretch for end in (low, high))
        return Estimate(ratio, low, high)
    difference = _typical(candidate) - _typical(baseline)
    differences = np.sort(drawn[1] - drawn[0]).tolist()
    low, high = (difference + (quantile(differences, share) - difference) * stretch for share in tails)
    return Estimate(difference, low, high)


def _stretch(spreads: Sequence[float], runs: Sequence[int]) -> float:
    """How much wider than the percentiles an interval must be; `spreads` are the bootstrap variances of the sides.

    Of two to four runs the plain percentiles cover the truth in 70 to 95% of cases only (docs/measurement.md): drawing
    n of n leaves out a share 1/n of the variance, and the few values know the variance itself badly. Both are made good
    as Hesterberg proposes (*What Teachers Should Know About the Bootstrap*, The American Statistician 69, 2015): by
    n/(n-1), and Student's t for the normal quantile, here with the degrees of freedom of Welch and Satterthwaite. The
    stretched interval errs on the wide side. From five runs on the percentiles of a median need nothing.
    """
    if not any(1 < count < _ENOUGH_RUNS for count in runs) or not any(spreads):
        return 1.0
    from scipy.special import ndtri, stdtrit

    whole = [spread * (n / (n - 1) if n > 1 else 1) for spread, n in zip(spreads, runs, strict=True)]
    unsure = sum(spread**2 / (n - 1) for spread, n in zip(whole, runs, strict=True) if n > 1)
    freedom = sum(whole) ** 2 / unsure if unsure else math.inf
    share = (1 + CONFIDENCE) / 2
    return math.sqrt(sum(whole) / sum(spreads)) * float(stdtrit(freedom, share) / ndtri(share))


def _log_quantile(ordered: Sequence[float], share: float) -> float:
    """What the logarithms' `quantile` stands for; equal values give that value, not what rounding makes of it."""
    position = (len(ordered) - 1) * share
    below = math.floor(position)
    above = min(below + 1, len(ordered) - 1)
    return float(ordered[below] * (ordered[above] / ordered[below]) ** (position - below))


def _typical(side: _Side) -> float:
    return _known(median([_known(median(epochs)) for epochs in side]))


def _known(value: float | None) -> float:
    assert value is not None  # only empty sides have none, and those are refused
    return value


def _resampled(side: _Side, resamples: int, generator: "np.random.Generator") -> "Floats":
    """The typical value of `resamples` bootstrap samples of a side, shape (resamples,).

    The median of m epochs drawn with replacement is not drawn one by one: sorted epoch number floor(m U) is drawn for
    a uniform U, so the middle epoch of m draws is the one at the middle of m sorted uniforms, and that is Beta
    distributed (David and Nagaraja, *Order Statistics*, 2003, section 2.2). The cost does not grow with the epochs.
    """
    import numpy as np

    lengths = np.array([len(epochs) for epochs in side])
    ordered = np.zeros((len(side), lengths.max()))
    for row, epochs in zip(ordered, side, strict=True):
        row[: len(epochs)] = sorted(epochs)
    runs = generator.integers(0, len(side), (resamples, len(side)))
    drawn = lengths[runs]
    rank = (drawn + 1) // 2  # of the lower middle, from 1
    lower = generator.beta(rank, drawn + 1 - rank)
    # The next of the sorted uniforms is the least of those that are left, all of them above the lower middle.
    following = 1 - (1 - lower) * generator.random(runs.shape) ** (1 / np.maximum(drawn - rank, 1))
    upper = np.where(drawn % 2 == 0, following, lower)
    low, high = (np.minimum((drawn * middle).astype(np.intp), drawn - 1) for middle in (lower, upper))
    typical: Floats = np.median((ordered[runs, low] + ordered[runs, high]) / 2, axis=-1)
    return typical

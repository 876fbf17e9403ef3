"""Speedups of runs that were measured side by side: what each round says, and what all of them say together."""

import math
from collections import defaultdict
from collections.abc import Collection, Mapping, Sequence
from functools import cache
from statistics import NormalDist

from runmanager.records.store import StoredRun
from runmanager.results.noise import CONFIDENCE
from runmanager.results.statistics import Estimate

__all__ = [
    "LEAST_ROUNDS",
    "in_stretches",
    "is_narrow",
    "least_rounds",
    "log_ratios",
    "paired_speedup",
    "ratios_of",
    "rounds_of",
]

LEAST_ROUNDS = 6
"""Of fewer there is no interval at 95%: that all of them fall on one side happens by chance in one of 16 cases."""

_MOST_VALUES = 200
_EXACT_UNTIL = 50


def ratios_of(baseline: Sequence[StoredRun], candidate: Sequence[StoredRun]) -> list[float]:
    """The log ratio of each round that the finished runs of two sides had in common."""
    rounds = rounds_of([*baseline, *candidate])
    return log_ratios(rounds, range(len(baseline)), range(len(baseline), len(baseline) + len(candidate)))


def rounds_of(runs: Sequence[StoredRun]) -> list[dict[int, float]]:
    """What the runs measured in each round, in order: samples a second by their place in `runs`; no warm-up.

    Rounds are those of one session: where the runs took turns more than once, of the one with the most rounds.
    """
    sessions: defaultdict[str, defaultdict[int, dict[int, float]]] = defaultdict(lambda: defaultdict(dict))
    for at, run in enumerate(runs):
        for turn in run.turns:
            rate = turn.samples_per_second
            if rate is not None and not turn.warmup:
                sessions[turn.session][turn.round][at] = rate
    shared = [[rounds[number] for number in sorted(rounds) if len(rounds[number]) > 1] for rounds in sessions.values()]
    return max(shared, key=len, default=[])


def log_ratios(
    rounds: Sequence[Mapping[int, float]], baseline: Collection[int], candidate: Collection[int]
) -> list[float]:
    """The logarithm of candidate / baseline in each round in which both sides were measured.

    A side that is several runs (seeds) counts with the mean of their logarithms.
    """
    ratios = []
    for measured in rounds:
        sides = [[math.log(measured[key]) for key in side if key in measured] for side in (baseline, candidate)]
        if all(sides):
            low, high = (sum(side) / len(side) for side in sides)
            ratios.append(high - low)
    return ratios


def paired_speedup(ratios: Sequence[float], *, confidence: float = CONFIDENCE) -> Estimate | None:
    """The speedup and its interval from the log ratios of rounds; None of so few that there is no interval.

    As the order in a round is drawn by lot, what disturbs a turn is as likely to fall on one side as on the other, and
    the ratios scatter evenly around the true one. Of such values the signed-rank test makes an interval that neither
    outliers nor unequal noise spoil, and the Hodges-Lehmann estimate: the median of the means of all pairs of values
    (Hodges and Lehmann 1963; Hollander, Wolfe and Chicken, *Nonparametric Statistical Methods*, 3rd ed. 2014, sections
    3.2 and 3.3). More than 200 rounds are first averaged in stretches of equal length.
    """
    import numpy as np

    values = np.asarray(in_stretches(ratios), dtype=float)
    rank = _lower_rank(len(values), confidence)
    if rank is None:
        return None
    first, second = np.triu_indices(len(values))
    means = np.sort((values[first] + values[second]) / 2)
    low, high = means[rank - 1], means[len(means) - rank]
    value, low, high = (float(each) for each in (np.median(means), low, high))
    error = (high - low) / 2 / NormalDist().inv_cdf((1 + confidence) / 2)
    return Estimate(math.exp(value), math.exp(low), math.exp(high), error, len(values) - 1.0)


def least_rounds(confidence: float) -> int:
    """How many rounds an interval of this confidence needs: `LEAST_ROUNDS` for 95%."""
    return math.ceil(math.log2(2 / (1 - confidence)))


def is_narrow(ratios: Sequence[float], half_width: float) -> bool:
    """Whether the interval reaches no more than `half_width` (a share) to either side of the speedup."""
    estimate = paired_speedup(ratios)
    if estimate is None:
        return False
    limit = 1 + half_width
    return estimate.high <= estimate.value * limit and estimate.value <= estimate.low * limit


def in_stretches(values: Sequence[float]) -> list[float]:
    """At most 200 means of consecutive values, in equal numbers; the last ones that fill no stretch are left out."""
    length = math.ceil(len(values) / _MOST_VALUES)
    if length <= 1:
        return list(values)
    whole = len(values) // length * length
    return [sum(values[at : at + length]) / length for at in range(0, whole, length)]


@cache
def _lower_rank(count: int, confidence: float) -> int | None:
    """Which of the ordered pair means, from 1, is the interval's lower end: the highest with at most 2.5% below.

    That is for 95% confidence. None where even the first leaves more, as of fewer than six values.
    """
    tail = (1 - confidence) / 2
    if count > _EXACT_UNTIL:
        mean, deviation = count * (count + 1) / 4, math.sqrt(count * (count + 1) * (2 * count + 1) / 24)
        return math.floor(mean - NormalDist().inv_cdf(1 - tail) * deviation)
    chances = [1.0]  # of each sum of ranks that have a positive sign, by chance alone
    for rank in range(1, count + 1):
        longer = [0.0] * (len(chances) + rank)
        for total, chance in enumerate(chances):
            longer[total] += chance / 2
            longer[total + rank] += chance / 2
        chances = longer
    below, rank = 0.0, 0
    for chance in chances:
        below += chance
        if below > tail:
            break
        rank += 1
    return rank or None

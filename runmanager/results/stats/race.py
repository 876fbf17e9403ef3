"""Races: contenders that take turns, and are dropped once they are slower beyond doubt. Pure functions.

Half of the error of 5% is for the looks at a race before its end, each of which may drop contenders: the intervals of
all pairs hold together, at all looks. The other half is for the intervals at its end, which hold together too. So it is
where a race ends as soon as it is settled: it then tends to end when its sessions happen to agree, and intervals of 95%
would cover the truth in 85% to 95% of races.
"""

import math
from collections.abc import Collection, Mapping, Sequence

from runmanager.results.stats.descriptive import Estimate, ratio_factor, residuals
from runmanager.results.stats.noise_model import critical_value
from runmanager.results.stats.paired_speedup import MIN_ROUNDS, log_ratios, paired_speedup

Sessions = Sequence[Sequence[Mapping[int, float]]]
"""The rounds of each session: a speed by the key of the contender. Every session has processes of its own."""

_HALVES = 2
_NARROW, _NARROW_SHARE = 0.01, 0.1

LEAST_ROUNDS = 3
"""Fewest rounds that two contenders must share in a session for it to count, and after which a race is looked at.

Also the fewest runs of each in a race of whole runs: two may agree by chance where a load comes and goes.
"""


def race_speedup(
    sessions: Sessions, reference: int, other: int, *, rows: int | None = None, whole_runs: bool = False
) -> Estimate | None:
    """Return how many times as fast as `reference` another contender is, with its 95% interval.

    It is one of the `rows` intervals at the end of a race that was looked at before; None: of a race without looks.
    With `whole_runs` each round is a run of each contender, as a process of its own, and counts by itself. None where
    they have too few rounds in common.
    """
    ratios = [log_ratios(rounds, {reference}, {other}) for rounds in sessions]
    joint = 1 if rows is None else _HALVES * rows
    if whole_runs:
        return _speedup_of_runs([each for found in ratios for each in found], rows=joint)
    # Short sessions are noisier than others, and count only where there is no other.
    least = MIN_ROUNDS if any(len(each) >= MIN_ROUNDS for each in ratios) else LEAST_ROUNDS
    return paired_speedup([each for each in ratios if len(each) >= least], rows=joint)


def beaten(sessions: Sessions, running: Collection[int], *, looks: int, whole_runs: bool = False) -> frozenset[int]:
    """Return those of the contenders still `running` that are slower than the fastest one beyond doubt.

    `looks` is how often the race is looked at before its end. The interval against the fastest lies wholly below 1.
    """
    if not running:
        return frozenset()
    contenders = {key for rounds in sessions for measured in rounds for key in measured}
    rows = looks * math.comb(max(len(contenders), 2), 2)
    fastest = fastest_of(sessions, running, whole_runs=whole_runs)
    found = set()
    for key in set(running) - {fastest}:
        estimate = race_speedup(sessions, fastest, key, rows=rows, whole_runs=whole_runs)
        if estimate is not None and estimate.high < 1:
            found.add(key)
    return frozenset(found)


def fastest_of(sessions: Sessions, running: Collection[int], *, whole_runs: bool = False) -> int:
    """Return the one with the highest speedup over the first of them, by the estimates that are shown.

    One of which too little was measured counts as equal to the first.
    """
    first, *others = sorted(running)
    found = {key: race_speedup(sessions, first, key, whole_runs=whole_runs) for key in others}
    speeds = {first: 1.0} | {key: 1.0 if each is None else each.value for key, each in found.items()}
    return max(speeds, key=lambda key: speeds[key])


def is_settled(speedup: Estimate | None) -> bool:
    """Whether a speedup is known well enough to stop: within a hundredth, or within a tenth of itself."""
    if speedup is None:
        return False
    return math.log(speedup.high / speedup.value) <= max(_NARROW, _NARROW_SHARE * abs(math.log(speedup.value)))


def _speedup_of_runs(ratios: Sequence[float], *, rows: int) -> Estimate | None:
    if len(ratios) < LEAST_ROUNDS:
        return None
    # By these runs alone: on a busy machine those that agree by chance would else be taken for quiet ones.
    seen, value = residuals(ratios), math.fsum(ratios) / len(ratios)
    error = math.sqrt(seen.squares / seen.dof / len(ratios))
    ratio, factor = math.exp(value), ratio_factor(critical_value(seen.dof, rows) * error)
    return Estimate(ratio, ratio / factor, ratio * factor, error, seen.dof)

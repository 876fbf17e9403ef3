"""Speedups of runs that were measured side by side, from the rounds of each pair of processes."""

import math
from bisect import bisect_left
from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from runmanager.records.run.environment_changes import sessions_in_other_environments
from runmanager.records.storage.reader import StoredRun
from runmanager.results.stats.descriptive import Estimate, mean, ratio_factor, residuals
from runmanager.results.stats.noise_model import Difference, LearntNoise, Prior, critical_value

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt

    Floats = npt.NDArray[np.float64]

MIN_ROUNDS = 6
"""Fewest rounds of a session; one with fewer does not count."""

MAX_SESSIONS = 20
"""Most sessions of a measurement: more add little precision, and each leaves an attempt in the run's record."""

_MOST_SESSIONS = 100_000
_PRIOR = Prior(0.025, 1.0)  # of sessions' log ratios: docs/measurement_evidence.md has the coverage
_TRIMMED = 0.2  # share of a session's batches that is trimmed at either end
_ONE_SIDED_5_PERCENT = 1.645  # standard deviations

_Ratios = Sequence[float]
_Rounds = Sequence[Mapping[int, float]]


@dataclass(frozen=True, kw_only=True)
class PairedSpeedup(Estimate):
    """A speedup with its 95% interval, and the numbers of sessions and rounds that it rests on.

    `spread` is the standard deviation of the sessions' log ratios, None for a single session. Where rounds are
    autocorrelated, batches of `rounds_a_batch` were averaged first. The interval is one of `rows` simultaneous ones.
    """

    sessions: int
    rounds: int
    spread: float | None
    rounds_a_batch: int
    rows: int = 1


def log_ratios_by_session(baseline: Sequence[StoredRun], candidate: Sequence[StoredRun]) -> list[list[float]]:
    """Return the log ratios of the rounds that the finished runs of two sides had in common, session by session.

    Sessions with fewer than `MIN_ROUNDS` are left out.
    """
    sides = range(len(baseline)), range(len(baseline), len(baseline) + len(candidate))
    found = (log_ratios(rounds, *sides) for rounds in rounds_by_session([*baseline, *candidate]))
    return [ratios for ratios in found if len(ratios) >= MIN_ROUNDS]


def rounds_by_session(runs: Sequence[StoredRun]) -> list[list[dict[int, float]]]:
    """Return the measured rounds of each session, in order: samples a second by the index of the run, without warm-up.

    A session that a run took part in on another machine, or with other versions, than its record names is left out.
    """
    elsewhere = {session for run in runs for session in sessions_in_other_environments(run.record)}
    sessions: defaultdict[str, defaultdict[int, dict[int, float]]] = defaultdict(lambda: defaultdict(dict))
    for index, run in enumerate(runs):
        for turn in run.turns:
            rate = turn.samples_per_second
            if rate is not None and not turn.warmup and turn.session not in elsewhere:
                sessions[turn.session][turn.round][index] = rate
    shared = [[rounds[number] for number in sorted(rounds) if len(rounds[number]) > 1] for rounds in sessions.values()]
    return [rounds for rounds in shared if rounds]


def log_ratios(rounds: _Rounds, baseline: Collection[int], candidate: Collection[int]) -> list[float]:
    """Return the logarithm of candidate / baseline in each round in which both sides were measured.

    A side of several runs (seeds) counts with the mean of their logarithms.
    """
    ratios = []
    for measured in rounds:
        sides = [[math.log(measured[key]) for key in side if key in measured] for side in (baseline, candidate)]
        if all(sides):
            low, high = map(mean, sides)
            ratios.append(high - low)
    return ratios


def paired_speedup(sessions: Sequence[_Ratios], *, rows: int = 1) -> PairedSpeedup | None:
    """Estimate the speedup and its 95% interval from the log ratios of rounds; None without a session.

    A session is one process a run, and no two processes are equally fast: so each session is one observation, the
    trimmed mean of its rounds. Their deviation is learnt from them (`noise_model.py`): 2.5% is typical, and it is at
    least what the rounds themselves show. So the interval of one session is finite, and wide.
    Autocorrelated rounds are averaged in batches first (Fishman 1978); otherwise the interval would be too narrow. The
    interval is one of `rows` simultaneous ones.
    """
    if not sessions:
        return None
    import numpy as np

    length = batch_length(sessions)
    each = np.array([_trimmed(_batched(ratios, length)) for ratios in sessions])
    values, within = each[:, 0], float(each[:, 1].mean())
    count, value = len(values), float(values.mean())
    seen = residuals(values.tolist())
    mean_of_sessions = Difference([(0, math.sqrt(1 / count))], within / count)
    (reach,) = LearntNoise([seen], _PRIOR).reaches([mean_of_sessions], rows=rows)
    ratio, factor = math.exp(value), ratio_factor(reach.half_width)
    return PairedSpeedup(
        value=ratio,
        low=ratio / factor,
        high=ratio * factor,
        error=reach.error,
        dof=reach.dof,
        sessions=count,
        rounds=sum(map(len, sessions)),
        spread=math.sqrt(seen.squares / seen.dof) if count > 1 else None,
        rounds_a_batch=length,
        rows=rows,
    )


def is_narrow(sessions: Sequence[_Ratios], half_width: float) -> bool:
    """Whether the interval reaches at most `half_width` (a share) beyond the speedup."""
    estimate = paired_speedup(sessions)
    return estimate is not None and estimate.high <= estimate.value * (1 + half_width)


def sessions_needed(estimate: PairedSpeedup, half_width: float) -> int | None:
    """Return how many sessions would bring the interval to `half_width` (a share) if their noise stays as it is.

    None if a hundred thousand would not.
    """
    low = high = estimate.sessions + 1
    while half_width_after(estimate, high) > half_width:
        if high > _MOST_SESSIONS:
            return None
        low, high = high + 1, 2 * high
    return bisect_left(range(high), -half_width, low, key=lambda count: -half_width_after(estimate, count))


def half_width_after(estimate: PairedSpeedup, sessions: int) -> float:
    """Return the half-width of the interval (a share) after so many sessions if their noise stays as it is."""
    dof = estimate.dof + sessions - estimate.sessions
    error = estimate.error * math.sqrt(estimate.sessions / sessions)
    return math.expm1(critical_value(dof, estimate.rows) * error)


def batch_length(sessions: Sequence[_Ratios]) -> int:
    """Return how many consecutive rounds to average so that the means are not autocorrelated.

    The length doubles until a test finds no autocorrelation, or a session has only two batches: Bartels' rank version
    (1982) of von Neumann's ratio, over all sessions together.
    """
    length = 1
    while min(map(len, sessions)) >= 4 * length and _is_autocorrelated([_batched(each, length) for each in sessions]):
        length *= 2
    return length


def _is_autocorrelated(sessions: Iterable["Floats"]) -> bool:
    import numpy as np

    steps = spread = count = 0.0
    for values in sessions:
        ordered = np.sort(values)
        ranks = np.searchsorted(ordered, values, "left") + np.searchsorted(ordered, values, "right")  # of ties the mean
        steps += float((np.diff(ranks) ** 2).sum())
        spread += float(((ranks - ranks.mean()) ** 2).sum())
        count += len(ranks)
    return spread > 0 and steps / spread < 2 - _ONE_SIDED_5_PERCENT * 2 / math.sqrt(count)


def _batched(ratios: _Ratios, length: int) -> "Floats":
    """Return the means of batches with at least `length` rounds each."""
    import numpy as np

    if length == 1:
        return np.asarray(ratios, dtype=float)
    return np.array([part.mean() for part in np.array_split(np.asarray(ratios, dtype=float), len(ratios) // length)])


def _trimmed(values: "Floats") -> tuple[float, float]:
    """Return the trimmed mean and its variance, from the winsorised values (Tukey and McLaughlin 1963)."""
    import numpy as np

    ordered = np.sort(values)
    cut = int(_TRIMMED * len(ordered))
    inner = ordered[cut : len(ordered) - cut]
    winsorised = np.clip(ordered, inner[0], inner[-1])
    squares = float(((winsorised - winsorised.mean()) ** 2).sum())
    return float(inner.mean()), squares / (len(inner) * (len(inner) - 1))

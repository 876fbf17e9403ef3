"""The rounds of pairs that were measured side by side, for the figures of the report."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate
from typing import Any

from runmanager.results.compare.comparability import disagreements
from runmanager.results.compare.matched_pairs import Match, Matches
from runmanager.results.metrics.metric import THROUGHPUT
from runmanager.results.stats.descriptive import mean
from runmanager.results.stats.paired_speedup import PairedSpeedup, log_ratios_by_session, paired_speedup

__all__ = ["Rounds", "paired_rounds"]

_MAX_DRAWN = 200


@dataclass(frozen=True)
class Rounds:
    """The ratios of a pair, round by round, with the estimate from all rounds.

    Each of `ratios` is candidate / baseline; of more than 200 rounds, the geometric mean of several consecutive ones.
    `count` is the number of rounds, `restarts` the numbers of rounds after which new processes took over. `labels` are
    the names of the sides, baseline first; `settings` distinguish this pair from others.
    """

    labels: tuple[str, str]
    settings: Mapping[str, Any]
    ratios: Sequence[float]
    count: int
    restarts: Sequence[int]
    estimate: PairedSpeedup


def paired_rounds(matches: Matches) -> list[Rounds]:
    """Return the rounds of each pair that has an estimate by them."""
    if matches.metric != THROUGHPUT:
        return []
    found = [_rounds(match, matches) for match in matches.pairs if all(side.in_turns for side in match.sides)]
    return [each for each in found if each is not None]


def _rounds(match: Match, matches: Matches) -> Rounds | None:
    baseline, candidate = match.sides
    sessions = log_ratios_by_session(baseline.finished, candidate.finished)
    estimate = paired_speedup(sessions)
    if estimate is None or disagreements(match.sides):
        return None
    settings = {name: value for name, value in match.settings.items() if name in matches.cells.varying}
    ratios = [ratio for session in sessions for ratio in session]
    drawn = [math.exp(ratio) for ratio in _batch_means(ratios)]
    restarts = list(accumulate(map(len, sessions)))[:-1]
    return Rounds((baseline.label, candidate.label), settings, drawn, len(ratios), restarts, estimate)


def _batch_means(values: Sequence[float]) -> list[float]:
    """Return at most 200 means of equally many consecutive values; an incomplete last batch is left out."""
    length = math.ceil(len(values) / _MAX_DRAWN)
    whole = len(values) // length * length
    return [mean(values[at : at + length]) for at in range(0, whole, length)]

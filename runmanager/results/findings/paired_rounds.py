"""The rounds of the pairs of a sweep that were measured side by side, as its report draws them."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate
from typing import Any

from runmanager.results.compare.comparability import disagreements
from runmanager.results.compare.matching import Match, Matches
from runmanager.results.compare.metrics import THROUGHPUT
from runmanager.results.stats.paired_speedup import PairedSpeedup, log_ratios_by_session, paired_speedup

__all__ = ["Rounds", "paired_rounds"]

_MOST_DRAWN = 200


@dataclass(frozen=True)
class Rounds:
    """How much faster the candidate was in each round, in order, and what all rounds come to.

    Each of `ratios` is candidate / baseline, of more than 200 rounds the geometric mean of several that follow each
    other: `count` is how many rounds there were, `restarts` after which of them fresh processes went on. `labels` are
    the sides' names, baseline first; `settings` tell this pair from others.
    """

    labels: tuple[str, str]
    settings: Mapping[str, Any]
    ratios: Sequence[float]
    count: int
    restarts: Sequence[int]
    estimate: PairedSpeedup


def paired_rounds(matches: Matches) -> list[Rounds]:
    """Those of each pair that has an answer by its rounds."""
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
    drawn = [math.exp(ratio) for ratio in _in_stretches(ratios)]
    restarts = list(accumulate(map(len, sessions)))[:-1]
    return Rounds((baseline.label, candidate.label), settings, drawn, len(ratios), restarts, estimate)


def _in_stretches(values: Sequence[float]) -> list[float]:
    """At most 200 means of consecutive values, in equal numbers; the last ones that fill no stretch are left out."""
    length = math.ceil(len(values) / _MOST_DRAWN)
    whole = len(values) // length * length
    return [sum(values[at : at + length]) / length for at in range(0, whole, length)]

"""The rounds of the pairs of a sweep that were measured side by side, as its report draws them."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from runmanager.results.matching import Match, Matches
from runmanager.results.metrics import THROUGHPUT
from runmanager.results.paired import in_stretches, paired_speedup, ratios_of
from runmanager.results.sides import disagreements
from runmanager.results.statistics import Estimate

__all__ = ["Rounds", "paired_rounds"]


@dataclass(frozen=True)
class Rounds:
    """How much faster the candidate was in each round, in order, and what all rounds come to.

    Each of `ratios` is candidate / baseline, of more than 200 rounds the geometric mean of several that follow each
    other: `count` is how many rounds there were. `labels` are the sides' names, baseline first; `settings` tell this
    pair from others.
    """

    labels: tuple[str, str]
    settings: Mapping[str, Any]
    ratios: Sequence[float]
    count: int
    estimate: Estimate


def paired_rounds(matches: Matches) -> list[Rounds]:
    """Those of each pair that has an answer by its rounds."""
    if matches.metric != THROUGHPUT:
        return []
    found = [_rounds(match, matches) for match in matches.pairs if all(side.in_turns for side in match.sides)]
    return [each for each in found if each is not None]


def _rounds(match: Match, matches: Matches) -> Rounds | None:
    baseline, candidate = match.sides
    ratios = ratios_of(baseline.finished, candidate.finished)
    estimate = paired_speedup(ratios)
    if estimate is None or disagreements(match.sides):
        return None
    settings = {name: value for name, value in match.settings.items() if name in matches.cells.varying}
    drawn = [math.exp(ratio) for ratio in in_stretches(ratios)]
    return Rounds((baseline.label, candidate.label), settings, drawn, len(ratios), estimate)

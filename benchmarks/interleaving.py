"""Things timed in turns: each round has every one of them once, in a random order, so that drift hits all alike."""

import random
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from statistics import median

from runmanager.results.statistics import speedup_interval

__all__ = ["Patience", "Ratio", "in_turns", "ratio_of", "timed"]

Contender = Callable[[], float]
"""Does its work once and returns what is compared, the seconds that it took."""


@dataclass(frozen=True)
class Patience:
    """How long is measured: until every ratio's interval is within `half_width` of it (a share), or time is spent.

    At least `min_rounds` and at most `max_rounds`; no round is begun after `max_seconds`, but for the least.
    """

    min_rounds: int = 5
    max_rounds: int = 100
    max_seconds: float = 300.0
    half_width: float = 0.02


@dataclass(frozen=True)
class Ratio:
    """The median over rounds of the ratio within a round, with its 95% bootstrap interval."""

    value: float
    low: float
    high: float
    rounds: int

    @property
    def half_width(self) -> float:
        return (self.high - self.low) / 2 / self.value

    def __str__(self) -> str:
        return f"{self.value:.4g} ({self.low:.4g} to {self.high:.4g})"


def timed(work: Callable[[], object], *, clock: Callable[[], float] = time.perf_counter) -> Contender:
    """What is timed as a whole."""

    def once() -> float:
        begin = clock()
        work()
        return clock() - begin

    return once


def in_turns(
    contenders: Mapping[str, Contender],
    *,
    patience: Patience,
    seed: int = 0,
    warm_up_rounds: int = 1,
    clock: Callable[[], float] = time.monotonic,
) -> dict[str, list[float]]:
    """What each contender returned in each round, the rounds of all side by side.

    The ratios looked at are those of each contender to the first. `warm_up_rounds` come first and count nowhere.
    """
    order = random.Random(seed)
    for _ in range(warm_up_rounds):
        _round(contenders, order)
    seen: dict[str, list[float]] = {name: [] for name in contenders}
    began = clock()
    while not _is_enough(seen, patience, spent=clock() - began):
        for name, seconds in _round(contenders, order).items():
            seen[name].append(seconds)
    return seen


def _round(contenders: Mapping[str, Contender], order: random.Random) -> dict[str, float]:
    names = list(contenders)
    order.shuffle(names)
    return {name: contenders[name]() for name in names}


def _is_enough(seen: Mapping[str, Sequence[float]], patience: Patience, *, spent: float) -> bool:
    first, *others = seen.values()
    if len(first) < patience.min_rounds:
        return False
    if len(first) >= patience.max_rounds or spent >= patience.max_seconds:
        return True
    return all(ratio_of(other, first).half_width <= patience.half_width for other in others or [first])


def ratio_of(numerator: Sequence[float], denominator: Sequence[float]) -> Ratio:
    """How much larger one is than the other; the two have been measured in the same rounds."""
    ratios = [one / other for one, other in zip(numerator, denominator, strict=True)]
    estimate = speedup_interval([[1.0]], [ratios])
    return Ratio(median(ratios), estimate.low, estimate.high, len(ratios))

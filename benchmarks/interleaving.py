"""Things timed in turns: each round has every one of them once, in a random order, so that drift hits all alike."""

import random
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from statistics import median

import numpy as np

__all__ = ["Patience", "Ratio", "in_small_turns", "in_turns", "is_enough", "ratio_of", "timed"]

Contender = Callable[[], float]
"""Does its work once and returns what is compared, the seconds that it took."""

Pausing = Callable[[], Iterator[bool]]
"""Does its work once, and pauses after each part of it; says there whether that part counts."""

Rest = Callable[[], object]
"""Waits until what the turn before has left to do is done."""


def _no_rest() -> None:
    pass


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
    rest: Rest = _no_rest,
    clock: Callable[[], float] = time.monotonic,
) -> dict[str, list[float]]:
    """What each contender returned in each round, the rounds of all side by side.

    The ratios looked at are those of each contender to the first. `warm_up_rounds` come first and count nowhere, and
    nor does the `rest` before each turn.
    """
    order = random.Random(seed)
    return _rounds(partial(_whole, contenders, order, rest), patience, warm_up_rounds=warm_up_rounds, clock=clock)


def in_small_turns(
    contenders: Mapping[str, Pausing],
    *,
    patience: Patience,
    seed: int = 0,
    warm_up_rounds: int = 1,
    rest: Rest = _no_rest,
    clock: Callable[[], float] = time.perf_counter,
) -> dict[str, list[float]]:
    """As `in_turns`, but within a round each contender does a part at a time: the seconds of its parts that count.

    Other load on a machine comes and goes within seconds. Parts that follow each other meet the same, where whole works
    of some seconds do not, so that fewer rounds are enough.
    """
    order = random.Random(seed)
    one = partial(_by_parts, contenders, order, rest, clock)
    return _rounds(one, patience, warm_up_rounds=warm_up_rounds, clock=clock)


def _rounds(
    one: Callable[[], dict[str, float]], patience: Patience, *, warm_up_rounds: int, clock: Callable[[], float]
) -> dict[str, list[float]]:
    for _ in range(warm_up_rounds):
        one()
    seen: dict[str, list[float]] = {}
    began = clock()
    while not seen or not is_enough(seen, patience, spent=clock() - began):
        for name, seconds in one().items():
            seen.setdefault(name, []).append(seconds)
    return seen


def _whole(contenders: Mapping[str, Contender], order: random.Random, rest: Rest) -> dict[str, float]:
    seconds = {}
    for name in _shuffled(contenders, order):
        rest()
        seconds[name] = contenders[name]()
    return {name: seconds[name] for name in contenders}  # who takes the values relies on their order


def _by_parts(
    contenders: Mapping[str, Pausing], order: random.Random, rest: Rest, clock: Callable[[], float]
) -> dict[str, float]:
    spent = dict.fromkeys(contenders, 0.0)
    going = {name: begin() for name, begin in contenders.items()}
    while going:
        for name in _shuffled(going, order):
            rest()
            begin = clock()
            counts = next(going[name], None)
            if counts is None:
                del going[name]
            elif counts:
                spent[name] += clock() - begin
    return spent


def _shuffled(names: Iterable[str], order: random.Random) -> list[str]:
    shuffled = list(names)
    order.shuffle(shuffled)
    return shuffled


def is_enough(seen: Mapping[str, Sequence[float]], patience: Patience, *, spent: float) -> bool:
    """Whether what was `seen` in rounds that took `spent` seconds is as much as `patience` asks for."""
    first, *others = seen.values()
    if len(first) < patience.min_rounds:
        return False
    if len(first) >= patience.max_rounds or spent >= patience.max_seconds:
        return True
    return all(ratio_of(other, first).half_width <= patience.half_width for other in others or [first])


def ratio_of(numerator: Sequence[float], denominator: Sequence[float]) -> Ratio:
    """How much larger one is than the other; the two have been measured in the same rounds."""
    ratios = [one / other for one, other in zip(numerator, denominator, strict=True)]
    low, high = _interval_of_median(ratios)
    return Ratio(median(ratios), low, high, len(ratios))


def _interval_of_median(values: Sequence[float], *, resamples: int = 2000) -> tuple[float, float]:
    """The 95% percentile interval of the bootstrap (Efron, *Annals of Statistics* 7, 1979), the same at every call."""
    drawn = np.random.default_rng(0).choice(np.asarray(values), (resamples, len(values)))
    low, high = np.quantile(np.median(drawn, axis=1), [0.025, 0.975])
    return float(low), float(high)

"""Interleaved timing: each round times every contender once, in random order, so that drift affects all alike."""

import random
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from statistics import median

import numpy as np

__all__ = ["Ratio", "StoppingRule", "ratio_of", "run_interleaved", "run_parts_interleaved", "should_stop", "timed"]

Contender = Callable[[], float]
"""Does its work once and returns the value to compare, usually its seconds."""

WorkInParts = Callable[[], Iterator[bool]]
"""Does its work once and yields after each part whether that part is timed."""

Rest = Callable[[], object]
"""Waits until work left over from the previous turn is done."""


def _no_rest() -> None:
    pass


@dataclass(frozen=True)
class StoppingRule:
    """When to stop: once every ratio's interval is within `half_width` (relative), or after `max_seconds`.

    There are at least `min_rounds`, regardless of time, and at most `max_rounds`. No further round starts after
    `max_seconds`.
    """

    min_rounds: int = 5
    max_rounds: int = 100
    max_seconds: float = 300.0
    half_width: float = 0.02


@dataclass(frozen=True)
class Ratio:
    """Median over rounds of the ratio within a round, with its 95% bootstrap interval."""

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
    """Return a contender that times one call of `work`."""

    def once() -> float:
        begin = clock()
        work()
        return clock() - begin

    return once


def run_interleaved(
    contenders: Mapping[str, Contender],
    *,
    stopping_rule: StoppingRule,
    seed: int = 0,
    warm_up_rounds: int = 1,
    rest: Rest = _no_rest,
    clock: Callable[[], float] = time.monotonic,
) -> dict[str, list[float]]:
    """Run the contenders in interleaved rounds and return the values of each, by round.

    The stopping rule checks the ratio of each contender to the first one. `warm_up_rounds` come first and are not
    counted; neither is the `rest` before each turn.
    """
    order = random.Random(seed)
    return _run_rounds(
        partial(_run_round, contenders, order, rest), stopping_rule, warm_up_rounds=warm_up_rounds, clock=clock
    )


def run_parts_interleaved(
    contenders: Mapping[str, WorkInParts],
    *,
    stopping_rule: StoppingRule,
    seed: int = 0,
    warm_up_rounds: int = 1,
    rest: Rest = _no_rest,
    clock: Callable[[], float] = time.perf_counter,
) -> dict[str, list[float]]:
    """Like `run_interleaved`, but alternate part by part; return the seconds of the timed parts.

    Other load on a machine changes within seconds. Adjacent parts see the same load, while whole contenders of some
    seconds do not, so fewer rounds suffice.
    """
    order = random.Random(seed)
    run_round = partial(_run_round_in_parts, contenders, order, rest, clock)
    return _run_rounds(run_round, stopping_rule, warm_up_rounds=warm_up_rounds, clock=clock)


def _run_rounds(
    run_round: Callable[[], dict[str, float]],
    stopping_rule: StoppingRule,
    *,
    warm_up_rounds: int,
    clock: Callable[[], float],
) -> dict[str, list[float]]:
    for _ in range(warm_up_rounds):
        run_round()
    samples: dict[str, list[float]] = {}
    start = clock()
    while not samples or not should_stop(samples, stopping_rule, spent=clock() - start):
        for name, seconds in run_round().items():
            samples.setdefault(name, []).append(seconds)
    return samples


def _run_round(contenders: Mapping[str, Contender], order: random.Random, rest: Rest) -> dict[str, float]:
    seconds = {}
    for name in _shuffled(contenders, order):
        rest()
        seconds[name] = contenders[name]()
    return {name: seconds[name] for name in contenders}  # callers unpack the values in this order


def _run_round_in_parts(
    contenders: Mapping[str, WorkInParts], order: random.Random, rest: Rest, clock: Callable[[], float]
) -> dict[str, float]:
    spent = dict.fromkeys(contenders, 0.0)
    active = {name: begin() for name, begin in contenders.items()}
    while active:
        for name in _shuffled(active, order):
            rest()
            begin = clock()
            is_timed = next(active[name], None)
            if is_timed is None:
                del active[name]
            elif is_timed:
                spent[name] += clock() - begin
    return spent


def _shuffled(names: Iterable[str], order: random.Random) -> list[str]:
    shuffled = list(names)
    order.shuffle(shuffled)
    return shuffled


def should_stop(samples: Mapping[str, Sequence[float]], stopping_rule: StoppingRule, *, spent: float) -> bool:
    """Return whether the values `samples`, from rounds that took `spent` seconds in total, satisfy the rule."""
    first, *others = samples.values()
    if len(first) < stopping_rule.min_rounds:
        return False
    if len(first) >= stopping_rule.max_rounds or spent >= stopping_rule.max_seconds:
        return True
    return all(ratio_of(other, first).half_width <= stopping_rule.half_width for other in others or [first])


def ratio_of(numerator: Sequence[float], denominator: Sequence[float]) -> Ratio:
    """Return the ratio of two series that were measured in the same rounds."""
    ratios = [one / other for one, other in zip(numerator, denominator, strict=True)]
    low, high = _interval_of_median(ratios)
    return Ratio(median(ratios), low, high, len(ratios))


def _interval_of_median(values: Sequence[float], *, resamples: int = 2000) -> tuple[float, float]:
    """Return the 95% percentile bootstrap interval (Efron, *Annals of Statistics* 7, 1979); deterministic."""
    resampled = np.random.default_rng(0).choice(np.asarray(values), (resamples, len(values)))
    low, high = np.quantile(np.median(resampled, axis=1), [0.025, 0.975])
    return float(low), float(high)

"""Paired measurement where the truth is known: simulated rounds of simulated processes, as many as a minute has.

Who wants another noise adds a function to `NOISES` or `OFFSETS`: each draws values of mean 0 and standard deviation 1.
"""

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from runmanager.results.compare.metric import THROUGHPUT
from runmanager.results.compare.verdict import DIFFERENT, verdict
from runmanager.results.stats.descriptive import Estimate
from runmanager.results.stats.paired_speedup import is_narrow, paired_speedup

__all__ = ["NOISES", "OFFSETS", "Machine", "Share", "coverage", "power", "simulated_table"]

Floats = npt.NDArray[np.float64]
Generator = np.random.Generator

_ROUND_NOISE = 0.02
_HALF_WIDTH = 0.01  # the default of measure.half_width
_DRIFT = 0.01
# Of a minute: a round takes 0.22 s, the restart of a small model with its warm-up 1.5 s.
_ROUNDS, _PAIRS, _ROUNDS_WITHOUT_RESTARTS = 10, 16, 270


def independent(generator: Generator, count: int) -> Floats:
    return generator.normal(size=count)


def half_like_before(generator: Generator, count: int) -> Floats:
    return _autoregressive(generator, count, 0.5)


def mostly_like_before(generator: Generator, count: int) -> Floats:
    return _autoregressive(generator, count, 0.9)


def with_outliers(generator: Generator, count: int) -> Floats:
    return generator.standard_t(3, count) / math.sqrt(3)


def two_modes(generator: Generator, count: int) -> Floats:
    """A fifth of the processes are slow."""
    return np.where(generator.random(count) < 0.2, 2.0, -0.5)


def _autoregressive(generator: Generator, count: int, share: float) -> Floats:
    values = generator.normal(size=count)
    for at in range(1, count):
        values[at] = share * values[at - 1] + math.sqrt(1 - share**2) * values[at]
    return values


NOISES: dict[str, Callable[[Generator, int], Floats]] = {
    "independent": independent,
    "AR(1) 0.5": half_like_before,
    "AR(1) 0.9": mostly_like_before,
    "t3": with_outliers,
}
"""How the log ratios of a session's rounds vary."""

OFFSETS: dict[str, Callable[[Generator, int], Floats]] = {"normal": independent, "two modes": two_modes}
"""How the speeds of processes of equal settings vary."""


@dataclass(frozen=True)
class Machine:
    """What is simulated: `offset` is the standard deviation of one process's speed, and a pair has two of them."""

    noise: str
    offset: float
    kind: str = "normal"
    most_pairs: int = _PAIRS
    truth: float = 1.0

    def session(self, generator: Generator, rounds: int = _ROUNDS) -> list[float]:
        """The log ratios of the rounds of a fresh pair of processes."""
        first, second = self.offset * OFFSETS[self.kind](generator, 2)
        values = math.log(self.truth) + second - first + _ROUND_NOISE * NOISES[self.noise](generator, rounds)
        return [float(value) for value in values]


@dataclass(frozen=True)
class Share:
    """Of how many trials something held, before and now."""

    before: float
    now: float


def measured(machine: Machine, generator: Generator) -> list[list[float]]:
    """The sessions of a measurement that stops as the driver does."""
    sessions: list[list[float]] = []
    while len(sessions) < machine.most_pairs and not is_narrow(sessions, _HALF_WIDTH):
        sessions.append(machine.session(generator))
    return sessions


def coverage(machine: Machine, *, trials: int, seed: int) -> Share:
    """How often the 95% interval has the truth in it."""
    generator = np.random.default_rng(seed)
    now = (paired_speedup(measured(machine, generator)) for _ in range(trials))
    few = max(1, trials // 5)  # a signed-rank interval of hundreds of rounds takes its time
    before = (_single_pair(machine, generator) for _ in range(few))
    return Share(_covering(before, machine.truth), _covering(now, machine.truth))


def _covering(estimates: Iterable[Estimate | None], truth: float) -> float:
    return _mean([each is not None and each.low <= truth <= each.high for each in estimates])


def power(machine: Machine, *, trials: int, seed: int, most_spread: float = math.inf) -> float:
    """How often a difference is said, of the trials in which the measured spread of pairs is at most so much."""
    generator = np.random.default_rng(seed)
    found = []
    for _ in range(trials):
        estimate = paired_speedup(measured(machine, generator))
        assert estimate is not None and estimate.spread is not None
        if estimate.spread <= most_spread:
            found.append(verdict(THROUGHPUT, estimate.interval, tolerance=_DRIFT, margin=None) in DIFFERENT)
    return _mean(found)


def _single_pair(machine: Machine, generator: Generator) -> Estimate:
    """How it was before: one pair of processes, the signed-rank interval of its rounds (Hodges and Lehmann 1963)."""
    rounds = np.array(machine.session(generator, _ROUNDS_WITHOUT_RESTARTS))
    count = _ROUNDS
    while True:
        low, value, high = _signed_rank(rounds[:count])
        if high - low <= 2 * math.log1p(_HALF_WIDTH) or count >= len(rounds):
            return Estimate(math.exp(value), math.exp(low), math.exp(high))
        count = min(2 * count, len(rounds))


def _signed_rank(values: Floats) -> tuple[float, float, float]:
    count = len(values)
    means = np.sort(np.add.outer(values, values)[np.triu_indices(count)] / 2)
    middle, deviation = count * (count + 1) / 4, math.sqrt(count * (count + 1) * (2 * count + 1) / 24)
    rank = max(1, math.floor(middle - 1.959964 * deviation))
    return float(means[rank - 1]), float(np.median(means)), float(means[len(means) - rank])


def _mean(values: Sequence[bool]) -> float:
    return sum(values) / len(values) if values else math.nan


def simulated_table(*, trials: int, seed: int) -> str:
    """Every figure of the simulation as a table in Markdown."""
    lines = [
        "| simulated: equal sides, rounds' noise 2% | before | now | wanted |",
        "| --- | ---: | ---: | --- |",
    ]
    cells = [Machine(noise, offset) for noise in NOISES for offset in (0.005, 0.01, 0.02)]
    cells += [Machine("independent", 0.02, kind="two modes")]
    cells += [Machine("independent", 0.02, most_pairs=pairs) for pairs in (1, 2, 4)]
    for at, cell in enumerate(cells):
        share = coverage(cell, trials=trials, seed=seed + at)
        pairs = "1 pair" if cell.most_pairs == 1 else f"{cell.most_pairs} pairs"
        lines.append(
            f"| covers the truth: {cell.noise}, processes {cell.offset:.1%} apart ({cell.kind}), {pairs} at most "
            f"| {share.before:.1%} | {share.now:.1%} | at least 92% |"
        )
    known = power(Machine("independent", 0.003, truth=1.03), trials=trials, seed=seed, most_spread=0.005)
    lines.append(f"| a true 3% is found, measured spread at most 0.5% | | {known:.1%} | at least 90% |")
    apart = power(Machine("independent", 0.02), trials=trials, seed=seed)
    lines.append(f"| equal sides, processes 2.0% apart: `faster` or `slower` | | {apart:.1%} | at most 6% |")
    return "\n".join([*lines, ""])

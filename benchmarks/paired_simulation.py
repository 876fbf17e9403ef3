"""Simulation of paired measurement with a known ratio: as many rounds and processes as fit into a minute.

To simulate other noise, add a function to `NOISES` or `OFFSETS` that draws values of mean 0 and standard deviation 1.
"""

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

import numpy as np

from benchmarks.noise_models import Floats, autoregressive
from runmanager.results.compare.verdict import DIFFERENT, verdict
from runmanager.results.metrics.metric import THROUGHPUT
from runmanager.results.stats.descriptive import Estimate
from runmanager.results.stats.paired_speedup import is_narrow, paired_speedup

__all__ = ["NOISES", "OFFSETS", "Machine", "Share", "coverage", "power", "simulated_table"]

Generator = np.random.Generator

_ROUND_NOISE = 0.02
_HALF_WIDTH = 0.01  # the default of measure.half_width
_DRIFT = 0.01
# Per minute: a round takes 0.22 s; restarting a small model and warming it up takes 1.5 s.
_NUM_ROUNDS, _NUM_PAIRS, _ROUNDS_WITHOUT_RESTARTS = 10, 16, 270


def independent(generator: Generator, count: int) -> Floats:
    return generator.normal(size=count)


def moderately_autocorrelated(generator: Generator, count: int) -> Floats:
    return autoregressive(generator.normal(size=count), 0.5)


def strongly_autocorrelated(generator: Generator, count: int) -> Floats:
    return autoregressive(generator.normal(size=count), 0.9)


def with_outliers(generator: Generator, count: int) -> Floats:
    return generator.standard_t(3, count) / math.sqrt(3)


def two_modes(generator: Generator, count: int) -> Floats:
    """Draw processes of which a fifth are slow."""
    return np.where(generator.random(count) < 0.2, 2.0, -0.5)


NOISES: dict[str, Callable[[Generator, int], Floats]] = {
    "independent": independent,
    "AR(1) 0.5": moderately_autocorrelated,
    "AR(1) 0.9": strongly_autocorrelated,
    "t3": with_outliers,
}
"""Noise of the log ratios within a session."""

OFFSETS: dict[str, Callable[[Generator, int], Floats]] = {"normal": independent, "two modes": two_modes}
"""Offsets between processes with equal settings."""


@dataclass(frozen=True)
class Machine:
    """Simulated machine; `offset` is the standard deviation of the log speed of each process of a pair."""

    noise: str
    offset: float
    kind: str = "normal"
    max_pairs: int = _NUM_PAIRS
    truth: float = 1.0

    def session(self, generator: Generator, rounds: int = _NUM_ROUNDS) -> list[float]:
        """Return the log ratios of the rounds of a new pair of processes."""
        first, second = self.offset * OFFSETS[self.kind](generator, 2)
        values = math.log(self.truth) + second - first + _ROUND_NOISE * NOISES[self.noise](generator, rounds)
        return [float(value) for value in values]


@dataclass(frozen=True)
class Share:
    """Share of trials with a property, before and now."""

    before: float
    now: float


def simulate_sessions(machine: Machine, generator: Generator) -> list[list[float]]:
    """Return the sessions of a measurement with the stopping rule of the driver."""
    sessions: list[list[float]] = []
    while len(sessions) < machine.max_pairs and not is_narrow(sessions, _HALF_WIDTH):
        sessions.append(machine.session(generator))
    return sessions


def coverage(machine: Machine, *, trials: int, seed: int) -> Share:
    """Return how often the 95% interval covers the truth."""
    generator = np.random.default_rng(seed)
    now = (paired_speedup(simulate_sessions(machine, generator)) for _ in range(trials))
    few = max(1, trials // 5)  # a signed-rank interval of hundreds of rounds is slow
    before = (_single_pair(machine, generator) for _ in range(few))
    return Share(_coverage_of(before, machine.truth), _coverage_of(now, machine.truth))


def _coverage_of(estimates: Iterable[Estimate | None], truth: float) -> float:
    return _mean([each is not None and each.low <= truth <= each.high for each in estimates])


def power(machine: Machine, *, trials: int, seed: int, max_spread: float = math.inf) -> float:
    """Return how often a difference is reported, among trials with a spread of pairs of at most `max_spread`."""
    generator = np.random.default_rng(seed)
    found = []
    for _ in range(trials):
        estimate = paired_speedup(simulate_sessions(machine, generator))
        assert estimate is not None and estimate.spread is not None
        if estimate.spread <= max_spread:
            found.append(verdict(THROUGHPUT, estimate.interval, tolerance=_DRIFT, margin=None) in DIFFERENT)
    return _mean(found)


def _single_pair(machine: Machine, generator: Generator) -> Estimate:
    """Return the earlier estimate: one pair of processes and a signed-rank interval (Hodges and Lehmann 1963)."""
    rounds = np.array(machine.session(generator, _ROUNDS_WITHOUT_RESTARTS))
    count = _NUM_ROUNDS
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
    """Run the simulation and format its figures as a Markdown table."""
    lines = [
        "| simulated: equal sides, rounds' noise 2% | before | now | wanted |",
        "| --- | ---: | ---: | --- |",
    ]
    cells = [Machine(noise, offset) for noise in NOISES for offset in (0.005, 0.01, 0.02)]
    cells += [Machine("independent", 0.02, kind="two modes")]
    cells += [Machine("independent", 0.02, max_pairs=pairs) for pairs in (1, 2, 4)]
    for index, cell in enumerate(cells):
        share = coverage(cell, trials=trials, seed=seed + index)
        pairs = "1 pair" if cell.max_pairs == 1 else f"{cell.max_pairs} pairs"
        lines.append(
            f"| covers the truth: {cell.noise}, processes {cell.offset:.1%} apart ({cell.kind}), {pairs} at most "
            f"| {share.before:.1%} | {share.now:.1%} | at least 92% |"
        )
    known = power(Machine("independent", 0.003, truth=1.03), trials=trials, seed=seed, max_spread=0.005)
    lines.append(f"| a true 3% is found, measured spread at most 0.5% | | {known:.1%} | at least 90% |")
    apart = power(Machine("independent", 0.02), trials=trials, seed=seed)
    lines.append(f"| equal sides, processes 2.0% apart: `faster` or `slower` | | {apart:.1%} | at most 6% |")
    return "\n".join([*lines, ""])

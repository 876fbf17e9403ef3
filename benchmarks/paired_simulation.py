"""Simulation of paired measurement with a known ratio: as many rounds and processes as fit into a minute.

To simulate other noise, add a function to `NOISES` or `OFFSETS` that draws values of mean 0 and standard deviation 1.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from benchmarks.noise_models import Floats, autoregressive
from runmanager.results.compare.verdict import DIFFERENT, verdict
from runmanager.results.metrics.metric import THROUGHPUT
from runmanager.results.stats.paired_speedup import is_narrow, paired_speedup

__all__ = ["NOISES", "OFFSETS", "Machine", "coverage", "power", "simulated_table"]

Generator = np.random.Generator

_ROUND_NOISE = 0.02
_HALF_WIDTH = 0.01  # the default of measure.half_width
_DRIFT = 0.01
# Per minute: a round takes 0.22 s; restarting a small model and warming it up takes 1.5 s.
_NUM_ROUNDS, _NUM_PAIRS = 10, 16


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


def simulate_sessions(machine: Machine, generator: Generator) -> list[list[float]]:
    """Return the sessions of a measurement with the stopping rule of the driver."""
    sessions: list[list[float]] = []
    while len(sessions) < machine.max_pairs and not is_narrow(sessions, _HALF_WIDTH):
        sessions.append(machine.session(generator))
    return sessions


def coverage(machine: Machine, *, trials: int, seed: int) -> float:
    """Return how often the 95% interval covers the truth."""
    generator = np.random.default_rng(seed)
    found = (paired_speedup(simulate_sessions(machine, generator)) for _ in range(trials))
    return _mean([each is not None and each.low <= machine.truth <= each.high for each in found])


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


def _mean(values: Sequence[bool]) -> float:
    return sum(values) / len(values) if values else math.nan


def simulated_table(*, trials: int, seed: int) -> str:
    """Run the simulation and format its figures as a Markdown table."""
    offsets = (0.005, 0.01, 0.02)
    by_offset = ["| covers, 16 pairs | 0.5% apart | 1.0% apart | 2.0% apart |", "| --- | ---: | ---: | ---: |"]
    for at, noise in enumerate(NOISES):
        seeds = [seed + at * len(offsets) + place for place in range(len(offsets))]
        shares = [coverage(Machine(noise, each), trials=trials, seed=s) for each, s in zip(offsets, seeds, strict=True)]
        by_offset.append(f"| {noise} | {' | '.join(f'{share:.1%}' for share in shares)} |")
    lines = [
        "| simulated | found | wanted |",
        "| --- | ---: | --- |",
    ]
    cells = [Machine("independent", 0.02, kind="two modes")]
    cells += [Machine("independent", 0.02, max_pairs=pairs) for pairs in (1, 2, 4)]
    rows = []
    for index, cell in enumerate(cells, start=len(NOISES) * len(offsets)):
        pairs = "1 pair" if cell.max_pairs == 1 else f"{cell.max_pairs} pairs"
        what = f"covers: {cell.noise}, {cell.offset:.1%} apart ({cell.kind}), {pairs}"
        rows.append((what, coverage(cell, trials=trials, seed=seed + index), "at least 92%"))
    known = power(Machine("independent", 0.003, truth=1.03), trials=trials, seed=seed, max_spread=0.005)
    rows.append(("a true 3% is found, measured spread at most 0.5%", known, "at least 90%"))
    apart = power(Machine("independent", 0.02), trials=trials, seed=seed)
    rows.append(("equal sides, 2.0% apart: `faster` or `slower`", apart, "at most 6%"))
    return "\n".join(
        [*by_offset, "", *lines, *(f"| {what} | {found:.1%} | {wanted} |" for what, found, wanted in rows), ""]
    )

"""Simulated curves of two sides with known crossings, and the share that is found."""

from collections.abc import Callable, Iterator, Sequence
from statistics import mean

import numpy as np

from benchmarks.noise_models import Floats, normal
from benchmarks.simulated_runs import Line
from runmanager.results.compare.verdict import verdict
from runmanager.results.findings.crossover import Crossing, CurvePoint, find_crossings
from runmanager.results.metrics.metric import THROUGHPUT
from runmanager.results.stats.effects import make_contrast, simultaneous_estimates

__all__ = ["crossing_lines"]

FACTOR = 4.0
RUNS = 5
DEVIATION = 0.03
POINTS = range(2, 10)
TWO = (-0.5, 0.5, 0.5, 0.5, -0.45)

_AHEAD = {"faster": 1, "slower": -1}


def crossings_of(xs: Sequence[float], truth: Sequence[float], generator: np.random.Generator) -> list[Crossing]:
    """Return the crossings found in curves with these true log ratios, from five runs a side."""
    noise = normal(DEVIATION)(generator, (len(xs), 2, RUNS))
    noise[:, 1] += np.array(truth)[:, None]
    pairs = np.exp(noise)[..., None].tolist()
    found = simultaneous_estimates([make_contrast(*pair, is_ratio=True) for pair in pairs])
    verdicts = [verdict(THROUGHPUT, each.interval, tolerance=0.0, margin=None) for each in found]
    points = [
        CurvePoint(x, float(np.log(each.value)), _AHEAD.get(each_verdict, 0))
        for x, each, each_verdict in zip(xs, found, verdicts, strict=True)
    ]
    return find_crossings(points)


def crossing_lines(trials: int) -> Iterator[Line]:
    """Simulate curves that cross never, once and twice, with 5 runs a side and 3% between runs."""
    generator = np.random.default_rng(0)
    for what, level in (("equal curves", 0.0), ("curves a constant 2% apart", 0.02)):
        shares = [
            mean(bool(crossings_of(_xs(count), [level] * count, generator)) for _ in range(trials)) for count in POINTS
        ]
        share = f"{mean(shares):.1%} ({max(shares):.1%})"
        yield f"{what}, 2 to 9 points: a crossing is reported", [share], "at most 5%"
    found = mean(_are_two(crossings_of(_xs(len(TWO)), TWO, generator)) for _ in range(trials))
    yield "two crossings are both reported, each in its place", [f"{found:.1%}"], "at least 90%"
    for what, curve in (("power laws", _power_laws), ("latency and work", _latency_and_work)):
        covered = mean(_covers(curve, generator) for _ in range(trials))
        yield f"one crossing is reported and its interval covers it: {what}", [f"{covered:.1%}"], "at least 93%"


def _xs(count: int) -> list[float]:
    return [FACTOR**power for power in range(count)]


def _are_two(found: Sequence[Crossing]) -> bool:
    intervals = [(each.low, each.high, each.candidate_leads) for each in found]
    return intervals == [(1, FACTOR, True), (FACTOR**3, FACTOR**4, False)]


def _power_laws(x: Floats) -> Floats:
    """Return the log ratio of times that grow as x^0.8 and x^0.4, equal at 1."""
    return 0.4 * np.log(x)


def _latency_and_work(x: Floats) -> Floats:
    """Return the log ratio of times with a constant and a linear part, equal at 1; the candidate grows more slowly."""
    ratio: Floats = np.log((1 + x) / (1.97 + 0.03 * x))
    return ratio


def _covers(curve: Callable[[Floats], Floats], generator: np.random.Generator) -> bool:
    """Return whether seven random points around 1 give one crossing whose interval covers 1."""
    xs = FACTOR ** (np.arange(-3.0, 4.0) + generator.uniform(-0.5, 0.5))
    found = crossings_of(xs.tolist(), curve(xs).tolist(), generator)
    return len(found) == 1 and found[0].low <= 1 <= found[0].high and found[0].candidate_leads

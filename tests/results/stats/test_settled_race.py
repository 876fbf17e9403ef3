"""A race that ends as soon as its gain is known: the looks that end it are paid for."""

import math
import random

from runmanager.race.heat import is_settled, race_speedup

TRUTH = 1.5


def coverage(rows: int | None, *, trials: int = 500) -> float:
    """Return how often the interval covers the truth, where processes differ by 3% and eight sessions are the most."""
    draw, covered = random.Random(1), 0
    for _ in range(trials):
        sessions: list[list[dict[int, float]]] = []
        while len(sessions) < 8 and not is_settled(race_speedup(sessions, 0, 1, rows=rows)):
            gap = math.log(TRUTH) + draw.gauss(0.0, 0.03 * math.sqrt(2))
            sessions.append([{0: 1.0, 1: math.exp(gap + draw.gauss(0.0, 0.02))} for _ in range(12)])
        found = race_speedup(sessions, 0, 1, rows=rows)
        covered += found is not None and found.low <= TRUTH <= found.high
    return covered / trials


def test_the_interval_of_a_race_that_ends_when_it_is_settled_covers_the_truth() -> None:
    assert coverage(1) >= 0.94 > coverage(None)

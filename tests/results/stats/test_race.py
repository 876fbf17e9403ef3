"""Races: a loser is found soon, equals are rarely dropped, however often the race is looked at."""

import math
import random

from runmanager.results.stats.race import beaten, race_speedup

LOOKS = (3, 12)
SESSIONS = 2


def simulated_race(speeds: dict[int, float], *, seed: int, spread: float = 0.02, noise: float = 0.02) -> set[int]:
    """Return who is dropped from a race of processes that differ, in rounds with noise."""
    draw = random.Random(seed)
    running, sessions = set(speeds), []
    for _ in range(SESSIONS):
        offsets = {key: draw.gauss(0.0, spread / math.sqrt(2)) for key in speeds}
        rounds: list[dict[int, float]] = []
        sessions.append(rounds)
        for number in range(1, LOOKS[-1] + 1):
            rounds.append({key: speeds[key] * math.exp(offsets[key] + draw.gauss(0.0, noise)) for key in running})
            if len(sessions) == 1 and number in LOOKS:
                running -= beaten(sessions, running, looks=len(LOOKS))
            if len(running) < 2:
                return set(speeds) - running
    return set(speeds) - running


def test_losers_are_dropped_and_the_fastest_stays() -> None:
    for seed in range(20):
        dropped = simulated_race({0: 1.0, 1: 2.0, 2: 0.4, 3: 1.95}, seed=seed)
        assert {0, 2} <= dropped and not {1, 3} <= dropped


def test_of_equals_hardly_one_is_dropped() -> None:
    num_wrong = sum(bool(simulated_race(dict.fromkeys(range(5), 1.0), seed=seed)) for seed in range(200))
    assert num_wrong <= 10  # 5%


def test_too_few_rounds_give_no_interval() -> None:
    assert race_speedup([[{0: 1.0, 1: 2.0}] * 2], 0, 1) is None
    assert race_speedup([[{0: 1.0, 2: 2.0}] * 9], 0, 1) is None
    found = race_speedup([[{0: 1.0, 1: 2.0}] * 3], 0, 1)
    assert found is not None and math.isclose(found.value, 2.0) and 1.5 < found.low < 2.0 < found.high < 2.5


def test_each_whole_run_counts_by_itself() -> None:
    one = race_speedup([[{0: 1.0, 1: 2.0}]], 0, 1, whole_runs=True)
    four = race_speedup([[{0: 1.0, 1: 2.0}] * 4], 0, 1, whole_runs=True)
    assert one is not None and four is not None and math.isclose(one.value, 2.0)
    assert one.low < four.low < 2.0 < four.high < one.high
    assert race_speedup([[]], 0, 1, whole_runs=True) is None

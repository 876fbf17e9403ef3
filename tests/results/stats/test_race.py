"""Races: a loser is found soon, equals are rarely dropped, however often the race is looked at."""

import math
import random

import pytest

from runmanager.race.heat import LEAST_ROUNDS, beaten, fastest_of, is_settled, race_speedup
from runmanager.results.stats.descriptive import Estimate
from runmanager.results.stats.noise_model import critical_value
from runmanager.results.stats.paired_speedup import MIN_ROUNDS, paired_speedup

LOOKS = (3, 12)
LOOKS_AT_RUNS = (3, 4, 6, 8, 12)
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


def simulated_race_of_runs(draw: random.Random, *, contenders: int, rounds: int, noise: float, kept: float) -> bool:
    """Whether a race of equal whole runs claims a difference; each run keeps a share of the last one's deviation."""
    running, found = set(range(contenders)), list[dict[int, float]]()
    now = draw.gauss(0.0, noise)
    for number in range(1, rounds + 1):
        found.append({})
        for key in draw.sample(sorted(running), len(running)):
            now = kept * now + math.sqrt(1 - kept**2) * draw.gauss(0.0, noise)
            found[-1][key] = math.exp(now)
        if number in LOOKS_AT_RUNS and beaten([found], running, looks=len(LOOKS_AT_RUNS), whole_runs=True):
            return True
    last = [race_speedup([found], 0, key, rows=contenders - 1, whole_runs=True) for key in range(1, contenders)]
    return any(each is not None and not each.low <= 1 <= each.high for each in last)


@pytest.mark.parametrize("contenders", [2, 4])
@pytest.mark.parametrize("rounds", [2, 3, 6])
def test_of_equal_runs_on_a_machine_whose_load_drifts_hardly_one_is_slower(rounds: int, contenders: int) -> None:
    draw, count = random.Random(0), 250
    for noise in (0.1, 0.4, 0.8):
        for kept in (0.0, 0.5, 0.9):
            num_wrong = sum(
                simulated_race_of_runs(draw, contenders=contenders, rounds=rounds, noise=noise, kept=kept)
                for _ in range(count)
            )
            assert num_wrong <= 20, (noise, kept)  # at 5% each: more once in 70 races


def test_an_interval_that_no_float_can_hold_has_ends_all_the_same() -> None:
    wild = [{0: 1.0, 1: 10.0 ** (100 * (number % 3))} for number in range(4)]
    found = race_speedup([wild], 0, 1, rows=30, whole_runs=True)
    assert found is not None and found.low < 1 < found.high
    found = race_speedup([wild[:3], wild[1:]], 0, 1, rows=30)
    assert found is not None and found.low < 1 < found.high


def test_a_race_whose_contenders_have_all_failed_has_no_losers() -> None:
    assert beaten([[{0: 1.0, 1: 2.0}] * 3], set(), looks=2) == frozenset()


def test_too_few_rounds_give_no_interval() -> None:
    assert race_speedup([[{0: 1.0, 1: 2.0}] * 2], 0, 1) is None
    assert race_speedup([[{0: 1.0, 2: 2.0}] * 9], 0, 1) is None
    found = race_speedup([[{0: 1.0, 1: 2.0}] * 3], 0, 1)
    assert found is not None and math.isclose(found.value, 2.0) and 1.5 < found.low < 2.0 < found.high < 2.5


def test_each_whole_run_counts_by_itself() -> None:
    def interval(count: int) -> Estimate:
        found = race_speedup([[{0: 1.0, 1: 2.0 + 0.1 * (at % 2)} for at in range(count)]], 0, 1, whole_runs=True)
        assert found is not None
        return found

    four, eight = interval(4), interval(8)
    assert math.isclose(four.value, eight.value) and four.low < eight.low < eight.high < four.high
    # Two runs of each may agree by chance: of four equal contenders one in five races would claim a difference on a
    # machine whose runs differ by 40%.
    assert race_speedup([[{0: 1.0, 1: 2.0}] * 2], 0, 1, whole_runs=True) is None


def test_a_race_that_was_looked_at_has_half_of_the_error_left_even_for_one_value() -> None:
    """The looks may drop a value, and so may the end call it slower: together at most 5%."""
    for whole_runs in (False, True):
        sessions = [[{0: 1.0, 1: 2.0 + 0.1 * (number % 2)} for number in range(12)]] * 2
        last = race_speedup(sessions, 0, 1, whole_runs=whole_runs)
        looked_at = race_speedup(sessions, 0, 1, rows=1, whole_runs=whole_runs)
        assert last is not None and looked_at is not None
        assert looked_at.low < last.low < last.high < looked_at.high


def test_the_interval_at_the_end_has_half_of_the_error_and_prefers_longer_sessions() -> None:
    long, short = [{0: 1.0, 1: 2.0}] * MIN_ROUNDS, [{0: 1.0, 1: 3.0}] * LEAST_ROUNDS
    found = race_speedup([long, short], 0, 1, rows=3)
    assert found == paired_speedup([[math.log(2.0)] * MIN_ROUNDS], rows=6)
    assert race_speedup([long], 0, 1) == paired_speedup([[math.log(2.0)] * MIN_ROUNDS])
    assert race_speedup([short, short[:-1]], 0, 1) == paired_speedup([[math.log(3.0)] * LEAST_ROUNDS])


@pytest.mark.parametrize("spread", [0.01, 0.5])
def test_interval_of_whole_runs_is_students(spread: float) -> None:
    """Of three runs each, whose log ratios are `spread` below their mean, at it, and above it; at half of the error."""
    sessions = [[{0: 1.0, 1: 2.0 * math.exp(spread * step)}] for step in (-1, 0, 1)]
    found = race_speedup(sessions, 0, 1, rows=2, whole_runs=True)
    assert found is not None and math.isclose(found.value, 2.0)
    assert found.dof == 2 and math.isclose(found.error, spread / math.sqrt(3))
    reach = critical_value(2.0, 4) * spread / math.sqrt(3)
    assert math.isclose(math.log(found.high / found.value), reach)
    assert math.isclose(math.log(found.value / found.low), reach)


def test_the_fastest_is_by_the_estimates_that_are_shown() -> None:
    sessions = [[{0: 1.0, 1: 2.0, 2: 1.5}] * 3 + [{0: 9.0, 2: 1.0}] * 3, [{0: 1.0, 1: 2.5}] * 3]
    assert fastest_of(sessions, {0, 1}) == fastest_of(sessions, {0, 1, 2}) == 1
    assert fastest_of(sessions, {0, 2}) == 0
    assert fastest_of([], {3, 1}) == 1
    # A round in which other work held up one of them is trimmed from its estimate, and may not decide the order.
    disturbed = [[{0: 1.0, 1: 1.5, 2: 1.2}] * 9 + [{0: 1.0, 1: 0.01, 2: 1.2}]]
    found = {key: race_speedup(disturbed, 0, key) for key in (1, 2)}
    assert found[1] is not None and found[2] is not None and found[1].value > found[2].value
    assert fastest_of(disturbed, {0, 1, 2}) == 1
    assert fastest_of(disturbed, {0, 1, 2}, whole_runs=True) == 2  # of whole runs each counts


def test_a_speedup_is_settled_within_a_hundredth_or_a_tenth_of_itself() -> None:
    assert not is_settled(None)
    for value, reach in ((1.0, 0.01), (1.05, 0.01), (0.5, 0.1 * math.log(2)), (4.0, 0.1 * math.log(4))):
        assert is_settled(Estimate(value, 0.0, value * math.exp(0.99 * reach)))
        assert not is_settled(Estimate(value, 0.0, value * math.exp(1.01 * reach)))

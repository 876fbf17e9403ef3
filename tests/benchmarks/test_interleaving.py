"""Interleaved timing on a simulated clock with sides of known ratio."""

import random
from collections.abc import Callable, Iterator

import pytest

from benchmarks.interleaving import StoppingRule, ratio_of, run_interleaved, run_parts_interleaved, timed


class Machine:
    """A clock that advances only by work, with a drift that affects all work at one time alike."""

    def __init__(self, seed: int, *, period: float = 600.0) -> None:
        self.now = 0.0
        self._period = period
        self.order: list[str] = []
        self._noise = random.Random(seed)

    def clock(self) -> float:
        return self.now

    def work(self, name: str, seconds: float, noise: float = 0.03) -> Callable[[], float]:
        def once() -> None:
            drift = 1 + 0.4 * (self.now % self._period > self._period / 2)  # slower in every second half period
            self.now += seconds * drift * self._noise.lognormvariate(0, noise)
            self.order.append(name)

        return timed(once, clock=self.clock)


def measured(machine: Machine, stopping_rule: StoppingRule, *, seed: int = 0) -> dict[str, list[float]]:
    sides = {"ours": machine.work("ours", 2.0), "other": machine.work("other", 7.0)}
    return run_interleaved(sides, stopping_rule=stopping_rule, seed=seed, clock=machine.clock)


def test_interval_covers_the_true_ratio_on_a_drifting_machine() -> None:
    stopping_rule = StoppingRule(min_rounds=15, max_rounds=15)
    num_covering = 0
    for seed in range(60):
        seconds = measured(Machine(seed), stopping_rule, seed=seed)
        ratio = ratio_of(seconds["other"], seconds["ours"])
        assert 3.2 < ratio.value < 3.8
        num_covering += ratio.low <= 3.5 <= ratio.high
    assert num_covering >= 52


def test_each_round_has_every_side_once_in_an_order_given_by_the_seed() -> None:
    orders = []
    for seed in (1, 1, 2):
        machine = Machine(0)
        seconds = measured(machine, StoppingRule(min_rounds=8, max_rounds=8), seed=seed)
        assert [len(each) for each in seconds.values()] == [8, 8]
        rounds = [tuple(machine.order[at : at + 2]) for at in range(0, len(machine.order), 2)]
        assert len(rounds) == 1 + 8  # the first one is warm-up
        assert all(sorted(each) == ["other", "ours"] for each in rounds)
        assert len(set(rounds)) == 2
        orders.append(rounds)
    assert orders[0] == orders[1] != orders[2]


def test_results_keep_the_order_of_the_sides() -> None:
    for seed in range(8):  # for any order in the first round
        assert [*measured(Machine(0), StoppingRule(min_rounds=1, max_rounds=1), seed=seed)] == ["ours", "other"]


def test_measurement_stops_when_the_interval_is_narrow_or_the_time_is_up() -> None:
    exact = Machine(0)
    sides = {"one": exact.work("one", 1.0, noise=0), "two": exact.work("two", 2.0, noise=0)}
    assert len(run_interleaved(sides, stopping_rule=StoppingRule(min_rounds=5), clock=exact.clock)["one"]) == 5
    noisy = StoppingRule(min_rounds=5, max_rounds=1000, max_seconds=100, half_width=0)
    machine = Machine(0)
    num_rounds = len(measured(machine, noisy)["ours"])
    assert 5 < num_rounds < 20
    assert 100 <= machine.now < 140
    few = StoppingRule(min_rounds=5, max_rounds=1000, max_seconds=0)
    assert len(measured(Machine(0), few)["ours"]) == 5


def test_ratio_is_computed_within_pairs() -> None:
    ratio = ratio_of([2.0, 20.0, 200.0], [1.0, 10.0, 100.0])
    assert (ratio.value, ratio.low, ratio.high, ratio.rounds) == (2.0, 2.0, 2.0, 3)
    with pytest.raises(ValueError, match=r"longer|shorter"):
        ratio_of([1.0], [1.0, 2.0])


def in_parts(machine: Machine, name: str, seconds: float, *, noise: float = 0.03) -> Callable[[], Iterator[bool]]:
    work = machine.work(name, seconds / 20, noise)

    def parts() -> Iterator[bool]:
        machine.now += 1000.0  # setup
        yield False
        for _ in range(20):
            work()
            yield True
        machine.now += 1000.0  # teardown

    return parts


def test_work_in_parts_is_compared_by_its_timed_parts() -> None:
    machine = Machine(0)
    sides = {"ours": in_parts(machine, "ours", 2.0, noise=0), "other": in_parts(machine, "other", 7.0, noise=0)}
    seconds = run_parts_interleaved(sides, stopping_rule=StoppingRule(min_rounds=3, max_rounds=3), clock=machine.clock)
    for ours, other in zip(seconds["ours"], seconds["other"], strict=True):
        assert 2.0 <= ours <= 2.8 and 7.0 <= other <= 9.8
    pairs = [tuple(machine.order[at : at + 2]) for at in range(0, len(machine.order), 2)]
    assert len(pairs) == 4 * 20  # including one warm-up round
    assert set(pairs) == {("ours", "other"), ("other", "ours")}


def test_rest_comes_before_each_turn_and_is_not_counted() -> None:
    machine, rested = Machine(0, period=1e9), []

    def rest() -> None:
        machine.now += 50.0
        rested.append(len(machine.order))

    stopping_rule = StoppingRule(min_rounds=2, max_rounds=2)
    whole = {name: machine.work(name, 2.0, noise=0) for name in ("one", "two")}
    assert run_interleaved(whole, stopping_rule=stopping_rule, rest=rest, clock=machine.clock) == {
        "one": [2.0] * 2,
        "two": [2.0] * 2,
    }
    assert rested == [*range(6)]
    parts = {name: in_parts(machine, name, 2.0, noise=0) for name in ("one", "two")}
    seconds = run_parts_interleaved(parts, stopping_rule=stopping_rule, rest=rest, clock=machine.clock)
    assert seconds == {name: [pytest.approx(2.0)] * 2 for name in parts}
    assert set(range(6, 6 + 3 * 2 * 20)) <= set(rested)


def test_interleaved_parts_share_load_that_changes_within_a_round() -> None:
    def widths(seed: int) -> tuple[float, float]:
        machine, other = Machine(seed, period=11.0), Machine(seed, period=11.0)
        stopping_rule = StoppingRule(min_rounds=10, max_rounds=10)
        whole = measured(machine, stopping_rule, seed=seed)
        sides = {"ours": in_parts(other, "ours", 2.0), "other": in_parts(other, "other", 7.0)}
        parts = run_parts_interleaved(sides, stopping_rule=stopping_rule, seed=seed, clock=other.clock)
        return tuple(ratio_of(each["other"], each["ours"]).half_width for each in (whole, parts))

    found = [widths(seed) for seed in range(10)]
    assert all(parts < whole / 2 for whole, parts in found), found

"""The measuring itself, on a clock that plays sides whose ratio is known."""

import random
from collections.abc import Callable

import pytest

from benchmarks.interleaving import Patience, in_turns, ratio_of, timed


class Machine:
    """A clock that only work moves. It drifts, by the same factor for all that runs at one time."""

    def __init__(self, seed: int) -> None:
        self.now = 0.0
        self.order: list[str] = []
        self._noise = random.Random(seed)

    def clock(self) -> float:
        return self.now

    def work(self, name: str, seconds: float, noise: float = 0.03) -> Callable[[], float]:
        def once() -> None:
            drift = 1 + 0.4 * (self.now % 600 > 300)  # the machine is slower every other while
            self.now += seconds * drift * self._noise.lognormvariate(0, noise)
            self.order.append(name)

        return timed(once, clock=self.clock)


def measured(machine: Machine, patience: Patience, *, seed: int = 0) -> dict[str, list[float]]:
    sides = {"ours": machine.work("ours", 2.0), "other": machine.work("other", 7.0)}
    return in_turns(sides, patience=patience, seed=seed, clock=machine.clock)


def test_the_interval_has_the_true_ratio_in_it_though_the_machine_drifts() -> None:
    patience = Patience(min_rounds=15, max_rounds=15)
    covering = 0
    for seed in range(60):
        seconds = measured(Machine(seed), patience, seed=seed)
        ratio = ratio_of(seconds["other"], seconds["ours"])
        assert 3.2 < ratio.value < 3.8
        covering += ratio.low <= 3.5 <= ratio.high
    assert covering >= 52


def test_each_round_has_every_side_once_in_an_order_that_the_seed_decides() -> None:
    orders = []
    for seed in (1, 1, 2):
        machine = Machine(0)
        seconds = measured(machine, Patience(min_rounds=8, max_rounds=8), seed=seed)
        assert [len(each) for each in seconds.values()] == [8, 8]
        rounds = [tuple(machine.order[at : at + 2]) for at in range(0, len(machine.order), 2)]
        assert len(rounds) == 1 + 8  # the first to warm up
        assert all(sorted(each) == ["other", "ours"] for each in rounds)
        assert len(set(rounds)) == 2
        orders.append(rounds)
    assert orders[0] == orders[1] != orders[2]


def test_it_ends_when_the_interval_is_tight_or_the_time_is_spent() -> None:
    exact = Machine(0)
    sides = {"one": exact.work("one", 1.0, noise=0), "two": exact.work("two", 2.0, noise=0)}
    assert len(in_turns(sides, patience=Patience(min_rounds=5), clock=exact.clock)["one"]) == 5
    noisy = Patience(min_rounds=5, max_rounds=1000, max_seconds=100, half_width=0)
    machine = Machine(0)
    num_rounds = len(measured(machine, noisy)["ours"])
    assert 5 < num_rounds < 20
    assert 100 <= machine.now < 140
    few = Patience(min_rounds=5, max_rounds=1000, max_seconds=0)
    assert len(measured(Machine(0), few)["ours"]) == 5


def test_a_ratio_is_of_pairs() -> None:
    ratio = ratio_of([2.0, 20.0, 200.0], [1.0, 10.0, 100.0])
    assert (ratio.value, ratio.low, ratio.high, ratio.rounds) == (2.0, 2.0, 2.0, 3)
    with pytest.raises(ValueError, match=r"longer|shorter"):
        ratio_of([1.0], [1.0, 2.0])

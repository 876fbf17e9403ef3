"""Turns: one job at a time at work, drawn by lot, and a dead one holds up nobody."""

import contextlib
import threading
import time
from collections import Counter
from collections.abc import Iterator
from multiprocessing import connection
from pathlib import Path
from typing import Any

import pytest

from runmanager.launching.local.engine import Job, LocalEngine
from runmanager.launching.local.turn_keeper import TurnClient, TurnKeeper

DEADLINE_SECONDS = 60


class Group:
    """Jobs as threads of this process, each a list of steps, and a keeper whose clock the test moves on."""

    def __init__(self, *, enough: Any = lambda rounds: False, min_rounds: int = 3, max_seconds: float = 1000.0) -> None:
        self.now = 0.0
        self.keeper = TurnKeeper(
            enough=enough, min_rounds=min_rounds, max_seconds=max_seconds, seed=1, clock=lambda: self.now
        )
        self.events: list[tuple[int, Any]] = []
        self.at_work: set[int] = set()
        self.most_at_work = 0
        self.threads: dict[int, threading.Thread] = {}

    def add(self, key: int, *, training: int = 0, rate: float = 1.0, dies_in_turn: int | None = None) -> None:
        client = self.keeper.add(key)
        thread = threading.Thread(target=self._live, args=(key, client, training, rate, dies_in_turn), daemon=True)
        self.threads[key] = thread

    def _live(self, key: int, client: TurnClient, training: int, rate: float, dies_in_turn: int | None) -> None:
        with contextlib.closing(client):
            for _ in range(training):
                assert client.ask(is_measured=False, is_cancelled=lambda: False) is not None
                self._work(key, "training")
            samples = 0
            for number in range(1000):
                grant = client.ask(is_measured=True, samples=samples, seconds=100 / rate, is_cancelled=lambda: False)
                if grant is None:
                    return
                self._work(key, grant)
                if number == dies_in_turn:
                    return
                samples = 100

    def _work(self, key: int, what: Any) -> None:
        self.at_work.add(key)
        self.most_at_work = max(self.most_at_work, len(self.at_work))
        self.events.append((key, what))
        self.now += 1.0
        self.at_work.discard(key)

    def play(self) -> None:
        for thread in self.threads.values():
            thread.start()
        until = time.monotonic() + DEADLINE_SECONDS
        while self.keeper.pipes:
            assert time.monotonic() < until, "the turns never ended"
            self.keeper.receive(connection.wait(self.keeper.pipes, timeout=1.0))
        for thread in self.threads.values():
            thread.join(DEADLINE_SECONDS)
            assert not thread.is_alive()

    def rounds(self) -> dict[int, list[int]]:
        rounds: dict[int, list[int]] = {}
        for key, what in self.events:
            if what != "training":
                rounds.setdefault(what.round, []).append(key)
        return rounds


def test_all_train_in_turns_before_any_is_measured() -> None:
    group = Group(enough=lambda rounds: True)
    group.add(0, training=3)
    group.add(1, training=1)
    group.play()
    assert [key for key, what in group.events[:4]].count(0) == 3
    assert [what for _, what in group.events[:4]] == ["training"] * 4
    assert group.events[0][0] != group.events[1][0]
    assert group.most_at_work == 1


def test_each_has_one_turn_a_round_in_an_order_drawn_by_lot() -> None:
    group = Group(enough=lambda rounds: len(rounds) >= 40, min_rounds=40)
    for key in range(3):
        group.add(key, rate=10.0 * (key + 1))
    group.play()
    orders = list(group.rounds().values())
    assert all(sorted(order) == [0, 1, 2] for order in orders)
    assert len(Counter(map(tuple, orders))) == 6
    places = [(what.round, what.place, key) for key, what in group.events]
    assert [place for _, place, _ in places] == [1, 2, 3] * len(orders)
    # The first turns of a process are warm-up, and no round is made of them.
    assert [what.warmup for _, what in group.events] == [True] * 9 + [False] * (len(group.events) - 9)
    assert group.keeper.rounds[0] == {0: 10.0, 1: 20.0, 2: 30.0}
    assert len(group.keeper.rounds) == len(orders) - 3 == 40


def test_a_dead_one_releases_its_turn_and_the_rest_goes_on() -> None:
    group = Group(enough=lambda rounds: len(rounds) >= 10)
    for key in range(3):
        group.add(key, dies_in_turn=5 if key == 1 else None)
    group.play()
    sizes = [len(measured) for measured in group.keeper.rounds]
    assert sizes[:2] == [3, 3]
    assert set(sizes[3:]) == {2}
    assert len(sizes) >= 10


def test_one_that_is_left_alone_has_nothing_to_be_measured_against() -> None:
    group = Group()
    group.add(0)
    group.add(1, dies_in_turn=1)
    group.play()
    assert len(group.rounds()) <= 3


def test_the_time_is_spent_however_little_is_known() -> None:
    group = Group(max_seconds=20.0)
    group.add(0)
    group.add(1)
    group.play()
    assert len(group.rounds()) == 10


def test_one_that_is_to_stop_takes_no_further_turn_though_one_is_there() -> None:
    keeper = TurnKeeper(enough=lambda rounds: False, min_rounds=3, max_seconds=1000.0)
    client = keeper.add(0)

    def cancelled() -> bool:
        keeper.receive(connection.wait(keeper.pipes, timeout=0))
        return True

    assert client.ask(is_measured=False, is_cancelled=cancelled) is None


def test_waiting_for_a_turn_is_no_time_of_a_job() -> None:
    now = [0.0]
    keeper = TurnKeeper(enough=lambda rounds: True, min_rounds=1, max_seconds=1.0, clock=lambda: now[0])
    clients = [keeper.add(key) for key in (0, 1)]
    with contextlib.ExitStack() as stack:
        for client in clients:
            stack.callback(client.close)
        began = keeper.clock(0)
        # What a job says without waiting for the answer: it would wait for the other one.
        clients[0].ask(is_measured=False, is_cancelled=lambda: True)
        keeper.receive(connection.wait(keeper.pipes, timeout=DEADLINE_SECONDS))
        now[0] = 50.0
        assert keeper.clock(0) - began == 0.0
        assert keeper.clock(1) - began == 50.0
        keeper.remove(1)  # the first one has the machine now
        now[0] = 57.0
        assert keeper.clock(0) - began == 7.0
        keeper.remove(0)


def test_a_driver_that_is_gone_is_no_word_that_it_is_enough() -> None:
    keeper = TurnKeeper(enough=lambda rounds: True, min_rounds=1, max_seconds=1.0)
    with contextlib.closing(keeper.add(0)) as client:
        keeper.remove(0)
        with pytest.raises(EOFError):
            client.ask(is_measured=True, is_cancelled=lambda: False)


@pytest.fixture
def turn_jobs(jobs: Any, tmp_path: Path) -> Iterator[Any]:
    """Three jobs in processes of their own; the second kills itself in its fifth measured turn."""
    yield [Job(key, jobs.take_turns, (tmp_path / "log", key, 4 if key == 1 else None)) for key in range(3)]


def test_processes_take_turns_and_outlive_a_killed_one(turn_jobs: Any, recorder: Any, tmp_path: Path) -> None:
    keeper = TurnKeeper(enough=lambda rounds: len(rounds) >= 5, min_rounds=5, max_seconds=DEADLINE_SECONDS)
    LocalEngine(workers=3, turns=keeper).run(turn_jobs, recorder)
    assert recorder.endings[1].exit_code == -9
    counts = {key: recorder.endings[key].answer.value for key in (0, 2)}
    assert counts[0] == counts[2] >= 8
    # Nobody began before the one before had ended; the killed one never said so.
    lines = (tmp_path / "log").read_text().splitlines()
    begun = None
    for line in lines:
        word, key = line.split()
        if word == "begin":
            assert begun in (None, "1")
            begun = key
        else:
            assert key == begun
            begun = None

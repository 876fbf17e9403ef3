"""Turns: one job works at a time, in random order, and a dead one blocks no other."""

import contextlib
import threading
import time
from collections import Counter
from collections.abc import Iterator
from multiprocessing import connection
from pathlib import Path
from typing import Any

import pytest

from runmanager.launching.local.engine import LocalEngine
from runmanager.launching.local.jobs import Job
from runmanager.launching.local.turns import TurnClient
from runmanager.race.keeper import RoundRules, TurnKeeper

DEADLINE_SECONDS = 60


class Group:
    """Jobs as threads of this process, and a keeper with a clock that the test advances."""

    def __init__(self, *, enough: Any = lambda rounds: False, min_rounds: int = 3, max_seconds: float = 1000.0) -> None:
        self.now = 0.0
        self.keeper = TurnKeeper(
            RoundRules(enough=enough, min_rounds=min_rounds, max_seconds=max_seconds), seed=1, clock=lambda: self.now
        )
        self.events: list[tuple[int, Any]] = []
        self.working: set[int] = set()
        self.most_working = 0
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
        self.working.add(key)
        self.most_working = max(self.most_working, len(self.working))
        self.events.append((key, what))
        self.now += 1.0
        self.working.discard(key)

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
    assert group.most_working == 1


def test_each_job_has_one_turn_per_round_in_random_order() -> None:
    group = Group(enough=lambda rounds: len(rounds) >= 40, min_rounds=40)
    for key in range(3):
        group.add(key, rate=10.0 * (key + 1))
    group.play()
    orders = list(group.rounds().values())
    assert all(sorted(order) == [0, 1, 2] for order in orders)
    assert len(Counter(map(tuple, orders))) == 6
    positions = [(what.round, what.place, key) for key, what in group.events]
    assert [position for _, position, _ in positions] == [1, 2, 3] * len(orders)
    # The first turns of a process are warm-up, which no round contains.
    assert [what.warmup for _, what in group.events] == [True] * 9 + [False] * (len(group.events) - 9)
    assert group.keeper.rounds[0] == {0: 10.0, 1: 20.0, 2: 30.0}
    assert len(group.keeper.rounds) == len(orders) - 3 == 40


def test_a_dead_job_releases_its_turn_and_the_others_continue() -> None:
    group = Group(enough=lambda rounds: len(rounds) >= 10)
    for key in range(3):
        group.add(key, dies_in_turn=5 if key == 1 else None)
    group.play()
    sizes = [len(measured) for measured in group.keeper.rounds]
    assert sizes[:2] == [3, 3]
    assert set(sizes[3:]) == {2}
    assert len(sizes) >= 10


def test_the_last_job_left_is_not_measured() -> None:
    group = Group()
    group.add(0)
    group.add(1, dies_in_turn=1)
    group.play()
    assert len(group.rounds()) <= 3


@pytest.mark.parametrize("seconds", [20.0, 21.0])
def test_no_round_begins_that_would_end_after_the_maximum_time(seconds: float) -> None:
    group = Group(max_seconds=seconds)  # a round takes two
    group.add(0)
    group.add(1)
    group.play()
    assert len(group.rounds()) == 10


def test_a_cancelled_job_takes_no_turn_that_is_granted() -> None:
    keeper = TurnKeeper(RoundRules(enough=lambda rounds: False, min_rounds=3, max_seconds=1000.0))
    client = keeper.add(0)

    def cancelled() -> bool:
        keeper.receive(connection.wait(keeper.pipes, timeout=0))
        return True

    assert client.ask(is_measured=False, is_cancelled=cancelled) is None


def test_a_jobs_clock_stands_while_it_waits_for_a_turn() -> None:
    now = [0.0]
    keeper = TurnKeeper(RoundRules(enough=lambda rounds: True, min_rounds=1, max_seconds=1.0), clock=lambda: now[0])
    clients = [keeper.add(key) for key in (0, 1)]
    with contextlib.ExitStack() as stack:
        for client in clients:
            stack.callback(client.close)
        start = keeper.clock(0)
        # A request that does not wait for the answer, which would wait for the other job.
        clients[0].ask(is_measured=False, is_cancelled=lambda: True)
        keeper.receive(connection.wait(keeper.pipes, timeout=DEADLINE_SECONDS))
        now[0] = 50.0
        assert keeper.clock(0) - start == 0.0
        assert keeper.clock(1) - start == 50.0
        keeper.remove(1)  # now the first has the turn
        now[0] = 57.0
        assert keeper.clock(0) - start == 7.0
        keeper.remove(0)


def test_a_driver_that_is_gone_is_an_error_and_not_the_end_of_turns() -> None:
    keeper = TurnKeeper(RoundRules(enough=lambda rounds: True, min_rounds=1, max_seconds=1.0))
    with contextlib.closing(keeper.add(0)) as client:
        keeper.remove(0)
        with pytest.raises(EOFError):
            client.ask(is_measured=True, is_cancelled=lambda: False)


@pytest.fixture
def turn_jobs(jobs: Any, tmp_path: Path) -> Iterator[Any]:
    """Three jobs in their own processes; the second kills itself in its fifth measured turn."""
    yield [Job(key, jobs.take_turns, (tmp_path / "log", key, 4 if key == 1 else None)) for key in range(3)]


def test_processes_take_turns_and_a_killed_one_blocks_no_other(turn_jobs: Any, recorder: Any, tmp_path: Path) -> None:
    keeper = TurnKeeper(RoundRules(enough=lambda rounds: len(rounds) >= 5, min_rounds=5, max_seconds=DEADLINE_SECONDS))
    LocalEngine(workers=3, turns=keeper).run(turn_jobs, recorder)
    assert recorder.endings[1].exit_code == -9
    counts = {key: recorder.endings[key].answer.value for key in (0, 2)}
    assert counts[0] == counts[2] >= 8
    # No turn begins before the last has ended; the killed job logs no end.
    lines = (tmp_path / "log").read_text().splitlines()
    holder = None
    for line in lines:
        event, key = line.split()
        if event == "begin":
            assert holder in (None, "1")
            holder = key
        else:
            assert key == holder
            holder = None


def test_a_job_whose_turns_are_ended_is_gone_before_the_next_turn() -> None:
    def enough(rounds: Any) -> bool:
        if len(rounds) == 3:
            group.keeper.end_turns([2])
        return len(rounds) == 6

    group = Group(enough=enough)
    for key in range(3):
        group.add(key)
    group.play()
    takers = [sorted(keys) for keys in group.rounds().values()]
    warm = len(takers) - 6
    assert takers == [[0, 1, 2]] * (warm + 3) + [[0, 1]] * 3
    assert group.most_working == 1
    assert [sorted(each) for each in group.keeper.rounds] == [[0, 1, 2]] * 3 + [[0, 1]] * 3


OLDER = (
    b"\x80\x04\x95\x86\x00\x00\x00\x00\x00\x00\x00\x8c&runmanager.launching.local.turn_keeper\x94\x8c\x0c_TurnRequest\x94\x93\x94)"
    b"\x81\x94}\x94(\x8c\x0bis_measured\x94\x88\x8c\x07samples\x94Kd\x8c\x07seconds\x94G?\xe0\x00\x00\x00\x00\x00\x00"
    b"\x8c\x08imported\x94\x8c\x05/a.py\x94\x85\x94ub."
)
"""A request as versions sent it whose messages had no number: measured, 100 samples in half a second, of /a.py."""


def test_a_job_of_an_older_version_takes_turns() -> None:
    keeper = TurnKeeper(RoundRules(enough=lambda rounds: False, min_rounds=3, max_seconds=1000.0, warmup_turns=0))
    pipes = []
    for key in (0, 1):
        mine, theirs = connection.Pipe()
        keeper.join(key, theirs)
        pipes.append(mine)
        mine.send_bytes(OLDER)
    for _ in range(4):
        keeper.receive(connection.wait(keeper.pipes, timeout=DEADLINE_SECONDS))
        (ready,) = connection.wait(pipes, timeout=DEADLINE_SECONDS)
        grant = ready.recv()  # without our code: it reads these attributes
        assert (grant.round, grant.place, grant.warmup) in [(1, 1, False), (1, 2, False), (2, 1, False), (2, 2, False)]
        assert isinstance(grant.core, int)
        ready.send_bytes(OLDER)
    assert keeper.imported == {0: ("/a.py",), 1: ("/a.py",)}
    assert keeper.rounds == [{0: 200.0, 1: 200.0}]

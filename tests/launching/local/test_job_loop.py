"""The loop over jobs, with an engine in memory: which job starts, which is tried again, and what a stop does."""

import signal
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

import pytest

from runmanager.launching.local.jobs import Engine, Job, Listener, ProcessExit, Retries
from runmanager.launching.local.worker import Returned
from runmanager.records.run.status import Outcome, Reason, Status

DISPLACED = Outcome(Status.KILLED, Reason.INTERRUPTED, "moved away")


@dataclass
class InMemory(Engine):
    """Runs `workers` jobs at a time, each for one round; `displaces` are the tries that it ends itself."""

    workers: int = 1
    displaces: frozenset[tuple[int, int]] = frozenset()
    in_wait: Callable[[], None] = lambda: None
    events: list[str] = field(default_factory=list)
    active: list[tuple[Job, int]] = field(default_factory=list)

    @property
    def has_room(self) -> bool:
        return len(self.active) < self.workers

    @property
    def is_idle(self) -> bool:
        return not self.active

    def start(self, job: Job, number: int, listener: Listener) -> bool:
        self.events.append(f"start {job.key}, try {number}")
        self.active.append((job, number))
        return True

    def wait(self) -> None:
        self.in_wait()

    def stop(self, *, at_once: bool) -> None:
        self.events.append("stop at once" if at_once else "stop")

    def end(self, key: int, *, at_once: bool) -> None:
        self.events.append(f"end {key} at once" if at_once else f"end {key}")

    def observe(self, listener: Listener, may_retry: Callable[[Job], bool]) -> Iterator[ProcessExit]:
        ended, self.active = self.active, []
        for job, number in ended:
            is_displaced = (job.key, number) in self.displaces and may_retry(job)
            yield ProcessExit(job, 0, Returned(None), displaced=DISPLACED if is_displaced else None)

    def close(self) -> None:
        self.events.append("close")


def jobs(number: int) -> list[Job]:
    return [Job(key, print) for key in range(number)]


def test_a_job_is_chosen_when_there_is_room_for_it() -> None:
    engine = InMemory()

    def chosen_late() -> Iterator[Job]:
        for job in jobs(2):
            engine.events.append(f"chosen {job.key}")
            yield job

    assert not engine.run(chosen_late(), Listener())
    assert engine.events == ["chosen 0", "start 0, try 1", "chosen 1", "start 1, try 1", "close"]


def test_a_caller_may_wait_for_an_end_before_it_chooses() -> None:
    ended: list[int] = []

    class Noting(Listener):
        def ended(self, ending: ProcessExit) -> None:
            ended.append(ending.job.key)

    def searching() -> Iterator[Job | None]:
        first, second, best = jobs(3)
        yield from (first, second, None)
        yield best if ended == [0, 1] else None

    engine = InMemory(workers=3)
    engine.run(searching(), Noting())
    assert engine.events == [*(f"start {key}, try 1" for key in range(3)), "close"] and ended == [0, 1, 2]


def test_a_listener_may_end_single_jobs_and_the_others_go_on() -> None:
    class Ending(Listener):
        def unwanted(self) -> list[tuple[int, bool]]:
            return [(0, False), (1, True)] if len(engine.events) == 2 else []

    engine = InMemory(workers=2)
    assert not engine.run(jobs(3), Ending())
    assert engine.events[2:] == ["end 0", "end 1 at once", "start 2, try 1", "close"]


@pytest.mark.parametrize(("times", "tries"), [(0, 1), (1, 2), (9, 3)])
def test_a_displaced_job_is_tried_again_as_often_as_the_caller_says(times: int, tries: int) -> None:
    said: list[tuple[Outcome, int, int]] = []

    class Saying(Listener):
        def retrying(self, ending: ProcessExit, outcome: Outcome, *, tries: int, of: int) -> None:
            said.append((outcome, tries, of))

    engine = InMemory(displaces=frozenset({(0, 1), (0, 2)}))
    engine.run(jobs(2), Saying(), retries=Retries(displaced=times))
    again = [f"start 0, try {number + 1}" for number in range(tries)]
    assert engine.events == [*again, "start 1, try 1", "close"]
    assert said == [(DISPLACED, number + 1, times + 1) for number in range(tries - 1)]


@pytest.mark.parametrize(("numbers", "stop"), [([signal.SIGTERM], "stop"), ([signal.SIGINT] * 2, "stop at once")])
def test_after_a_signal_no_job_starts_and_none_is_tried_again(numbers: list[signal.Signals], stop: str) -> None:
    before = [signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)]
    engine = InMemory(displaces=frozenset({(0, 1)}))
    engine.in_wait = lambda: list(map(signal.raise_signal, numbers))
    assert engine.run(jobs(2), Listener(), retries=Retries(9, displaced=9))
    assert engine.events == ["start 0, try 1", stop, "close"]
    assert [signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)] == before


def test_another_thread_counts_no_signals_and_changes_no_handler() -> None:
    before, seen = signal.getsignal(signal.SIGTERM), []
    engine = InMemory(in_wait=lambda: seen.append(signal.getsignal(signal.SIGTERM)))
    thread = threading.Thread(target=engine.run, args=(jobs(1), Listener()))
    thread.start()
    thread.join(60)
    assert seen == [before]

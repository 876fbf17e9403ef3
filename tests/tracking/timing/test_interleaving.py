"""A run's turns: timed in blocks, recorded one by one, with waiting excluded from all times."""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from msgspec import UNSET
from torch import nn

from runmanager.records.files.paths import RunPaths
from runmanager.records.run.run_record import Grant, Turn, read_turns
from runmanager.records.run.status import Reason, Status
from runmanager.records.storage.reader import read_run
from runmanager.tracking.manager import RunManager
from runmanager.tracking.options import RunOptions
from runmanager.tracking.timing.interleaving import RunTurns
from runmanager.tracking.timing.timer import PhaseTimer

from ..conftest import Timeline


class FakeTurns:
    """Grants `num_turns` measured turns, the first three of them warm-up, and records the requests."""

    session = "a1"
    again = False
    family = None

    def __init__(self, num_turns: int, *, on_request: Callable[[], None] = lambda: None) -> None:
        self.requests: list[tuple[bool, int, float]] = []
        self._left = num_turns
        self._on_request = on_request

    def ask(
        self, *, is_measured: bool, samples: int = 0, seconds: float = 0.0, is_cancelled: Callable[[], bool]
    ) -> Grant | None:
        self.requests.append((is_measured, samples, seconds))
        self._on_request()
        if is_cancelled():
            return None
        if not is_measured:
            return Grant()
        self._left -= 1
        number = sum(measured for measured, _, _ in self.requests)
        return Grant(number, 1, number <= 3) if self._left >= 0 else None


class Uninterrupted:
    """A run that is never interrupted, and must not be."""

    is_interrupted = False

    def interrupt(self, message: str) -> None:
        pytest.fail(message)


class SteadyClock(Timeline):
    """A timeline on which each step takes `step_seconds`."""

    def __init__(self, step_seconds: float) -> None:
        super().__init__()
        self.step_seconds = step_seconds


def endless() -> Iterator[tuple[torch.Tensor, torch.Tensor]]:
    while True:
        yield torch.zeros(5, 3), torch.zeros(5)


def play(path: Path, source: FakeTurns, clock: SteadyClock, **how: Any) -> tuple[RunTurns, list[Turn]]:
    """Run a training loop in measured turns, on the test's timeline."""
    turns = RunTurns(source, path, Uninterrupted())
    timer = PhaseTimer(clock)
    for _ in turns.measured_batches(endless(), timer, **how):
        clock.now += clock.step_seconds
        timer.mark("compute")
    assert turns.is_over
    return turns, read_turns(RunPaths(path.parent))


@pytest.mark.parametrize(("leads_in", "led_in"), [(True, 2), (False, 0)])
def test_lead_in_steps_are_not_timed(tmp_path: Path, leads_in: bool, led_in: int) -> None:
    clock, source = SteadyClock(0.25), FakeTurns(5)
    _, turns = play(tmp_path / "turns.jsonl", source, clock, num_steps=12, most_steps=100, leads_in=leads_in)
    assert [(turn.session, turn.round, turn.steps, turn.samples, turn.seconds) for turn in turns] == [
        ("a1", number, 12, 60, 3.0) for number in range(1, 6)
    ]
    assert [turn.warmup for turn in turns] == [True] * 3 + [False] * 2
    assert clock.now == 5 * (12 + led_in) * 0.25
    assert source.requests == [(True, 0, 0.0)] + [(True, 60, 3.0)] * 5
    assert clock.num_waits == 10  # before and after each turn, never between its steps


def test_an_accelerator_is_led_in_for_a_tenth_of_a_second_and_its_clock_is_kept(tmp_path: Path) -> None:
    clock, hertz = SteadyClock(1 / 32), iter([3e8, None, 1.9e9, 1.9e9])
    how = {"num_steps": 10, "most_steps": 100, "leads_in": True, "read_clock": lambda: next(hertz)}
    _, turns = play(tmp_path / "turns.jsonl", FakeTurns(4), clock, **how)
    assert [turn.clock_hertz for turn in turns] == [3e8, UNSET, 1.9e9, 1.9e9]
    # Before the first turn it is not known how long a step takes.
    assert clock.now == (1 + 10 + 3 * (4 + 10)) / 32


@pytest.mark.parametrize(("step_seconds", "steps"), [(0.01, 10), (0.0001, 50), (3.0, 1)])
def test_warm_up_turns_determine_the_number_of_steps(tmp_path: Path, step_seconds: float, steps: int) -> None:
    path = tmp_path / "turns.jsonl"
    _, turns = play(path, FakeTurns(6), SteadyClock(step_seconds), num_steps=None, most_steps=50, leads_in=True)
    assert [turn.steps for turn in turns] == [1] + [steps] * 5


def test_slow_first_turns_do_not_shorten_later_ones(tmp_path: Path) -> None:
    clock = SteadyClock(0.2)

    def rest() -> None:
        clock.step_seconds = 0.2 if len(source.requests) <= 4 else 0.01

    source = FakeTurns(7, on_request=rest)
    _, turns = play(tmp_path / "turns.jsonl", source, clock, num_steps=None, most_steps=50, leads_in=True)
    assert [turn.steps for turn in turns] == [1, 1, 1, 1, 1, 10, 10]


def train(folder: RunPaths, source: FakeTurns, *, interrupt_after: int | None = None) -> Any:
    """Train two epochs and measured turns; interrupt the run in measured step number `interrupt_after`."""
    network = nn.Linear(3, 2)
    data = [(torch.zeros(4, 3), torch.zeros(4, dtype=torch.int64))] * 3
    manager = RunManager(folder.root.parent.parent, console=False, sinks=[])
    run = manager.run({"lr": 1}, network, data, options=RunOptions(turns=source))
    with run:
        for epoch in run.epochs(2):
            for images, labels in epoch.batches(data):
                epoch.track(network(images).sum(), network(images), labels)
        epoch = run.unrecorded_epoch()
        blocks = run.measured_batches(iter(data * 100), num_steps=2, most_steps=3, leads_in=False)
        for number, (images, labels) in enumerate(epoch.batches(blocks)):
            epoch.track(network(images).sum(), network(images), labels)
            if number == interrupt_after:
                run.interrupt()
    return read_run(run.paths)


@pytest.fixture
def folder(tmp_path: Path) -> RunPaths:
    return RunPaths(tmp_path / "mine" / "runs" / "one")


def test_waiting_for_turns_is_excluded_from_all_times(folder: RunPaths, let_pass: Callable[[float], None]) -> None:
    source = FakeTurns(5, on_request=lambda: let_pass(1e6))
    run = train(folder, source)
    assert len(source.requests) == 8  # two epochs, five turns, and the end of the turns
    for epoch in run.epochs:
        assert epoch.wall_seconds < 1e6
        phases = (epoch.data_seconds, epoch.transfer_seconds, epoch.compute_seconds, epoch.tracking_seconds)
        assert sum(phases) < 1e6
        assert epoch.run_seconds < 1e6
    assert run.record.run_seconds < 1e6


def test_measured_turns_are_not_epochs(folder: RunPaths) -> None:
    source = FakeTurns(5)
    run = train(folder, source)
    assert run.record.status is Status.FINISHED
    assert run.record.session == "a1"
    assert [epoch.epoch for epoch in run.epochs] == [1, 2]
    assert [turn.round for turn in run.turns] == [1, 2, 3, 4, 5]
    assert [measured for measured, _, _ in source.requests] == [False] * 2 + [True] * 6


def test_a_run_interrupted_during_its_measurement_is_not_finished(folder: RunPaths) -> None:
    run = train(folder, FakeTurns(1000), interrupt_after=5)
    assert (run.record.status, run.record.reason) == (Status.KILLED, Reason.INTERRUPTED)
    assert len(run.epochs) == 2
    assert [turn.steps for turn in run.turns] == [2, 2, 2]  # the interrupted turn is completed


@pytest.mark.parametrize(("at", "num_epochs"), [(2, 1), (4, 2)])
def test_a_run_whose_driver_is_gone_is_not_finished(folder: RunPaths, at: int, num_epochs: int) -> None:
    def disconnect() -> None:
        if len(source.requests) >= at:
            raise EOFError

    source = FakeTurns(1000, on_request=disconnect)
    run = train(folder, source)
    assert (run.record.status, run.record.reason) == (Status.KILLED, Reason.INTERRUPTED)
    assert run.record.message == "its driver is gone"
    assert len(run.epochs) == num_epochs


def test_a_torn_last_line_is_ignored(folder: RunPaths) -> None:
    paths = train(folder, FakeTurns(4)).paths
    with paths.turns.open("ab") as file:
        file.write(b'{"session":"a1","rou')
    assert len(read_run(paths).turns) == 4

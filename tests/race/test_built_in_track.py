"""A race of contenders: who is measured, who fails, and what is tried again where memory is short."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import pytest
from hydra.core.utils import JobReturn, JobStatus

from runmanager.errors import ConfigurationError
from runmanager.launching.hydra_launcher import LocalLauncher
from runmanager.launching.launcher import CellJob
from runmanager.launching.local.turns import Turns
from runmanager.race.built_in_track import BuiltInTrack, Entry, Seen
from runmanager.race.heat import race_speedup
from runmanager.race.keeper import TurnKeeper
from runmanager.records.run.status import Outcome, Reason, Status
from runmanager.training.options.groups import DataLoaderOptions
from runmanager.training.options.job import TrainingOptions

NO_MEMORY = Outcome(Status.FAILED, Reason.OUT_OF_MEMORY, "no room")


@dataclass
class Machine:
    """Stands for the processes of a launcher: each batch size has a speed, and `room` is for so many at once."""

    speeds: Mapping[int, float]
    room: int = 99
    launched: list[list[int]] = field(default_factory=list)

    def run(self, jobs: Sequence[CellJob], turns: Turns | None) -> list[JobReturn]:
        assert isinstance(turns, TurnKeeper)
        sizes = [job.work(1).arguments[0].batch_size for job in jobs]
        self.launched.append(sizes)
        fits = [self.speeds[size] > 0 and at < self.room for at, size in enumerate(sizes)]
        together = {at: self.speeds[size] for at, size in enumerate(sizes) if fits[at]}
        turns.rounds += [together] * 12 if len(together) > 1 else []
        return [_returned(Seen(shares={"data": 1.0}) if each else Seen(failure=NO_MEMORY)) for each in fits]


def _returned(value: Any) -> JobReturn:
    result = JobReturn()
    result.status, result.return_value = JobStatus.COMPLETED, value
    return result


@pytest.fixture
def track_on(monkeypatch: pytest.MonkeyPatch) -> Callable[[Machine], BuiltInTrack]:
    def enter(settings: Mapping[str, str]) -> Entry:
        if settings.get("batch_size") == "0":
            raise ConfigurationError(["`batch_size` must be at least 1, got 0."])
        workers = int(settings.get("num_workers", 0))
        loader = DataLoaderOptions(persistent_workers=settings.get("persistent", "true") == "true")
        return Entry(TrainingOptions(batch_size=int(settings.get("batch_size", 1)), num_workers=workers, loader=loader))

    def make(machine: Machine) -> BuiltInTrack:
        monkeypatch.setattr(LocalLauncher, "run", lambda _, jobs, listener, turns: machine.run(jobs, turns))
        return BuiltInTrack(LocalLauncher(), enter, seconds=60.0)

    return make


def contenders(*sizes: int) -> list[dict[str, str]]:
    return [{}, *({"batch_size": str(size)} for size in sizes)]


def test_speeds_are_against_the_first(track_on: Any) -> None:
    heat = track_on(Machine({1: 1.0, 2: 3.0, 3: 0.5})).race(contenders(2, 3, 0), seconds=60.0)
    assert {key: round(each.value, 6) for key, each in heat.estimates.items()} == {1: 3.0, 2: 0.5}
    assert heat.fastest == 1 and 2 in heat.dropped
    assert heat.failures == {3: "`batch_size` must be at least 1, got 0."}
    assert heat.shares[1] == {"data": 1.0}


@pytest.mark.parametrize("room", [2, 3])
def test_what_finds_no_memory_beside_others_is_tried_against_the_first_alone(track_on: Any, room: int) -> None:
    machine = Machine({1: 1.0, 2: 1.0, 3: 2.0, 4: 0.0}, room=room)
    heat = track_on(machine).race(contenders(2, 3, 4), seconds=60.0)
    assert heat.failures == {3: "out_of_memory: no room"}
    assert round(heat.estimates[2].value, 6) == 2.0 and heat.fastest == 2
    assert [1, 4] in machine.launched and ([1, 3] in machine.launched) == (room == 2)


@pytest.mark.parametrize(("device", "step_seconds", "turns"), [("cpu", 0.5, 1), ("cpu", 0.2, 3), ("cuda", 0.5, 3)])
def test_slow_steps_on_a_cpu_need_one_warm_up_turn(
    track_on: Any, monkeypatch: pytest.MonkeyPatch, device: str, step_seconds: float, turns: int
) -> None:
    track = track_on(Machine({}))
    seen = Seen(device=device, step_seconds=step_seconds, start_seconds=0.0)
    monkeypatch.setattr(LocalLauncher, "run", lambda *args: [_returned(seen)])
    assert track.try_alone({}) == seen
    assert track.needed([{}, {}]) == pytest.approx(2 * step_seconds * (turns + 3))  # and as few rounds as count


@pytest.mark.parametrize(
    ("settings", "steps"),
    [
        ({"num_workers": "2"}, 4),  # two batches of each worker
        ({"num_workers": "9"}, 10),  # no more than an epoch
        ({"num_workers": "2", "persistent": "false"}, 10),  # which workers that end with it make the turn
    ],
)
def test_loader_workers_need_longer_turns(
    track_on: Any, monkeypatch: pytest.MonkeyPatch, settings: dict[str, str], steps: int
) -> None:
    track = track_on(Machine({}))
    seen = Seen(device="cpu", step_seconds=0.5, epoch_steps=10)
    monkeypatch.setattr(LocalLauncher, "run", lambda *args: [_returned(seen)])
    track.try_alone({})
    assert track.needed([{}, settings]) == pytest.approx((1 + steps) * 0.5 * (1 + 3))
    assert track.needed([{}, {"batch_size": "0"}]) == track.needed([{}])  # what cannot be made takes no time


def test_retries_of_the_users_choice_are_not_those_of_a_race(track_on: Any) -> None:
    BuiltInTrack(LocalLauncher(retries=2, retry_on=["timeout"]), lambda settings: Entry(TrainingOptions()), seconds=1.0)


def test_without_time_nothing_is_tried_again(track_on: Any) -> None:
    machine = Machine({1: 1.0, 2: 1.0, 3: 2.0}, room=2)
    heat = track_on(machine).race(contenders(2, 3), seconds=0.0)
    assert len(machine.launched) == 1 and heat.failures == {2: "out_of_memory: no room"}


def test_the_looks_that_may_end_the_last_heat_are_paid_for(track_on: Any) -> None:
    machine = Machine({1: 1.0, 2: 3.0})
    heat = track_on(machine).race(contenders(2), seconds=60.0, is_last=True)
    sessions = [[{0: 1.0, 1: 3.0}] * 12] * len(machine.launched)
    assert heat.estimates[1] == race_speedup(sessions, 0, 1, rows=1) != race_speedup(sessions, 0, 1)

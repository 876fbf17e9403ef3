"""The phase timer: correct sums on any clock, without waiting between start and end."""

import time
from collections.abc import Callable
from typing import Any

import pytest
import torch

from runmanager.tracking.timing.phases import PhaseTracker
from runmanager.tracking.timing.timer import TRAINING, EventClock, HostClock, PhaseTimer, clock_for


class FakeClock:
    """A timeline that the test advances; the device may lag behind the marks."""

    def __init__(self, *, lag: int = 0) -> None:
        self.now = 0.0
        self.synchronisations = 0
        self.marks: list[float] = []
        self.queried_at: set[int] = set()
        self._lag = lag
        self._has_waited = False

    def synchronize(self) -> None:
        self.synchronisations += 1
        self._has_waited = True

    def mark(self) -> int:
        self._has_waited = False
        self.marks.append(self.now)
        return len(self.marks) - 1

    def has_passed(self, mark: int) -> bool:
        self.queried_at.add(len(self.marks))
        return self._is_past(mark)

    def _is_past(self, mark: int) -> bool:
        return mark < len(self.marks) - self._lag

    def seconds(self, earlier: int, later: int) -> float:
        # Marks that have not passed cannot be read, like the events of an accelerator.
        assert self._has_waited or (self._is_past(earlier) and self._is_past(later))
        return self.marks[later] - self.marks[earlier]

    def host_seconds(self, mark: int) -> float:
        return time.perf_counter()

    def release(self, mark: int) -> None:
        pass


def play(timer: PhaseTimer, clock: FakeClock, intervals: list[tuple[str, float]]) -> None:
    for phase, seconds in intervals:
        clock.now += seconds
        timer.mark(phase)


STEP = [("data", 0.25), ("transfer", 0.125), ("compute", 1.0)]


def test_each_interval_belongs_to_the_phase_of_its_end() -> None:
    clock = FakeClock()
    timer = PhaseTimer(clock)
    clock.now = 7.0
    timer.start()
    play(timer, clock, [*STEP, *STEP, ("data", 0.5), ("eval", 2.0), ("tracking", 0.0625)])
    assert timer.resolve() == {"data": 1.0, "transfer": 0.25, "compute": 2.0, "eval": 2.0, "tracking": 0.0625}
    assert list(timer.step_seconds) == [1.375, 1.375]


def test_start_resets_the_timer() -> None:
    clock = FakeClock()
    timer = PhaseTimer(clock)
    timer.start()
    play(timer, clock, STEP)
    timer.resolve()
    clock.now += 100
    timer.start()
    assert timer.resolve() == {} and not timer.step_seconds
    play(timer, clock, [("eval", 3.0)])
    assert timer.resolve() == {"eval": 3.0}


@pytest.mark.parametrize("lag", [0, 3, 10_000])
def test_many_marks_are_summed_up_without_waiting(lag: int) -> None:
    clock = FakeClock(lag=lag)
    timer = PhaseTimer(clock)
    timer.start()
    assert clock.synchronisations == 1
    play(timer, clock, STEP * 5000)
    assert clock.synchronisations == 1, "nothing may wait for the device between start and resolve"
    assert len(clock.queried_at) < 5, "a lagging device must not be queried at every mark"
    assert timer.resolve() == {"data": 1250.0, "transfer": 625.0, "compute": 5000.0}
    assert clock.synchronisations == 2
    assert list(timer.step_seconds) == [1.375] * 5000


def test_folding_releases_passed_marks() -> None:
    held: set[int] = set()

    class Event:
        def __init__(self) -> None:
            held.add(id(self))

        def __del__(self) -> None:
            held.discard(id(self))

    class EventfulClock(FakeClock):
        def mark(self) -> Any:
            return Event()

        def has_passed(self, mark: Any) -> bool:
            return True

        def seconds(self, earlier: Any, later: Any) -> float:
            return 1.0

    timer = PhaseTimer(EventfulClock())
    timer.start()
    most = 0
    for _ in range(20_000):
        timer.mark("compute")
        most = max(most, len(held))
    assert most < 5000
    assert timer.resolve() == {"compute": 20_000.0}


def test_the_time_of_summing_up_comes_after_the_last_phase() -> None:
    class Clock(FakeClock):
        asked_first_at: float | None = None

        def seconds(self, earlier: int, later: int) -> float:
            self.asked_first_at = self.asked_first_at or time.perf_counter()
            return super().seconds(earlier, later)

    clock = Clock()
    timer = PhaseTimer(clock)
    timer.start()
    play(timer, clock, STEP)
    last_mark_at = time.perf_counter()
    timer.resolve()
    assert clock.asked_first_at is not None
    assert last_mark_at <= timer.ended_at <= clock.asked_first_at


def test_the_cpus_clock_is_the_hosts() -> None:
    clock = clock_for(torch.device("cpu"))
    assert isinstance(clock, HostClock)
    clock.synchronize()
    earlier, later = clock.mark(), clock.mark()
    assert later >= earlier and clock.has_passed(later)
    assert clock.seconds(earlier, earlier + 1_500_000_000) == 1.5


@pytest.fixture
def calls(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """Calls to events and to the device, which are faked."""
    calls: list[Any] = []

    class Event:
        def __init__(self, *, device: torch.device, enable_timing: bool) -> None:
            calls.append(("event", device.type, enable_timing))

        def record(self, stream: str = "the current stream") -> None:
            calls.append(f"recorded in {stream}")

        def query(self) -> bool:
            return False

        def elapsed_time(self, later: Any) -> float:
            return 250.0  # milliseconds

    synchronize: Callable[[Any], None] = lambda device: calls.append(("wait", device.type))  # noqa: E731
    monkeypatch.setattr(torch, "Event", Event)
    monkeypatch.setattr(torch.accelerator, "synchronize", synchronize)
    monkeypatch.setattr(torch.accelerator, "current_stream", lambda device: f"the stream of {device}")
    return calls


def test_an_accelerators_clock_records_events_and_synchronizes_its_device(calls: list[Any]) -> None:
    clock = clock_for(torch.device("cuda:1"))
    assert isinstance(clock, EventClock)
    earlier, later = clock.mark(), clock.mark()
    assert calls == [("event", "cuda", True), "recorded in the stream of cuda:1"] * 2, "not that of the current device"
    assert not clock.has_passed(later) and clock.seconds(earlier, later) == 0.25
    clock.synchronize()
    assert calls[-1] == ("wait", "cuda")


def test_events_are_reused_once_they_were_read(calls: list[Any]) -> None:
    timer = PhaseTimer(clock_for(torch.device("cuda")))
    for _ in range(3):
        timer.start()
        for _ in range(50):
            timer.mark("compute")
        assert timer.resolve() == {"compute": 50 * 0.25}
        assert calls.count(("event", "cuda", True)) == 51
    assert calls.count("recorded in the current stream") == 3 * 51, "as `cuda` means the current device"


class Event:
    """An event of the current device, which it then belongs to; without work in between it may be an earlier one."""

    current, made = 0, 0

    def __init__(self, **_: Any) -> None:
        self.device: int | None = None
        type(self).made += 1

    def record(self) -> None:
        if self.device not in (None, self.current):
            raise RuntimeError(f"Event device index {self.device} does not match recording stream's device index")
        self.device = self.current

    def elapsed_time(self, later: Any) -> float:
        raise RuntimeError("End event 2 was not recorded after start event 1")


@pytest.fixture
def events(monkeypatch: pytest.MonkeyPatch) -> type[Event]:
    monkeypatch.setattr(torch, "Event", Event)
    monkeypatch.setattr(Event, "made", 0)
    monkeypatch.setattr(Event, "current", 0)
    monkeypatch.setattr(torch.accelerator, "synchronize", lambda device: None)
    return Event


def test_a_program_may_make_another_device_the_current_one_between_epochs(
    events: type[Event], monkeypatch: pytest.MonkeyPatch
) -> None:
    timer = PhaseTimer(clock_for(torch.device("cuda")))
    timer.start()
    monkeypatch.setattr(events, "current", 1)
    timer.start()
    timer.start()
    assert events.made == 2, "one for each device"


def test_apples_events_are_not_reused_and_may_be_swapped(events: type[Event]) -> None:
    timer = PhaseTimer(clock_for(torch.device("mps")))
    for number in (1, 2):
        timer.start()
        timer.mark("compute")
        assert timer.resolve() == {"compute": 0.0} and events.made == 2 * number
    other = clock_for(torch.device("cuda"))
    with pytest.raises(RuntimeError, match="not recorded after"):
        other.seconds(other.mark(), other.mark())


class TwoStreams(FakeClock):
    """The timeline of a stream that is idle, on a device that is busy until `until` in another one."""

    until = 5.0

    def synchronize(self) -> None:
        super().synchronize()
        self.now = max(self.now, self.until)


def test_an_epoch_ends_when_all_streams_have() -> None:
    clock = TwoStreams()
    clock.now = clock.until
    timer = PhaseTimer(clock)
    timer.start()
    phases = PhaseTracker(timer, default_phase=TRAINING)
    clock.until = 7.0
    phases.step_tracked()
    assert phases.resolve().seconds == {TRAINING: 2.0}

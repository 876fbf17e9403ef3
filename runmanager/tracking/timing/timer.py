"""Where an epoch's time goes: marks on the device's own timeline, resolved once at the epoch's end.

On an accelerator the host runs ahead, so host clocks would time the launching, not the work. A mark is therefore an
event in the device's stream, and the time between two marks belongs to the phase that the second one names. The time
that the device waits for the loader falls between the end of a step and the arrival of the next batch: it is `data`.
"""

import time
from array import array
from collections.abc import Hashable, Iterable
from typing import Any, Protocol

import torch

from runmanager.tracking.device.devices import synchronize

__all__ = ["TRAINING", "Clock", "EventClock", "HostClock", "PhaseTimer", "clock_for"]

TRAINING = "training"
"""The phase of a stretch of training of which it is not known what is done in it."""

_FOLD_AT = 4096  # marks kept before those that have passed are summed, so that a long epoch holds few events

_STEP = ("data", "transfer", "compute", TRAINING)


class Clock(Protocol):
    """A timeline on which moments can be marked without waiting."""

    def synchronize(self) -> None:
        """Wait until every mark has passed."""
        ...

    def mark(self) -> Any:
        """This moment on the timeline."""
        ...

    def has_passed(self, mark: Any) -> bool:
        """Whether `mark` can be read without waiting."""
        ...

    def seconds(self, earlier: Any, later: Any) -> float:
        """The time between two passed marks."""
        ...

    def on_host(self, mark: Any) -> float:
        """When `mark`, the newest, has passed, or at the latest now, when all have; on the host's `perf_counter`."""
        ...

    def let_go(self, mark: Any) -> None:
        """Nobody reads `mark` any more: a later one may take its place."""
        ...


class HostClock:
    """The CPU's timeline: `time.perf_counter_ns`."""

    def synchronize(self) -> None:
        pass

    def mark(self) -> int:
        return time.perf_counter_ns()

    def has_passed(self, mark: int) -> bool:
        return True

    def seconds(self, earlier: int, later: int) -> float:
        return (later - earlier) * 1e-9

    def on_host(self, mark: int) -> float:
        return mark * 1e-9

    def let_go(self, mark: int) -> None:
        pass


class EventClock:
    """An accelerator's timeline: events in its current stream.

    Each is used again: to make one costs as much as to record it, and a step of small kernels has three.
    """

    def __init__(self, device: torch.device) -> None:
        self._device = device
        self._unused: list[torch.Event] = []

    def synchronize(self) -> None:
        synchronize(self._device)

    def mark(self) -> torch.Event:
        event = self._unused.pop() if self._unused else torch.Event(device=self._device, enable_timing=True)
        if self._device.index is None:
            event.record()  # in the current device's stream, which is what such a name means
        else:
            event.record(torch.accelerator.current_stream(self._device))
        return event

    def has_passed(self, mark: torch.Event) -> bool:
        return bool(mark.query())

    def seconds(self, earlier: torch.Event, later: torch.Event) -> float:
        return float(earlier.elapsed_time(later)) * 1e-3

    def on_host(self, mark: torch.Event) -> float:
        return time.perf_counter()

    def let_go(self, mark: torch.Event) -> None:
        self._unused.append(mark)


def clock_for(device: torch.device) -> Clock:
    """The clock that tells the truth about work on `device`."""
    return HostClock() if device.type == "cpu" else EventClock(device)


class PhaseTimer:
    """Divides the time from `start` to `resolve` among phases.

    `mark(phase)` says that the time since the last mark was spent in `phase`. Nothing waits for the device but
    `start` and `resolve`. `step_seconds` has the length of each step: what lay of training between two marks of the
    phase `compute`. `begun_at` and `ended_at` are when the first and the last mark had passed, on the host's
    `time.perf_counter`: to sum up hundreds of marks takes a part of a short epoch, and is no part of a phase.
    `marks_tracked` is for those who mark, from one epoch to the next: whether a tracked step's end is marked at once.
    """

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._last: Any = None
        self._pending: list[tuple[Hashable, Any]] = []
        self._seconds: dict[Hashable, float] = {}
        self._step = 0.0
        self._fold_at = _FOLD_AT
        self.step_seconds = array("d")  # eight bytes a step, which may be millions
        self.begun_at = self.ended_at = 0.0
        self.marks_tracked = False

    def start(self) -> None:
        """Begin anew, once the device has nothing left to do."""
        self._clock.synchronize()
        if self._last is not None:
            self._clock.let_go(self._last)
        self._pending.clear()
        self._seconds.clear()
        self.step_seconds = array("d")
        self._step = 0.0
        self._fold_at = _FOLD_AT
        self._last = self._clock.mark()
        self.begun_at = self._clock.on_host(self._last)

    def mark(self, phase: Hashable) -> None:
        """End a stretch of `phase` here."""
        self._pending.append((phase, self._clock.mark()))
        if len(self._pending) >= self._fold_at:
            self._fold()
            # Where the device lags far behind, asking again at every mark would cost more than it saves.
            self._fold_at = len(self._pending) + _FOLD_AT

    def resolve(self) -> dict[Hashable, float]:
        """Seconds a phase since `start`, after waiting for the device once; phases never marked are not in it."""
        self._clock.synchronize()
        self.ended_at = self._clock.on_host(self._pending[-1][1] if self._pending else self._last)
        self._take(self._pending)
        self._pending.clear()
        return dict(self._seconds)

    def _fold(self) -> None:
        passed = 0
        while passed < len(self._pending) and self._clock.has_passed(self._pending[passed][1]):
            passed += 1
        self._take(self._pending[:passed])
        del self._pending[:passed]

    def _take(self, marks: Iterable[tuple[Hashable, Any]]) -> None:
        for phase, moment in marks:
            seconds = self._clock.seconds(self._last, moment)
            self._seconds[phase] = self._seconds.get(phase, 0.0) + seconds
            self._clock.let_go(self._last)
            self._last = moment
            if phase in _STEP:
                self._step += seconds
            if phase == "compute":
                self.step_seconds.append(self._step)
                self._step = 0.0

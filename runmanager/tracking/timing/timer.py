"""The phase timer: marks on the device's own timeline, resolved once at the epoch's end.

On an accelerator the host runs ahead, so host clocks would time the kernel launches, not the work. A mark is therefore
an event in the device's stream, and the time between two marks belongs to the phase of the second one. The time that
the device waits for the loader lies between the end of a step and the arrival of the next batch: it is `data`.
"""

import time
from array import array
from collections.abc import Hashable, Iterable
from typing import Any, Protocol

import torch

from runmanager.records.run.run_record import TRAINING_PHASES
from runmanager.tracking.device.devices import synchronize

TRAINING = "training"
"""The phase of training time that cannot be attributed to data, transfer or compute."""

_FOLD_AT = 4096  # marks held before passed ones are summed up, so that a long epoch holds few events

_STEP = (*TRAINING_PHASES, TRAINING)


class Clock(Protocol):
    """A timeline that can be marked without waiting."""

    def synchronize(self) -> None:
        """Wait until every mark has passed."""
        ...

    def mark(self) -> Any:
        """Mark the current moment."""
        ...

    def has_passed(self, mark: Any) -> bool:
        """Return whether `mark` can be read without waiting."""
        ...

    def seconds(self, earlier: Any, later: Any) -> float:
        """Return the seconds between two passed marks."""
        ...

    def host_seconds(self, mark: Any) -> float:
        """Return when `mark`, the newest one, passed, in seconds of the host's `perf_counter`.

        Called after `synchronize`; a clock that does not know returns the current time.
        """
        ...

    def release(self, mark: Any) -> None:
        """Release `mark`, which is not read again, for reuse."""
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

    def host_seconds(self, mark: int) -> float:
        return mark * 1e-9

    def release(self, mark: int) -> None:
        pass


class EventClock:
    """An accelerator's timeline: events in its current stream.

    Events are reused: making one costs as much as recording it, and a step of small kernels has three. Apple's are
    not: PyTorch keeps them itself, and resets them as they are made. They have the time at which the host was told, by
    a thread for each, so of two without work in between the second may be the first by some microseconds: no time.
    """

    def __init__(self, device: torch.device) -> None:
        self._device = device
        self._is_of_apple = device.type == "mps"
        self._unused: list[torch.Event] = []

    def synchronize(self) -> None:
        synchronize(self._device)

    def mark(self) -> torch.Event:
        # Without an index it is the stream of the current device.
        stream = () if self._device.index is None else (torch.accelerator.current_stream(self._device),)
        if self._unused:
            event = self._unused.pop()
            try:
                event.record(*stream)
                return event
            except RuntimeError:  # another device is current by now, and an event belongs to that of its first record
                self._unused.clear()
        event = torch.Event(device=self._device, enable_timing=True)
        event.record(*stream)
        return event

    def has_passed(self, mark: torch.Event) -> bool:
        return bool(mark.query())

    def seconds(self, earlier: torch.Event, later: torch.Event) -> float:
        try:
            return float(earlier.elapsed_time(later)) * 1e-3
        except RuntimeError:
            if not self._is_of_apple:
                raise
            return 0.0

    def host_seconds(self, mark: torch.Event) -> float:
        return time.perf_counter()

    def release(self, mark: torch.Event) -> None:
        if not self._is_of_apple:
            self._unused.append(mark)


def clock_for(device: torch.device) -> Clock:
    """Return the clock for work on `device`."""
    return HostClock() if device.type == "cpu" else EventClock(device)


class PhaseTimer:
    """Divides the time from `start` to `resolve` among phases.

    `mark(phase)` attributes the time since the last mark to `phase`. Nothing that is called during a step waits.
    `step_seconds` has the duration of each step: the training time between two marks of the phase `compute`. `begun_at`
    and `ended_at` are the times of the first and the last mark by the host's `time.perf_counter`; they exclude the
    summing of marks, which takes a noticeable part of a short epoch and belongs to no phase. `marks_tracked` carries a
    decision of `PhaseTracker` from one epoch to the next: whether the end of each tracked step is marked.
    """

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._last: Any = None
        self._pending: list[tuple[Hashable, Any]] = []
        self._seconds: dict[Hashable, float] = {}
        self._step = 0.0
        self._fold_at = _FOLD_AT
        self.step_seconds = array("d")  # 8 bytes per step, as there may be millions
        self.begun_at = self.ended_at = 0.0
        self.marks_tracked = False

    @property
    def clock(self) -> Clock:
        """The clock in use."""
        return self._clock

    def use(self, clock: Clock) -> None:
        """Begin at zero on another clock."""
        self._clock, self._last = clock, None
        self.start()
        self.ended_at = self.begun_at

    def start(self) -> None:
        """Wait for the device, and begin at zero."""
        self._clock.synchronize()
        if self._last is not None:
            self._clock.release(self._last)
        self._pending.clear()
        self._seconds.clear()
        self.step_seconds = array("d")
        self._step = 0.0
        self._fold_at = _FOLD_AT
        self._last = self._clock.mark()
        self.begun_at = self._clock.host_seconds(self._last)

    def start_at_last_mark(self) -> None:
        """Begin at zero from the last mark, after `resolve`, so that no time is lost between two divisions."""
        self._seconds.clear()
        self.step_seconds = array("d")
        self._step = 0.0
        self._fold_at = _FOLD_AT
        self.begun_at = self.ended_at

    def moment(self) -> Any:
        """Return the current moment, for `mark_at`."""
        return self._clock.mark()

    def mark_at(self, phase: Hashable, moment: Any) -> None:
        """Attribute the time from the last mark to `moment`, which is later, to `phase`."""
        self._pending.append((phase, moment))

    def mark(self, phase: Hashable) -> None:
        """Attribute the time since the last mark to `phase`."""
        self._pending.append((phase, self._clock.mark()))
        if len(self._pending) >= self._fold_at:
            self._fold()
            # If the device lags far behind, a query at every mark would cost more than it saves.
            self._fold_at = len(self._pending) + _FOLD_AT

    def wait(self) -> None:
        """Wait for the device: the next mark then comes after the work of all of its streams."""
        self._clock.synchronize()

    def resolve(self) -> dict[Hashable, float]:
        """Wait for the device once; return the seconds per phase since `start`, for the marked phases."""
        self._clock.synchronize()
        self.ended_at = self._clock.host_seconds(self._pending[-1][1] if self._pending else self._last)
        return self._drained()

    def so_far(self) -> dict[Hashable, float]:
        """Wait for the device; return the seconds per phase up to the last mark. The clock runs on."""
        self._clock.synchronize()
        return self._drained()

    def _drained(self) -> dict[Hashable, float]:
        """Sum up all marks, which have passed."""
        self._sum_up(self._pending)
        self._pending.clear()
        return dict(self._seconds)

    def _fold(self) -> None:
        passed = 0
        while passed < len(self._pending) and self._clock.has_passed(self._pending[passed][1]):
            passed += 1
        self._sum_up(self._pending[:passed])
        del self._pending[:passed]

    def _sum_up(self, marks: Iterable[tuple[Hashable, Any]]) -> None:
        for phase, moment in marks:
            seconds = self._clock.seconds(self._last, moment)
            self._seconds[phase] = self._seconds.get(phase, 0.0) + seconds
            self._clock.release(self._last)
            self._last = moment
            if phase in _STEP:
                self._step += seconds
            if phase == "compute":
                self.step_seconds.append(self._step)
                self._step = 0.0

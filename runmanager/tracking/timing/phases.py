"""Attribution of an epoch's time to phases, from the batches handed out, the steps tracked, and the blocks marked.

The time up to a tracked step is training, unless it is marked as something else. What follows the last step is
evaluation if evaluated batches are tracked or handed out, or if it is marked. The rest belongs to no phase.
"""

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol

from runmanager.records.run.run_record import TRAINING_PHASES
from runmanager.tracking.timing.timer import TRAINING, PhaseTimer

_NOTED_SHARE = 0.01  # of the epochs' time: the phases sum up to the wall time within that
_LEAST_NOTED_SECONDS = 0.05  # on a busy machine any two lines of a loop may lie some hundredths of a second apart
_UNMARKED = (
    "the time after an epoch's last tracked step is in `wall_seconds` alone where it is neither tracked nor marked; "
    "track the evaluation (`track_eval`), or mark it (`with epoch.evaluating():`)"
)
_REPEATED = (
    "`track` was called more often than batches were taken from `epoch.batches`, and each call counts as a step with "
    "its samples; of several losses of one step track one, or their sum"
)
_GUESSED = (
    "where no step of an epoch was tracked, all of its time that is not marked counts as training; call `epoch.track` "
    "after each step"
)


class _Unclaimed(NamedTuple):
    """Time after `num_trained` tracked steps: training if another step follows."""

    num_trained: int


_EVALUATED_FIRST = object()
"""Time up to an evaluated batch before any tracked step: evaluation if any step is tracked later."""


class Span:
    """A part of an epoch whose time belongs to `phase`; `is_marked` if it is a `with` block of the user."""

    __slots__ = ("_tracker", "is_marked", "phase")

    def __init__(self, tracker: "PhaseTracker", phase: str, *, is_marked: bool = False) -> None:
        self._tracker = tracker
        self.phase = phase
        self.is_marked = is_marked

    def __enter__(self) -> None:
        self._tracker.enter(self)

    def __exit__(self, *_: object) -> None:
        self._tracker.leave(self)


@dataclass(frozen=True)
class PhaseTimes:
    """The seconds of an epoch by phase; training time whose phase is unknown is under `TRAINING`.

    `unclaimed` seconds belong to no phase. `is_guessed`: nothing showed which part of the epoch was training.
    `is_repeated`: more steps were tracked than batches handed out.
    """

    seconds: Mapping[str, float]
    unclaimed: float
    is_guessed: bool
    is_repeated: bool


class TimingNotes:
    """Finds time in a run's epochs that was neither tracked nor marked, and steps that were tracked twice."""

    def __init__(self) -> None:
        self._unclaimed = self._guessed = self._total = 0.0

    def add(self, times: PhaseTimes) -> list[str]:
        """Add an epoch; return the notes on all epochs so far, which may repeat those returned before."""
        self._total += sum(times.seconds.values()) + times.unclaimed
        self._unclaimed += times.unclaimed
        self._guessed += times.seconds.get(TRAINING, 0.0) if times.is_guessed else 0.0
        least = max(_NOTED_SHARE * self._total, _LEAST_NOTED_SECONDS)
        candidates = ((self._unclaimed, _UNMARKED), (self._guessed, _GUESSED))
        return [note for seconds, note in candidates if seconds > least] + [_REPEATED] * times.is_repeated


class PhaseTracker:
    """Marks phases on `timer`; the time belongs to the innermost open span.

    If no span is open, it belongs to `default_phase`, or if that is None to what is tracked next. `open` lists the
    spans, innermost last; a span that resumes moves to the end. A step is appended as its batch is handed out.
    """

    def __init__(self, timer: PhaseTimer, *, default_phase: str | None = None) -> None:
        self.is_over = self.ends_at_last_mark = False
        self._timer = timer
        self._default_phase = default_phase
        self.open: list[Span] = []
        self._num_handed_out = self._num_tracked = 0

    @property
    def _num_trained(self) -> int:
        """A number that grows with each step, tracked or not."""
        return self._num_handed_out + self._num_tracked

    @property
    def is_marked_evaluation(self) -> bool:
        """Whether the user has marked the current time as evaluation."""
        if self.open:
            return self.open[-1].is_marked and self.open[-1].phase == "eval"
        return self._default_phase == "eval"

    @property
    def is_in_evaluation(self) -> bool:
        """Whether the current time counts as evaluation."""
        return (self.open[-1].phase if self.open else self._default_phase) == "eval"

    def marked(self, phase: str) -> Span:
        """Return a span for a `with` block of the user; parts of training within an evaluation are evaluation."""
        return Span(self, "eval" if self.is_in_evaluation and phase in TRAINING_PHASES else phase, is_marked=True)

    def enter(self, span: Span) -> None:
        """Open `span`: the time that follows belongs to it."""
        self._mark_up_to_here()
        self.open.append(span)

    def leave(self, span: Span) -> None:
        """Close `span`: the time that follows belongs to the innermost span still open."""
        if not self.is_over:  # or the time is another epoch's by now
            self._mark_up_to_here()
            self.open.remove(span)

    def resume(self, span: Span) -> None:
        """Make an open `span` the innermost one, even if others have begun and not ended since."""
        if not self.is_over and self.open[-1] is not span:
            self._mark_up_to_here()
            self.open.remove(span)
            self.open.append(span)

    def end_step(self, step: Span) -> None:
        """End a step, as the loop requests the next batch."""
        if self.is_over:
            return
        if (last := self.open[-1].phase) != TRAINING:
            self._timer.mark(last)
        self._timer.mark("compute")
        self.open.remove(step)
        self._num_handed_out += 1

    def step_tracked(self) -> None:
        """Count a tracked training step."""
        if self.open:
            # The end of a step whose batch was handed out is marked only if an evaluation may follow, which is rare.
            if self._timer.marks_tracked and self.open[-1].phase == TRAINING:
                self._timer.mark(TRAINING)
        elif self._default_phase is None and not self.is_over:
            self._timer.mark(TRAINING)
        self._num_tracked += 1

    def evaluation_tracked(self) -> None:
        """Count a tracked batch of an evaluation."""
        if self.open:
            if self.open[-1].phase == TRAINING:
                self._timer.marks_tracked = True  # from now on: the end of this step is unknown
                self._timer.mark("eval")
        elif self._default_phase is None and not self.is_over:
            self._timer.mark("eval" if self._num_trained else _EVALUATED_FIRST)

    def resolve(self) -> PhaseTimes:
        """Wait for the device, end the last interval, and return the times: a program may compute in several streams.

        With `ends_at_last_mark` the times end at the last mark, unless a span is still open.
        """
        if self.ends_at_last_mark and not self.open:
            self.is_over = True
            return self._phase_times(self._timer.resolve())
        if self.open and self.open[-1].phase == TRAINING:
            self._timer.marks_tracked = True  # the loop was left but still exists, so the end of its step is unknown
            self._num_handed_out += 1
            self.open.clear()
        self._timer.wait()
        self._mark_up_to_here()
        self.is_over = True
        self.open.clear()
        return self._phase_times(self._timer.resolve())

    def so_far(self) -> Mapping[str, float]:
        """Wait for the device; return the seconds by phase up to here, without those that belong to none."""
        self._mark_up_to_here()
        return self._phase_times(self._timer.so_far()).seconds

    def _mark_up_to_here(self) -> None:
        if not self.is_over:
            self._timer.mark(self.open[-1].phase if self.open else self._default_phase or _Unclaimed(self._num_trained))

    def _phase_times(self, intervals: Mapping[Any, float]) -> PhaseTimes:
        seconds: dict[str, float] = {}
        unclaimed = 0.0
        for name, duration in intervals.items():
            if isinstance(name, _Unclaimed) and self._num_trained == name.num_trained > 0:
                unclaimed += duration
            else:
                phase = self._phase_of(name)
                seconds[phase] = seconds.get(phase, 0.0) + duration
        is_guessed = self._default_phase is None and not self._num_trained
        return PhaseTimes(seconds, unclaimed, is_guessed, is_repeated=0 < self._num_handed_out < self._num_tracked)

    def _phase_of(self, interval: Any) -> str:
        """Return the phase of a claimed interval, as known at the epoch's end."""
        if interval is _EVALUATED_FIRST:
            return "eval" if self._num_trained else TRAINING
        return TRAINING if isinstance(interval, _Unclaimed) else str(interval)


class _Progress(Protocol):
    """Counts what a run has done, as its heartbeat does."""

    progress: int


class DrivenLoop:
    """Marks the phases of a loop at the calls of a framework.

    ```
    batch_fetched      ends `data`; without it `begin_step` does
    batch_moved        ends `transfer`; what follows is `compute`
    begin_step         the same, for a batch that was not moved
    end_step           counts it; what follows is `data`, unless `passed` or `begin_evaluation` says what it was
    end                what follows the last step is `tracking`, up to the epoch's end
    ```

    A framework tells of an evaluation after it has begun to read its first batch. So `begin_evaluation` also covers the
    time since the part before.
    """

    def __init__(
        self,
        phases: PhaseTracker,
        timer: PhaseTimer,
        heartbeat: _Progress,
        *,
        on_step: Callable[[Any, int | None], None],
        on_end: Callable[[float | None], None],
    ) -> None:
        self._phases = phases
        self._timer = timer
        self._heartbeat = heartbeat
        self._on_step = on_step
        self._on_end = on_end
        self._step = Span(phases, TRAINING)
        self._evaluation = Span(phases, "eval", is_marked=True)
        self._rest = Span(phases, "data")
        self._has_ended = False
        self._begun_at = time.perf_counter()
        self._first_batch_seconds: float | None = None
        phases.enter(self._rest)

    @property
    def is_between_parts(self) -> bool:
        """Whether neither a step nor an evaluation is open."""
        return not self._phases.is_over and self._phases.open[-1] is self._rest

    def batch_fetched(self) -> bool:
        """End the time that a batch of training was waited for; return whether it is one."""
        if self._has_ended or not self.is_between_parts:
            return False
        if self._first_batch_seconds is None:
            self._first_batch_seconds = time.perf_counter() - self._begun_at
        self._timer.mark("data")
        return True

    def batch_moved(self) -> None:
        """End the transfer of a batch of training, and begin its step."""
        if self.is_between_parts:
            self._timer.mark("transfer")
            self._phases.open.append(self._step)

    def begin_step(self) -> bool:
        """Begin a step, whose batch has arrived; return False if `batch_moved` has begun it."""
        if not self.batch_fetched():
            return False
        self._phases.open.append(self._step)
        return True

    def end_step(self, loss: Any, samples: int | None) -> None:
        """Count a step over `samples` samples, with its mean loss, each None if it is not known; end the open one."""
        self._on_step(loss, samples)
        self._leave_step()

    def _leave_step(self) -> None:
        if not self._phases.is_over and self._phases.open[-1] is self._step:
            self._phases.end_step(self._step)

    def passed(self, phase: str) -> None:
        """Count the time since the last part as `phase`, between two parts."""
        if self.is_between_parts:
            self._timer.mark(phase)

    def begin_evaluation(self) -> None:
        """Begin an evaluation, with the time since the last part."""
        if self.is_between_parts:
            self._timer.mark("eval")
            self._phases.open.append(self._evaluation)

    def batch_evaluated(self) -> None:
        """Count progress, which is all that a batch of an evaluation is."""
        self._heartbeat.progress += 1

    def end_evaluation(self) -> None:
        """End the open evaluation, if any."""
        if not self._phases.is_over and self._phases.open[-1] is self._evaluation:
            self._phases.leave(self._evaluation)

    def end(self) -> None:
        """End the loop over the batches; an evaluation may follow."""
        self.end_evaluation()
        self._leave_step()
        if self._has_ended or self._phases.is_over:
            return
        self._has_ended = True
        self._timer.mark("tracking")
        self._rest.phase = "tracking"
        self._on_end(self._first_batch_seconds)

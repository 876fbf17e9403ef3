"""A loop over training batches that a framework runs: it tells of its parts, as each of them ends."""

import time
from collections.abc import Callable
from typing import Any, Protocol

from runmanager.tracking.timing.phases import PhaseTracker, Span
from runmanager.tracking.timing.timer import TRAINING, PhaseTimer


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

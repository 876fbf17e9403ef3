"""A run's clock, and turns of runs that are measured side by side: a run waits with its clock stopped."""

import math
import time
from collections.abc import Callable, Iterator
from contextlib import nullcontext
from itertools import islice
from pathlib import Path
from typing import Any, Protocol

import msgspec

from runmanager.records.files.atomic_files import LineAppender
from runmanager.records.run.run_record import EpochRecord, Grant, Turn
from runmanager.tracking.options import TurnSource
from runmanager.tracking.timing.timer import PhaseTimer


class Interruption(Protocol):
    """Whether a run was interrupted, and a way to interrupt it."""

    @property
    def is_interrupted(self) -> bool: ...

    def interrupt(self, message: str) -> None: ...


_BLOCK_SECONDS = 0.1
"""Target length of a turn: long against the millisecond of handing it over, short against the machine's drift."""
_LEAD_IN = 0.1  # untimed steps per timed step
_ACCELERATOR_LEAD_IN_SECONDS = 0.1  # of untimed steps: a GPU that idled through others' turns has a low clock


class RunTurns:
    """The turns of one run, granted by `source`; measured turns are appended to the file at `path`, if there is one.

    `interruption` is polled while the run waits, and is set off when the granting process is gone, as too little has
    been measured by then. `waited_seconds` is the time spent waiting so far, which belongs to no phase, `step_seconds`
    that of a step in the fastest turn. `is_over` is set once enough has been measured.
    """

    def __init__(self, source: TurnSource, path: Path | None, interruption: Interruption) -> None:
        self.session = source.session
        self.waited_seconds = 0.0
        self.step_seconds = math.inf
        self.is_over = False
        self._source = source
        self._path = path
        self._interruption = interruption

    def wait(self) -> None:
        """Wait for a training turn, which lasts until the next call; return immediately when the run is cancelled."""
        self._next_turn(is_measured=False)

    def measured_batches(
        self,
        batches: Iterator[Any],
        timer: PhaseTimer,
        *,
        num_steps: int | None,
        most_steps: int,
        leads_in: bool,
        least_steps: int = 1,
        read_clock: Callable[[], float | None] | None = None,
    ) -> Iterator[Any]:
        """Yield from `batches`, endless pairs (images, labels), in measured turns until enough has been measured.

        A turn has `num_steps` steps. After each, the device is waited for, the turn is recorded, and the next one is
        awaited. With `num_steps=None` a turn has as many steps as take a tenth of a second at the speed of the fastest
        turn so far, between `least_steps` and `most_steps`: slow first turns on a busy machine then shorten later ones
        only until one turn is fast. With `leads_in` the first steps of a turn are not timed, as they find cold caches.
        On an accelerator, whose clock in hertz `read_clock` reads at the end of a turn, they take a tenth of a second.
        """
        steps, samples, seconds = num_steps or least_steps, 0, 0.0
        with nullcontext() if self._path is None else LineAppender(self._path) as lines:
            while (grant := self._next_turn(is_measured=True, samples=samples, seconds=seconds)) is not None:
                if leads_in:
                    least = 0.0 if read_clock is None else _ACCELERATOR_LEAD_IN_SECONDS
                    yield from islice(batches, math.ceil(max(steps * _LEAD_IN, least / self.step_seconds)))
                timer.start()
                samples = 0
                for batch in islice(batches, steps):
                    samples += len(batch[1])
                    yield batch
                seconds = sum(timer.resolve().values())
                if lines is not None:
                    hertz = (read_clock and read_clock()) or msgspec.UNSET
                    turn = Turn(self.session, grant.round, grant.place, steps, samples, seconds, grant.warmup, hertz)
                    lines.append(msgspec.json.encode(turn))
                self.step_seconds = min(self.step_seconds, seconds / steps)
                if num_steps is None:
                    steps = min(most_steps, max(least_steps, round(_BLOCK_SECONDS / max(self.step_seconds, 1e-9))))
        self.is_over = not self._interruption.is_interrupted

    def _next_turn(self, *, is_measured: bool, samples: int = 0, seconds: float = 0.0) -> Grant | None:
        began = time.perf_counter()
        grant = None
        try:
            grant = self._source.ask(
                is_measured=is_measured,
                samples=samples,
                seconds=seconds,
                is_cancelled=lambda: self._interruption.is_interrupted,
            )
        except EOFError:
            self._interruption.interrupt("its driver is gone")
        self.waited_seconds += time.perf_counter() - began
        return grant


class RunClock:
    """Counts a run's seconds from its creation.

    `earlier_seconds` are those of earlier attempts; `left_out_seconds` do not count.
    """

    def __init__(self, timer: PhaseTimer, turns: RunTurns | None) -> None:
        self.earlier_seconds = 0.0
        self.left_out_seconds = 0.0
        self.timer = timer
        self._turns = turns
        self._begun_at = time.perf_counter()

    def seconds(self) -> float:
        """Return the run's seconds so far."""
        waited = self._turns.waited_seconds if self._turns else 0.0
        return self.earlier_seconds + time.perf_counter() - self._begun_at - waited - self.left_out_seconds

    def with_wall_times(
        self, record: EpochRecord, *, earlier_seconds: float = 0.0, waited_seconds: float = 0.0
    ) -> EpochRecord:
        """Complete the last epoch's record: everything since its last phase ended counts as tracking.

        `earlier_seconds` is the wall time of its part in an earlier process. `waited_seconds` of that time are in its
        phases already: those in which a slower rank trained.
        """
        run_seconds, now = self.seconds(), time.perf_counter()
        return msgspec.structs.replace(
            record,
            tracking_seconds=(record.tracking_seconds or 0.0) + now - self.timer.ended_at - waited_seconds,
            wall_seconds=earlier_seconds + now - self.timer.begun_at,
            run_seconds=run_seconds,
        )


def without_wall_times(record: EpochRecord) -> EpochRecord:
    """Return the record as sinks get it: their own time is not over yet."""
    return msgspec.structs.replace(record, tracking_seconds=None, wall_seconds=None)

"""A run's turns, where runs are measured side by side: it waits with its clock stopped, and times blocks of steps."""

import math
import time
from collections.abc import Callable, Iterator
from itertools import islice
from pathlib import Path
from typing import Any

import msgspec

from runmanager.records.files.atomic_files import LineAppender
from runmanager.records.files.paths import RunPaths
from runmanager.records.run.turn_record import Grant, Turn
from runmanager.tracking.options import RunOptions, TurnTaker
from runmanager.tracking.timing.timer import PhaseTimer

__all__ = ["Turns", "turns_of"]

_BLOCK_SECONDS = 0.1
"""How long a turn is to take: long beside the millisecond of passing it on, short beside the machine's drift."""
_LEAD_IN = 0.1  # steps that are not timed, for each that is


class Turns:
    """What a run does with the turns that `taker` gives it; the measured ones are kept in the file at `path`.

    `is_cancelled` is asked while it waits, and `interrupt` is to make it so where nobody is left to give a turn: what
    was measured by then was not enough. `waited_seconds` is what it has waited so far, and belongs to no phase.
    `is_over` says that enough has been measured.
    """

    def __init__(
        self, taker: TurnTaker, path: Path, *, is_cancelled: Callable[[], bool], interrupt: Callable[[str], None]
    ) -> None:
        self.session = taker.session
        self.waited_seconds = 0.0
        self.is_over = False
        self._taker = taker
        self._path = path
        self._is_cancelled = is_cancelled
        self._interrupt = interrupt

    def wait(self) -> None:
        """Wait for a turn of training, which lasts until the next call; returns at once when the run is cancelled."""
        self._ask(is_measured=False)

    def blocks(
        self, batches: Iterator[Any], timer: PhaseTimer, *, num_steps: int | None, most_steps: int, leads_in: bool
    ) -> Iterator[Any]:
        """`batches`, (images, labels) without an end, in measured turns of `num_steps` each until it is enough.

        Between two turns the device is waited for, the turn written down, and the next one waited for. Without
        `num_steps` a turn has as many as take a tenth of a second by the fastest turn so far, `most_steps` at most: a
        machine that was busy during the first turns makes later ones too short only until it rests once.
        With `leads_in` the first steps of a turn are not timed: they find their data and code out of the caches.
        """
        steps, fastest = num_steps or 1, math.inf
        samples, seconds = 0, 0.0
        with LineAppender(self._path) as lines:
            while (grant := self._ask(is_measured=True, samples=samples, seconds=seconds)) is not None:
                if leads_in:
                    yield from islice(batches, math.ceil(steps * _LEAD_IN))
                timer.start()
                samples = 0
                for batch in islice(batches, steps):
                    samples += len(batch[1])
                    yield batch
                seconds = sum(timer.resolve().values())
                lines.append(msgspec.json.encode(self._turn(grant, steps, samples, seconds)))
                fastest = min(fastest, seconds / steps)
                if num_steps is None:
                    steps = min(most_steps, max(1, round(_BLOCK_SECONDS / max(fastest, 1e-9))))
        self.is_over = not self._is_cancelled()

    def _turn(self, grant: Grant, steps: int, samples: int, seconds: float) -> Turn:
        return Turn(self.session, grant.round, grant.place, steps, samples, seconds, grant.warmup)

    def _ask(self, *, is_measured: bool, samples: int = 0, seconds: float = 0.0) -> Grant | None:
        began = time.perf_counter()
        grant = None
        try:
            grant = self._taker.ask(
                is_measured=is_measured, samples=samples, seconds=seconds, is_cancelled=self._is_cancelled
            )
        except EOFError:
            self._interrupt("its driver is gone")
        self.waited_seconds += time.perf_counter() - began
        return grant


def turns_of(
    options: RunOptions, paths: RunPaths, *, is_cancelled: Callable[[], bool], interrupt: Callable[[str], None]
) -> Turns | None:
    """The turns of a run with these options; None where it takes none."""
    if options.turns is None:
        return None
    return Turns(options.turns, paths.turns, is_cancelled=is_cancelled, interrupt=interrupt)

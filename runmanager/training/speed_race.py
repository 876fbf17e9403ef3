"""A contender of a race for speed: a cell's job that is built, trained in measured turns, and never recorded."""

import contextlib
import math
import multiprocessing
import os
import signal
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import Any

import torch

from runmanager.records.run.turn_record import Grant
from runmanager.tracking.device.devices import resolve_device
from runmanager.tracking.device.rng import seed_everything
from runmanager.tracking.epoch import Epoch
from runmanager.tracking.options import TurnSource
from runmanager.tracking.timing.interleaving import RunTurns
from runmanager.tracking.timing.timer import PhaseTimer, clock_for
from runmanager.training.job import Components, build_components
from runmanager.training.loop import tracker, train_epoch
from runmanager.training.options.job import TrainingOptions
from runmanager.training.options.step import Precision
from runmanager.training.options.turn_length import least_turn_steps
from runmanager.training.paired_measurement import endless_batches
from runmanager.training.step.allocator import keep_freed_memory
from runmanager.training.step.amp import float32_precision
from runmanager.training.step.known_networks import draws_numbers
from runmanager.training.step.micro_batches import needs_whole_batches

__all__ = ["SoloTurns", "train_in_turns"]

_COLD_TURNS = 1  # in the first turn workers start, and libraries choose their algorithms


def train_in_turns(options: TrainingOptions, source: TurnSource) -> dict[str, Any]:
    """Build a cell's job, train it in the turns that `source` grants, and return what was seen of it.

    A turn is a tenth of a second, but at least a few batches of each loader worker, or a whole epoch if that is less.
    While it waits for a turn, its loader's workers stand still: they load nothing ahead, and take no time from others.
    Returned are `device`, its type; `shares`, the shares of data, transfer and compute in the time of its turns;
    `start_seconds`, until it is built; `step_seconds`; `epoch_steps`, the number of an epoch's steps; `splits`, whether
    its batches can be computed in pieces without another result; `chosen`, what settings of `auto` became; and the
    `notes` that its run would have.
    """
    began = time.monotonic()
    device = resolve_device(options.device)
    run = _UnrecordedRun(device)
    with float32_precision(Precision(options.precision)):
        seed_everything(options.seed)
        keep_freed_memory()
        components = build_components(run, options)
        timer = _SummingTimer(device)
        built = time.monotonic()
        _train(components, options, _batches(components, options, source, timer), timer)
    stepper = components.stepper
    return {
        "device": device.type,
        "shares": timer.shares(),
        "start_seconds": built - began,
        "step_seconds": timer.seconds_a_step(),
        "epoch_steps": len(components.loaders.train),
        "splits": stepper.loss.splits and not _is_another_in_pieces(stepper.network),
        "chosen": run.chosen,
        "notes": tuple(run.notes),
    }


def _is_another_in_pieces(network: torch.nn.Module) -> bool:
    """Whether the pieces of a batch would compute something else: other statistics, or other random numbers."""
    return needs_whole_batches(network) or draws_numbers(network)


def _train(components: Components, options: TrainingOptions, batches: Iterator[Any], timer: "_SummingTimer") -> None:
    stepper = components.stepper
    epoch = Epoch(1, timer=timer, device=timer.device)
    track = tracker(epoch.track, stepper.loss)
    train_epoch(stepper, epoch.batches(batches), track=track)


def _batches(components: Components, options: TrainingOptions, source: TurnSource, timer: PhaseTimer) -> Iterator[Any]:
    """The training batches in turns; see `RunTurns.measured_batches`."""
    loader = components.loaders.train
    turns = RunTurns(_WorkersStandStill(source), None, _Uninterrupted())
    return turns.measured_batches(
        endless_batches(loader, 1),
        timer,
        num_steps=None,
        least_steps=least_turn_steps(options, len(loader)),
        most_steps=len(loader),
        leads_in=False,
    )


class _UnrecordedRun:
    """Stands for the run whose components are built; keeps its notes, and what settings of `auto` became."""

    def __init__(self, device: torch.device) -> None:
        self.device = device
        self.notes: list[str] = []
        self.chosen: dict[str, bool | int | None] = {}

    def note(self, line: str) -> None:
        self.notes.append(line)

    def note_deviation(self, line: str) -> None:
        self.notes.append(line)

    def add_measurements(self, **measurements: Any) -> None:
        """Keep what was chosen; no other measurement of a run is needed."""
        self.chosen |= measurements.get("chosen", {})

    def begin(self, network: Any, loader: Any, *, optimizer: Any, checkpointer: Any) -> None:
        """A run without a record begins nothing."""


class _Uninterrupted:
    """An interruption for `RunTurns`: the process of a contender is ended by its signals."""

    is_interrupted = False

    def interrupt(self, message: str) -> None:
        self.is_interrupted = True


class _SummingTimer(PhaseTimer):
    """A timer that also sums up what all its divisions gave."""

    def __init__(self, device: torch.device) -> None:
        super().__init__(clock_for(device))
        self.device = device
        self._total: Counter[str] = Counter()
        self._fastest = math.inf
        self._num_turns = 0

    def resolve(self) -> dict[Any, float]:
        """As in `PhaseTimer`."""
        found = super().resolve()
        self._num_turns += 1
        if steps := len(self.step_seconds):
            self._fastest = min(self._fastest, sum(found.values()) / steps)
        if self._num_turns > _COLD_TURNS:
            self._total.update({str(phase): seconds for phase, seconds in found.items()})
        return found

    def shares(self) -> dict[str, float]:
        """The share of each phase in all seconds."""
        total = sum(self._total.values())
        return {phase: seconds / total for phase, seconds in self._total.items()} if total else {}

    def seconds_a_step(self) -> float:
        """Seconds of a step in the fastest turn; infinite before the first."""
        return self._fastest


class _WorkersStandStill:
    """A source of turns that stops the loader's workers of this process while it waits for one."""

    def __init__(self, source: TurnSource) -> None:
        self._source = source
        self.session, self.again, self.family = source.session, source.again, source.family

    def ask(
        self, *, is_measured: bool, samples: int = 0, seconds: float = 0.0, is_cancelled: Callable[[], bool]
    ) -> Grant | None:
        with _standing_still(each.pid for each in multiprocessing.active_children()):
            return self._source.ask(
                is_measured=is_measured, samples=samples, seconds=seconds, is_cancelled=is_cancelled
            )


@contextmanager
def _standing_still(pids: Iterable[int | None]) -> Iterator[None]:
    known = [pid for pid in pids if pid is not None]
    _signal(known, signal.SIGSTOP)
    try:
        yield
    finally:
        _signal(known, signal.SIGCONT)


def _signal(pids: Iterable[int], number: signal.Signals) -> None:
    for pid in pids:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, number)


class SoloTurns:
    """Grants a process turns for `seconds`, and `least` at least: it is alone."""

    session = ""
    again = False
    family = None

    def __init__(self, seconds: float, *, least: int) -> None:
        self._until = time.monotonic() + seconds
        self._left = least

    def ask(
        self, *, is_measured: bool, samples: int = 0, seconds: float = 0.0, is_cancelled: Callable[[], bool]
    ) -> Grant | None:
        """Return the next turn; None after the last one."""
        self._left -= 1
        return Grant() if self._left >= 0 or time.monotonic() < self._until else None

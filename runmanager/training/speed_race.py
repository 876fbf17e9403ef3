"""A contender of a race for speed: a cell's job that is built, trained in measured turns, and never recorded."""

import contextlib
import multiprocessing
import os
import signal
import time
from collections import Counter
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any

import torch

from runmanager.records.run.run_record import Grant
from runmanager.tracking.device.devices import made_current, resolve_device, seed_everything
from runmanager.tracking.epoch import Epoch, EpochContext
from runmanager.tracking.options import TurnSource
from runmanager.tracking.timing.interleaving import RunTurns
from runmanager.tracking.timing.timer import PhaseTimer, clock_for
from runmanager.training.job import build_components, train_in_turns
from runmanager.training.options.job import Precision, TrainingOptions
from runmanager.training.step.amp import cudnn_benchmark, float32_precision
from runmanager.training.step.automatic_step import draws_numbers
from runmanager.training.step.micro_batches import keep_freed_memory, needs_whole_batches

_COLD_TURNS = 1  # in the first turn workers start, and libraries choose their algorithms


def train_contender(options: TrainingOptions, source: TurnSource) -> dict[str, Any]:
    """Build a cell's job, train it in the turns that `source` grants, and return what was seen of it.

    A turn is a tenth of a second, but at least a few batches of each loader worker, or a whole epoch if that is less.
    While it waits for a turn, its loader's workers stand still: they load nothing ahead, and take no time from others.
    Returned are `device`, its type; `shares`, the shares of data, transfer and compute in the time of its turns;
    `start_seconds`, until it is built; `step_seconds`; `epoch_steps`, the number of an epoch's steps; `splits`, whether
    its batches can be computed in pieces without another result; and `chosen`, what settings of `auto` became.
    """
    began = time.monotonic()
    device = resolve_device(options.device)
    run = _UnrecordedRun(device)
    precision = float32_precision(Precision(options.precision))
    with made_current(device), precision, cudnn_benchmark(options.cudnn_benchmark):
        seed_everything(options.seed)
        keep_freed_memory()
        components = build_components(run, options)
        timer = _SummingTimer(device)
        built = time.monotonic()
        num_steps = len(components.loaders.train)
        turns = RunTurns(_WorkersStandStill(source), None, run)
        train_in_turns(
            components,
            Epoch(1, EpochContext(timer, device)),
            partial(turns.measured_batches, timer=timer),
            first_epoch=1,
            num_steps=None,
            least_steps=options.least_turn_steps(num_steps),
            leads_in=False,
        )
    network, loss = components.stepper.network, components.stepper.loss
    return {
        "device": device.type,
        "shares": timer.shares(),
        "start_seconds": built - began,
        "step_seconds": turns.step_seconds,
        "epoch_steps": num_steps,
        # Else its pieces would have other statistics, or other random numbers.
        "splits": loss.splits and not (needs_whole_batches(network) or draws_numbers(network)),
        "chosen": run.chosen,
    }


class _UnrecordedRun:
    """Stands for the run whose components are built; keeps what settings of `auto` became.

    Nothing interrupts it: the process of a contender is ended by its signals.
    """

    is_interrupted = False

    def __init__(self, device: torch.device) -> None:
        self.device = device
        self.chosen: dict[str, bool | int | None] = {}

    def note(self, line: str) -> None:
        """A run without a record has no notes."""

    note_deviation = note

    def add_measurements(self, **measurements: Any) -> None:
        """Keep what was chosen; no other measurement of a run is needed."""
        self.chosen |= measurements.get("chosen", {})

    def reset_peak_memory(self) -> None:
        """A run without a record has no peak."""

    def begin(self, network: Any, loader: Any, *, optimizer: Any, checkpointer: Any) -> None:
        """A run without a record begins nothing."""

    def interrupt(self, message: str) -> None:
        self.is_interrupted = True


class _SummingTimer(PhaseTimer):
    """A timer that also sums up what all its divisions gave."""

    def __init__(self, device: torch.device) -> None:
        super().__init__(clock_for(device))
        self.device = device
        self._total: Counter[str] = Counter()
        self._num_turns = 0

    def resolve(self) -> dict[Any, float]:
        """As in `PhaseTimer`."""
        found = super().resolve()
        self._num_turns += 1
        if self._num_turns > _COLD_TURNS:
            self._total.update({str(phase): seconds for phase, seconds in found.items()})
        return found

    def shares(self) -> dict[str, float]:
        """The share of each phase in all seconds."""
        total = sum(self._total.values())
        return {phase: seconds / total for phase, seconds in self._total.items()} if total else {}


class _WorkersStandStill:
    """A source of turns that stops the loader's workers of this process while it waits for one."""

    def __init__(self, source: TurnSource) -> None:
        self._source = source
        self.session, self.again, self.family = source.session, source.again, source.family

    def ask(self, **measured: Any) -> Grant | None:
        with _standing_still(each.pid for each in multiprocessing.active_children()):
            return self._source.ask(**measured)


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

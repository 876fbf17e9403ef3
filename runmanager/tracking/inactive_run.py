"""Stand-in for a skipped or finished run: it has the interface of an active run, and records nothing."""

import functools
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import torch

from runmanager.records.files.paths import RunPaths
from runmanager.records.run.run_record import EpochRecord, RunRecord
from runmanager.records.run.status import Status
from runmanager.records.storage.run_folder import RunFolder
from runmanager.text import pluralize
from runmanager.tracking.epoch import Epoch, EpochContext
from runmanager.tracking.lifecycle.finalizers import temporary_folder
from runmanager.tracking.lifecycle.run_values import Summary
from runmanager.tracking.options import Checkpointer
from runmanager.tracking.run_calls import LoopCalls
from runmanager.tracking.timing.timer import PhaseTimer, clock_for

_CPU = torch.device("cpu")


class InactiveEpoch(Epoch):
    """An epoch that is never recorded: it yields no batches and discards what is tracked."""

    def __init__(self, number: int) -> None:
        timer = PhaseTimer(clock_for(_CPU))
        timer.start()
        super().__init__(number, EpochContext(timer, _CPU))

    def batches(self, loader: Iterable[Any]) -> Iterator[Any]:
        """Yield nothing."""
        return iter(())

    def eval_batches(self, loader: Iterable[Any]) -> Iterator[Any]:
        """Yield nothing."""
        return iter(())


def _ignored(call: Callable[..., Any]) -> Any:
    """Return a method with the same parameters that does nothing."""

    @functools.wraps(call)
    def ignore(self: "InactiveRun", *arguments: Any, **named: Any) -> None:
        pass

    return ignore


class InactiveRun:
    """A run whose device is missing, or that was finished earlier: it yields no epochs.

    `history` holds the stored epochs. `device` is the CPU, so that a network can be built without harm. `show` prints a
    line for the user. Every call of an active run is allowed, and changes nothing that is stored.
    """

    is_resumed = False
    num_steps = 0

    def __init__(self, folder: RunFolder, history: Sequence[EpochRecord], *, show: Callable[[str], None]) -> None:
        self.device = _CPU
        self.history = list(history)
        self._folder = folder
        self._show = show
        self._last_number = 0
        self._summary = Summary(folder.record.summary or {}, check=lambda: None, changed=lambda: None)
        self._temporary: Path | None = None

    @property
    def record(self) -> RunRecord:
        """The stored record of the run."""
        return self._folder.record

    @property
    def paths(self) -> RunPaths:
        """The paths of the run's files."""
        return self._folder.paths

    def begin(
        self,
        network: torch.nn.Module | None,
        loader: Any,
        *,
        optimizer: torch.optim.Optimizer | None = None,
        checkpointer: Checkpointer | None = None,
    ) -> None:
        """Do nothing: the network stays on its device."""

    def epochs(self, num_epochs: int) -> Iterator[Epoch]:
        """Yield nothing; print a line if the run was finished with another number of epochs."""
        planned = self.record.epochs_planned
        if self.record.status is Status.FINISHED and planned is not None and planned != num_epochs:
            self._show(f"{self.record.name}: kept with {pluralize(planned, 'epoch')}, but {num_epochs} were requested")
        return iter(())

    def reset_peak_memory(self) -> None:
        """Do nothing."""

    def measure_inference(
        self, network: torch.nn.Module, example: Any, batch_sizes: Sequence[int] = (1, 32), *, seconds: float = 1.0
    ) -> None:
        """Do nothing: the network was not trained."""

    def plan_epochs(self, num_epochs: int) -> int:
        """Return the number."""
        return num_epochs

    def evaluation_before_training(self) -> Iterator[Epoch]:
        """Yield nothing."""
        return iter(())

    def evaluation_again(self) -> Iterator[Epoch]:
        """Yield nothing."""
        return iter(())

    def unrecorded_epoch(self) -> Epoch:
        """Return an epoch without batches."""
        return InactiveEpoch(self._last_number + 1)

    def measured_batches(
        self, batches: Iterator[Any], *, num_steps: int | None, most_steps: int, leads_in: bool
    ) -> Iterator[Any]:
        """Yield nothing."""
        return iter(())

    def begin_epoch(self, number: int | None = None, *, is_all_training: bool = False) -> Epoch:
        """Return an epoch without batches: the next one, counted from 1, or epoch `number`."""
        self._last_number = self._last_number + 1 if number is None else number
        return InactiveEpoch(self._last_number)

    def end_epoch(self, epoch: Epoch) -> EpochRecord:
        """Return the stored record of the epoch with this number, or an empty one."""
        stored = (each for each in self.history if each.epoch == epoch.number)
        return next(stored, EpochRecord(epoch.number))

    def discard_epoch(self) -> None:
        """Do nothing."""

    @property
    def dir(self) -> Path:
        """A temporary folder, removed with this object: the files of the stored run stay as they are."""
        self._temporary = self._temporary or temporary_folder(self)
        return self._temporary

    @property
    def summary(self) -> Summary:
        """The stored summary; changes of it are not kept."""
        return self._summary

    @property
    def should_stop(self) -> bool:
        """Whether the run should end: always."""
        return True

    def batches(self, loader: Iterable[Any]) -> Iterator[Any]:
        """Yield nothing."""
        return iter(())

    def evaluating(self) -> AbstractContextManager[None]:
        """Return a `with` block that does nothing."""
        return nullcontext()

    log = _ignored(LoopCalls.log)
    log_image = _ignored(LoopCalls.log_image)
    log_figure = _ignored(LoopCalls.log_figure)
    log_text = _ignored(LoopCalls.log_text)
    track = _ignored(LoopCalls.track)
    track_eval = _ignored(LoopCalls.track_eval)
    add_measurements = _ignored(LoopCalls.add_measurements)
    note = _ignored(LoopCalls.note)
    note_deviation = _ignored(LoopCalls.note_deviation)
    write_world_size = _ignored(LoopCalls.write_world_size)
    stop_early = _ignored(LoopCalls.stop_early)
    interrupt = _ignored(LoopCalls.interrupt)

    def end(self, error: BaseException | None = None) -> RunRecord:
        """Return the stored record."""
        return self.record

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        pass

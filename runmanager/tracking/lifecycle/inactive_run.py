"""A run that is not to be run, to those who would run it: it has every part of an active one, and records nothing."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from types import TracebackType
from typing import Any, Self

import torch

from runmanager.records.run.record import EpochRecord, RunRecord
from runmanager.records.run.status import Status
from runmanager.records.storage.run_folder import RunFolder
from runmanager.text import pluralize
from runmanager.tracking.epoch import Epoch
from runmanager.tracking.options import Checkpointer
from runmanager.tracking.timing.timer import PhaseTimer, clock_for

__all__ = ["IdleEpoch", "InactiveRun"]

_CPU = torch.device("cpu")


class IdleEpoch(Epoch):
    """An epoch that is recorded nowhere: it hands out no batches, and what is tracked in it is forgotten."""

    def __init__(self, number: int) -> None:
        timer = PhaseTimer(clock_for(_CPU))
        timer.start()
        super().__init__(number, timer=timer, device=_CPU)

    def batches(self, loader: Iterable[Any]) -> Iterator[Any]:
        """Nothing."""
        return iter(())

    def eval_batches(self, loader: Iterable[Any]) -> Iterator[Any]:
        """Nothing."""
        return iter(())


class InactiveRun:
    """A run that is not to be run: its device is missing, or it was finished earlier. It yields no epochs.

    `history` is what is stored of it. `device` is the CPU, where a network that is built all the same does no harm.
    `say` shows a line to the user. Every call of an active run may be made, and changes nothing that is stored.
    """

    turns = None
    is_resumed = False
    num_steps = 0

    def __init__(self, folder: RunFolder, history: Sequence[EpochRecord], *, say: Callable[[str], None]) -> None:
        self.folder = folder
        self.device = _CPU
        self.history = list(history)
        self._say = say
        self._last_number = 0

    @property
    def record(self) -> RunRecord:
        """The run's record as it is stored."""
        return self.folder.record

    def begin(
        self,
        network: torch.nn.Module,
        loader: Any,
        *,
        optimizer: torch.optim.Optimizer | None = None,
        checkpointer: Checkpointer | None = None,
    ) -> None:
        """Nothing: the network stays where it is."""

    def epochs(self, num_epochs: int) -> Iterator[Epoch]:
        """Nothing; where the run was finished with another number of epochs, it is said that they are not run."""
        planned = self.record.epochs_planned
        if self.record.status is Status.FINISHED and planned is not None and planned != num_epochs:
            self._say(f"{self.record.name}: kept with {pluralize(planned, 'epoch')}, now asked for {num_epochs}")
        return iter(())

    def evaluation_before_training(self) -> Iterator[Epoch]:
        """Nothing."""
        return iter(())

    def evaluation_again(self) -> Iterator[Epoch]:
        """Nothing."""
        return iter(())

    def unrecorded_epoch(self) -> Epoch:
        """An epoch without batches."""
        return IdleEpoch(self._last_number + 1)

    def begin_epoch(self, number: int | None = None, *, is_all_training: bool = False) -> Epoch:
        """An epoch without batches: the next one, counted from 1, or epoch `number`."""
        self._last_number = self._last_number + 1 if number is None else number
        return IdleEpoch(self._last_number)

    def end_epoch(self, epoch: Epoch) -> EpochRecord:
        """What is stored of the epoch of this number; an empty record where nothing is."""
        stored = (each for each in self.history if each.epoch == epoch.number)
        return next(stored, EpochRecord(epoch.number))

    def learn(self, **facts: Any) -> None:
        """Nothing."""

    def note(self, line: str) -> None:
        """Nothing."""

    def deviates(self, line: str) -> None:
        """Nothing."""

    def stop_early(self, message: str) -> None:
        """Nothing."""

    def interrupt(self, message: str = "interrupted") -> None:
        """Nothing."""

    def end(self, error: BaseException | None = None) -> RunRecord:
        """Nothing; returns the record."""
        return self.record

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        pass

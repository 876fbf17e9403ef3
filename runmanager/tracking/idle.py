"""A run that is not to be run, to those who would run it."""

from collections.abc import Callable, Iterator
from types import TracebackType
from typing import Any, Self

import torch

from runmanager.records.run import EpochRecord, RunRecord
from runmanager.records.spoken import counted
from runmanager.records.states import Status
from runmanager.tracking.epoch import Epoch
from runmanager.tracking.options import Checkpointer

__all__ = ["IdleRun"]


class IdleRun:
    """A run that is not to be run: its device is missing, or it was finished earlier. It yields no epochs.

    `device` is the CPU, where a network that is built all the same does no harm. `say` shows a line to the user.
    """

    def __init__(self, record: RunRecord, *, say: Callable[[str], None]) -> None:
        self.record = record
        self.device = torch.device("cpu")
        self.history: list[EpochRecord] = []
        self._say = say

    def begin(
        self,
        network: torch.nn.Module,
        loader: Any,
        *,
        optimizer: torch.optim.Optimizer | None = None,
        checkpointer: Checkpointer | None = None,
    ) -> None:
        """Nothing: the network stays where it is."""

    def stop_early(self, message: str) -> None:
        """Nothing."""

    def epochs(self, num_epochs: int) -> Iterator[Epoch]:
        """Nothing; where the run was finished with another number of epochs, it is said that they are not run."""
        planned = self.record.epochs_planned
        if self.record.status is Status.FINISHED and planned is not None and planned != num_epochs:
            self._say(f"{self.record.name}: kept with {counted(planned, 'epoch')}, now asked for {num_epochs}")
        return iter(())

    def evaluation_before_training(self) -> Iterator[Epoch]:
        """Nothing."""
        return iter(())

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        pass

"""A run that is not to be run, to those who would run it."""

from collections.abc import Iterator
from types import TracebackType
from typing import Any, Self

import torch

from runmanager.records.run import EpochRecord, RunRecord
from runmanager.tracking.epoch import Epoch
from runmanager.tracking.options import Checkpointer

__all__ = ["IdleRun"]


class IdleRun:
    """A run that is not to be run: its device is missing, or it was finished earlier. It yields no epochs."""

    def __init__(self, record: RunRecord) -> None:
        self.record = record
        self.history: list[EpochRecord] = []

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
        """Nothing."""
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

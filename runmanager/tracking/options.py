"""What a run is given by whoever begins it: how to track it, and what keeps its training state."""

from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

import msgspec

from runmanager.records.run import EpochRecord
from runmanager.tracking.early_stop import EarlyStopOptions

__all__ = ["Checkpointer", "Progress", "RunOptions"]


@dataclass(frozen=True)
class RunOptions:
    """How a run is tracked: `step/loss` every `log_every` steps (0: never), so many warm-up epochs at least."""

    log_every: int = 0
    warmup_epochs: int = 1
    early_stop: EarlyStopOptions = EarlyStopOptions()


class Progress(msgspec.Struct, frozen=True):
    """How far a run has come: what a checkpoint carries beside the training state.

    `record` is the last epoch's, as known when the checkpoint is written; `events_length` the event file's bytes;
    `num_steps` the optimiser steps taken.
    """

    record: EpochRecord
    events_length: int
    num_steps: int


class Checkpointer(Protocol):
    """Keeps the training state of a run."""

    def is_due(self, epoch: int) -> bool:
        """Whether to save after this epoch."""
        ...

    def save(self, path: Path, progress: Progress) -> None:
        """Write state and progress, atomically."""
        ...

    def load(self, path: Path) -> Progress:
        """Put the state back and return the progress."""
        ...

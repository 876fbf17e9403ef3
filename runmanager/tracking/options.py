"""What a run is given by whoever begins it: how to track it, and what keeps its training state. Loads no torch."""

from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol

import msgspec

from runmanager.records.run.record import EpochRecord
from runmanager.records.run.turn_record import Grant
from runmanager.tracking.early_stop import EarlyStopOptions

__all__ = [
    "CAPTURING_DEVICES",
    "STREAMING_DEVICES",
    "Checkpointer",
    "Progress",
    "RunOptions",
    "TensorBoardOptions",
    "TurnTaker",
]

CAPTURING_DEVICES = ("cuda",)
"""The kinds of devices that can write down what a step asks of them, and do it again."""
STREAMING_DEVICES = ("cuda", "xpu")
"""The kinds of devices that copy on one stream while they compute on another."""


@dataclass(frozen=True)
class TensorBoardOptions:
    """What goes to TensorBoard beside the scalars; `enabled=false` writes no event file at all.

    `predictions` and `confusion_matrix` show evaluations.
    """

    enabled: bool = True
    images: bool = True
    graph: bool = True
    histograms: bool = False
    predictions: bool = True
    confusion_matrix: bool = True


class TurnTaker(Protocol):
    """Gives a run its turns on the machine, where several live side by side; `session` is the name they share.

    `again` lets a run that is finished go on from its last checkpoint, to take its measured turns once more.
    """

    @property
    def session(self) -> str: ...

    @property
    def again(self) -> bool: ...

    def ask(
        self, *, is_measured: bool, samples: int = 0, seconds: float = 0.0, is_cancelled: Callable[[], bool]
    ) -> Grant | None:
        """Give the last turn back, with what it measured, and wait for the next; None: there is none any more.

        Raises `EOFError` where whoever gave them is gone.
        """
        ...


@dataclass(frozen=True)
class RunOptions:
    """How a run is tracked: `step/loss` every `log_every` steps (0: never), so many warm-up epochs at least.

    With `turns` it trains and is measured only when it is its turn. `precision` is what a step's products are computed
    in (`bf16`, `fp16`), where its weights are of another type. `is_built_in` is for the job that this package brings:
    the process's main script is then no part of its code.
    """

    log_every: int = 0
    warmup_epochs: int = 1
    early_stop: EarlyStopOptions = field(default_factory=EarlyStopOptions)
    turns: TurnTaker | None = None
    precision: str | None = None
    is_built_in: bool = False


class Progress(msgspec.Struct, frozen=True):
    """How far a run has come: what a checkpoint carries beside the training state.

    `record` is the last epoch's, as known when the checkpoint is written; `events_length` the event file's bytes;
    `num_steps` the optimiser steps taken.
    """

    record: EpochRecord
    events_length: int
    num_steps: int


class Checkpointer(Protocol):
    """Keeps the training state of a run; asked in this order after each epoch."""

    def observe(self, record: EpochRecord) -> None:
        """Learn what the epoch reached; its wall time is not known yet."""
        ...

    def is_due(self, epoch: int) -> bool:
        """Whether to save after this epoch."""
        ...

    def save(self, path: Path, progress: Progress) -> None:
        """Write state and progress, atomically."""
        ...

    def load(self, path: Path) -> Progress:
        """Put the state back and return the progress."""
        ...

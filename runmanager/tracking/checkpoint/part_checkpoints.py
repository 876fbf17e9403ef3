"""Checkpoints within an epoch: taken in time, where the loader's state lets the epoch continue there."""

import time
from collections.abc import Callable
from typing import Any

from runmanager.tracking.epoch import Epoch
from runmanager.tracking.options import Checkpointer

__all__ = ["PartCheckpoints"]


class PartCheckpoints:
    """Calls `save(epoch)` between two batches of an epoch, at most once every `seconds` (0: never)."""

    def __init__(
        self,
        checkpointer: Checkpointer,
        save: Callable[[Epoch], None],
        *,
        seconds: float,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._checkpointer = checkpointer
        self._save = save
        self._seconds = seconds
        self._clock = clock
        self._last = clock()

    def saved(self) -> None:
        """Note that a checkpoint has just been taken."""
        self._last = self._clock()

    def after_step(self, epoch: Epoch, loader: Any) -> None:
        """Take a checkpoint if one is due and the epoch can continue from here."""
        if not self._seconds or not self._checkpointer.resumes_within(loader):
            return
        if self._clock() - self._last >= self._seconds:
            with epoch.phase("tracking"):
                self._save(epoch)
            self.saved()

"""Which epoch of a run is open: one at a time, each ended once."""

import threading
from collections.abc import Callable

from runmanager.errors import UsageError
from runmanager.records.run.record import EpochRecord
from runmanager.tracking.epoch import Epoch
from runmanager.tracking.metrics.loss_buffer import LoggedLosses

__all__ = ["OpenEpoch"]


class OpenEpoch:
    """The epoch of a run that was begun and is not ended, if there is one. `lock` is for who changes that."""

    def __init__(self) -> None:
        self.lock = threading.RLock()
        self._epoch: Epoch | None = None

    def is_this(self, epoch: Epoch) -> bool:
        """Whether it is `epoch`."""
        return self._epoch is epoch

    def begin(self, make: Callable[[int], Epoch], number: int, *, last: int) -> Epoch:
        """Let what `make` returns for `number` be the open epoch, after those up to `last`.

        Raises `UsageError` while there is another, or was one of this number or a later one.
        """
        with self.lock:
            if self._epoch is not None:
                raise UsageError(
                    f"begin_epoch() must come after the end of the epoch before, got epoch {self._epoch.number} still "
                    "open; call end_epoch(epoch) first."
                )
            if number <= last:
                raise UsageError(
                    f"begin_epoch() must get a number above {last}, got {number}; leave it out for the next one."
                )
            self._epoch = make(number)
            return self._epoch

    def close(self, epoch: Epoch) -> tuple[EpochRecord, LoggedLosses]:
        """Close `epoch` (see `Epoch.close`). Raises `UsageError` where it is not the open one."""
        with self.lock:
            if epoch is not self._epoch:
                raise UsageError(
                    f"end_epoch() must get the run's open epoch, got epoch {epoch.number}, which is not; each is ended "
                    "once, in its own run."
                )
            closed = epoch.close()
            self._epoch = None
            return closed

    def settle(self, end: Callable[[Epoch], object], *, refuse: bool = False) -> None:
        """Leave no epoch open: `end` the one that is, where all its batches were taken, and forget any other.

        Raises `UsageError` for one that is forgotten where that is to be refused, and whatever `end` raises.
        """
        epoch = self._epoch
        if epoch is None:
            return
        try:
            if epoch.is_whole:
                end(epoch)
            elif refuse:
                raise UsageError(
                    f"Epoch {epoch.number} must be ended before its run, got one that is still open, and that is not "
                    "recorded; call end_epoch(epoch) first."
                )
        finally:
            self._epoch = None

"""The epochs of an active run, one after the other."""

from abc import ABC, abstractmethod
from collections.abc import Iterator

from runmanager.records.run.run_record import EpochRecord
from runmanager.records.storage.run_folder import RunFolder
from runmanager.tracking.epoch import Epoch
from runmanager.tracking.epoch_recorder import EpochRecorder
from runmanager.tracking.lifecycle.run_epochs import OpenEpoch
from runmanager.tracking.lifecycle.stop_policy import StopPolicy
from runmanager.tracking.timing.interleaving import RunTurns

__all__ = ["EpochCalls"]


class EpochCalls(ABC):
    """A loop over the epochs that remain to be run."""

    _folder: RunFolder
    _open: OpenEpoch
    _epochs: EpochRecorder
    _stop_policy: StopPolicy
    _turns: RunTurns | None

    @abstractmethod
    def plan_epochs(self, num_epochs: int) -> int: ...

    @abstractmethod
    def begin_epoch(self, number: int | None = None, *, is_all_training: bool = False) -> Epoch: ...

    @abstractmethod
    def end_epoch(self, epoch: Epoch) -> EpochRecord: ...

    def epochs(self, num_epochs: int) -> Iterator[Epoch]:
        """Yield the epochs that remain to be run, counted from 1 to `num_epochs`."""
        last = self.plan_epochs(num_epochs)
        for number in range(self._epochs.history.next_number, last + 1):
            self._wait_for_turn()
            if self._stop_policy.should_stop:
                return
            yield from self._one_epoch(number)

    def _one_epoch(self, number: int) -> Iterator[Epoch]:
        epoch = self.begin_epoch(number)
        try:
            yield epoch
        except GeneratorExit:
            # The loop was left. If all of the epoch's batches were taken before, the epoch must not be lost.
            if self._open.is_this(epoch) and self._folder.is_ours:
                self._open.end_or_discard(self.end_epoch)
            raise
        if self._open.is_this(epoch):  # the loop's body may have ended it itself, for its record
            self.end_epoch(epoch)

    def _wait_for_turn(self) -> None:
        if self._turns is not None and not self._stop_policy.should_stop:
            self._turns.wait()

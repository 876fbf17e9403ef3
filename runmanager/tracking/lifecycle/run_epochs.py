"""The epochs of a run: the open one, and the recorded ones."""

import threading
from collections.abc import Callable, Sequence

from runmanager.errors import UsageError
from runmanager.records.run.attempts import attempts_up_to, epochs_of_other_runs
from runmanager.records.run.environment_changes import epochs_in_other_environments
from runmanager.records.run.run_record import EpochRecord
from runmanager.records.storage.run_folder import RunFolder
from runmanager.tracking.epoch import Epoch
from runmanager.tracking.epoch_metrics.loss_buffer import LoggedLosses
from runmanager.tracking.timing.warmup import Warmup

__all__ = ["EpochHistory", "OpenEpoch"]


class OpenEpoch:
    """The epoch of a run that has begun and not ended, if any; hold `lock` to change it from several threads."""

    def __init__(self) -> None:
        self.lock = threading.RLock()
        self._epoch: Epoch | None = None

    @property
    def current(self) -> Epoch | None:
        """The open epoch."""
        return self._epoch

    def discard(self) -> None:
        """Leave no epoch open, and record none."""
        with self.lock:
            self._epoch = None

    def is_this(self, epoch: Epoch) -> bool:
        """Return whether `epoch` is the open one."""
        return self._epoch is epoch

    def begin(self, make: Callable[[int], Epoch], number: int, *, last: int) -> Epoch:
        """Open and return the epoch that `make(number)` builds.

        Raises `UsageError` while another epoch is open, and for a `number` not above that of the `last` epoch.
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
        """Close `epoch` (see `Epoch.close`). Raises `UsageError` if it is not the open one."""
        with self.lock:
            if epoch is not self._epoch:
                raise UsageError(
                    f"end_epoch() must get the run's open epoch, got epoch {epoch.number}, which is not; each is ended "
                    "once, in its own run."
                )
            try:
                return epoch.close()
            finally:
                if epoch.has_ended:  # also if one of its metrics could not be computed
                    self._epoch = None

    def end_or_discard(self, end: Callable[[Epoch], object], *, must_be_whole: bool = False) -> None:
        """Leave no epoch open: pass a whole one, all of whose batches were taken, to `end`; discard any other.

        Raises `UsageError` for a discarded epoch if it `must_be_whole`, and any exception of `end`.
        """
        epoch = self._epoch
        if epoch is None:
            return
        try:
            if epoch.is_whole:
                end(epoch)
            elif must_be_whole:
                raise UsageError(
                    f"Epoch {epoch.number} must be ended before its run, got one that is still open, and that is not "
                    "recorded; call end_epoch(epoch) first."
                )
        finally:
            self._epoch = None


class EpochHistory:
    """The recorded epochs of a run, in its folder and in memory, each marked as warm-up or not."""

    def __init__(self, folder: RunFolder, *, warmup_epochs: int) -> None:
        self.records: list[EpochRecord] = []
        self._folder = folder
        self._warmup = Warmup(warmup_epochs)

    @property
    def last_number(self) -> int:
        """The number of the last epoch; -1 before the first."""
        return self.records[-1].epoch if self.records else -1

    @property
    def next_number(self) -> int:
        """The number of the next epoch of training."""
        return max(self.last_number + 1, 1)

    @property
    def num_trained(self) -> int:
        """The number of training epochs in this process."""
        return self._warmup.num_epochs

    @property
    def num_lost(self) -> int:
        """The number of epochs of training before the last one that have no record."""
        return max(self.last_number, 0) - sum(each.epoch > 0 for each in self.records)

    @property
    def warmup_epochs(self) -> Sequence[int]:
        """The numbers of this process's epochs that are warm-up by now."""
        return self._warmup.epochs

    def restore(self, last: EpochRecord | None) -> None:
        """Continue after epoch `last` of a checkpoint: cut what was recorded later, and add `last` if it is missing.

        None if the checkpoint was taken within the first epoch.
        """
        kept = 0 if last is None else last.epoch
        record = self._folder.write(earlier=attempts_up_to(self._folder.record.earlier, kept))
        unmeasured = [*epochs_in_other_environments(record), epochs_of_other_runs(record)]
        self.records = self._folder.cut_epochs(last, unmeasured=unmeasured)

    def judge_warmup(self, record: EpochRecord, step_seconds: Sequence[float], *, is_continued: bool = False) -> bool:
        """Return whether a new epoch with these step times is warm-up; `is_continued` by an earlier process's part."""
        return self._warmup.judge(record, step_seconds, is_continued=is_continued)

    def revise_warmup(self) -> None:
        """Correct the marks of earlier epochs, here and in the folder, if the last judged epoch has changed them."""
        if self._warmup.revise(self.records):
            self._folder.replace_epochs(self.records)

    def append(self, record: EpochRecord) -> None:
        """Add an epoch's record to epochs.jsonl; it survives a kill from here on."""
        self._folder.keep_epochs(self.records)
        self._folder.append(record)
        self.records.append(record)

    def sync(self) -> None:
        """Let all recorded epochs survive a power cut, and be there if their file was deleted meanwhile."""
        self._folder.keep_epochs(self.records)
        self._folder.sync_epochs()

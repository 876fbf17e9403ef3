"""The epochs of a run: the open one, the recorded ones, and which of them are warm-up."""

import math
import threading
from collections.abc import Callable, Sequence
from itertools import pairwise
from statistics import fmean, median

import msgspec

from runmanager.errors import UsageError
from runmanager.records.run.attempts import attempts_up_to, epochs_of_other_runs
from runmanager.records.run.environment_changes import epochs_in_other_environments
from runmanager.records.run.run_record import EpochRecord
from runmanager.records.storage.run_folder import RunFolder
from runmanager.tracking.epoch import Epoch
from runmanager.tracking.epoch_metrics.loss_buffer import LoggedLosses

_MIN_STEPS = 20  # to see a trend
_STILL_FASTER = 0.95  # epochs of a settled run differ by 2% to 4%
_SETTLED_WITHIN = 1.25  # noise of a shared machine reaches 20% within an epoch; caches and autotuning cost more
_LEAST_STEP = math.log(1.1)  # between epochs: a smaller one is noise, or not worth an epoch
_NUM_ERRORS = 4.0  # standard errors that such a step must exceed
_LEAST_NOISE = 0.02
_LEAST_SETTLED = 3  # epochs
_ENOUGH_EPOCHS = 6  # to conclude that a run that has not settled has no warm-up
_MAX_EPOCHS = 32  # of a process that are judged: later epochs show its speed


def has_settled(step_seconds: Sequence[float]) -> bool:
    """Return whether the first half of an epoch's steps was about as fast as the second half."""
    if len(step_seconds) < _MIN_STEPS:
        return True
    half = len(step_seconds) // 2
    return median(step_seconds[:half]) <= _SETTLED_WITHIN * median(step_seconds[half:])


def is_still_warming(step_seconds: Sequence[float], *, earlier: Sequence[float] = ()) -> bool:
    """Return whether an epoch's steps still get faster, judged by that epoch and the one before.

    If the median step is not faster than that of the `earlier` epoch, the run has warmed up: the steps differ because
    their batches do.
    """
    if has_settled(step_seconds):
        return False
    return len(earlier) < _MIN_STEPS or median(step_seconds) < _STILL_FASTER * median(earlier)


def _settled_from(levels: Sequence[float]) -> int | None:
    """Return after how many epochs a process has settled, given each epoch's time per sample; None if it has not.

    Searches for change points one after another: epochs after which the process is faster by a tenth and by more than
    chance (Barrett et al. 2017, who call the time before the fastest last segment warm-up). The segment after the last
    change point has settled if it has at least half of the epochs and at least three. A process that gets faster all
    the time has not settled.
    """
    logs = [math.log(level) for level in levels]
    noise, start = _noise_of(logs[len(logs) // 2 :]), 0
    while (change := _change_point(logs[start:], noise)) is not None:
        start += change
    return start if not start or len(logs) - start >= max(_LEAST_SETTLED, len(logs) / 2) else None


def _noise_of(logs: Sequence[float]) -> float:
    """Estimate the standard deviation around a trend from the median of differences, with a floor for settled runs."""
    steps = [later - earlier for earlier, later in pairwise(logs)]
    if not steps:
        return _LEAST_NOISE
    middle = median(steps)
    return max(_LEAST_NOISE, 1.4826 / math.sqrt(2) * median(abs(step - middle) for step in steps))


def _change_point(logs: Sequence[float], noise: float) -> int | None:
    """Return the index at which the level falls most significantly; None if it does not."""
    found, largest = None, 0.0
    for at in range(1, len(logs)):
        fall = fmean(logs[:at]) - fmean(logs[at:])
        error = noise * math.sqrt(1 / at + 1 / (len(logs) - at))
        if fall > max(_LEAST_STEP, _NUM_ERRORS * error) and fall / error > largest:
            found, largest = at, fall / error
    return found


class Warmup:
    """Judges which of a process's first epochs are warm-up, again after each epoch; the first `least` always are.

    Evidence within an epoch (its steps still got faster) counts until later epochs give more. `epochs` holds the
    numbers of the epochs that are warm-up by now.
    """

    def __init__(self, least: int) -> None:
        self.num_epochs = 0  # of training, in this process
        self.epochs: Sequence[int] = ()
        self._numbers: list[int] = []  # of the judged epochs, which need not be consecutive
        self._least = least
        self._levels: list[float] = []
        self._still_warming = 0
        self._earlier: Sequence[float] = ()
        self._num_marked = 0  # epochs marked as warm-up in the history

    def judge(self, record: EpochRecord, step_seconds: Sequence[float], *, is_continued: bool = False) -> bool:
        """Return whether a new epoch with these step times is warm-up; epoch 0 always is.

        So is one that `is_continued`: its first part was made by an earlier process.
        """
        if record.epoch == 0:
            return True
        if is_continued:  # it is the first of this process
            self._least = max(self._least, 1)
            step_seconds = ()  # those of its second part say nothing about all of its samples
        self._num_marked = len(self.epochs)
        self.num_epochs += 1
        if self.num_epochs <= max(_MAX_EPOCHS, self._least):
            self._add(record, step_seconds)
            self._numbers.append(record.epoch)
            self.epochs = self._numbers[: max(self._least, self._num_warmup())]
        self._earlier = step_seconds if self._still_warming == self.num_epochs else ()
        return record.epoch in self.epochs

    def revise(self, history: list[EpochRecord]) -> bool:
        """Update the marks in `history`, which ends before the last judged epoch; return whether any changed."""
        if min(len(self.epochs), self.num_epochs - 1) == self._num_marked:
            return False
        for at in range(len(history) - self.num_epochs + 1, len(history)):
            history[at] = msgspec.structs.replace(history[at], warmup=history[at].epoch in self.epochs)
        return True

    def _add(self, record: EpochRecord, step_seconds: Sequence[float]) -> None:
        if self._still_warming == self.num_epochs - 1 and (
            self.num_epochs <= self._least or is_still_warming(step_seconds, earlier=self._earlier)
        ):
            self._still_warming = self.num_epochs
        # By the median step: bursts of other load and one-off costs of an epoch must not count.
        seconds = median(step_seconds) * len(step_seconds) if step_seconds else record.epoch_seconds or 0.0
        if seconds > 0 and record.samples > 0:
            self._levels.append(seconds / record.samples)

    def _num_warmup(self) -> int:
        if len(self._levels) < self.num_epochs:
            return self._still_warming  # the speed of some epoch is unknown
        across = _settled_from(self._levels)
        count = self._still_warming if across is None else max(across, self._still_warming)
        settles = across is not None and 2 * count <= self.num_epochs
        return count if settles or self.num_epochs < _ENOUGH_EPOCHS else 0


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

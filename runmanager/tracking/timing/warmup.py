"""Warm-up detection: the first epochs, and those after them that were slower than the settled run."""

import math
from collections.abc import Sequence
from itertools import pairwise
from statistics import fmean, median

import msgspec

from runmanager.records.run.run_record import EpochRecord

__all__ = ["Warmup", "has_settled", "is_still_warming"]

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

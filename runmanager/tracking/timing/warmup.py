"""Which epochs are warm-up: the first ones, and those after them that were slower than where the run has settled."""

import math
from collections.abc import Sequence
from itertools import pairwise
from statistics import fmean, median

import msgspec

from runmanager.records.run.record import EpochRecord

__all__ = ["Warmup", "has_settled", "is_still_warming", "settled_from"]

_MIN_STEPS = 20  # fewer say nothing about a trend
_STILL_FASTER = 0.95  # epochs of a settled run differ by two to four hundredths
_SETTLED_WITHIN = 1.25  # a shared machine's noise within an epoch reaches a fifth; caches and autotuning cost more
_LEAST_STEP = math.log(1.1)  # between epochs: less is noise, or not worth an epoch
_SURE = 4.0  # standard errors of such a step
_LEAST_NOISE = 0.02
_LEAST_SETTLED = 3  # epochs
_ENOUGH_EPOCHS = 6  # to say that what never settles was no warm-up
_LOOKED_AT = 32  # epochs of a process: what comes later is its speed, whatever it does


def has_settled(step_seconds: Sequence[float]) -> bool:
    """Whether the first half of an epoch's steps was about as fast as its second half."""
    if len(step_seconds) < _MIN_STEPS:
        return True
    half = len(step_seconds) // 2
    return median(step_seconds[:half]) <= _SETTLED_WITHIN * median(step_seconds[half:])


def is_still_warming(step_seconds: Sequence[float], *, earlier: Sequence[float] = ()) -> bool:
    """Whether the steps of an epoch still get faster, as far as it tells itself.

    Where the typical step is no faster than that of the epoch before, whose steps are `earlier`, nothing gets warmer
    any more: the steps differ because the batches do.
    """
    if has_settled(step_seconds):
        return False
    return len(earlier) < _MIN_STEPS or median(step_seconds) < _STILL_FASTER * median(earlier)


def settled_from(levels: Sequence[float]) -> int | None:
    """After how many epochs a process had settled, by how long each took for a sample; None where it never did.

    Its change points are looked for one after another: where what follows is faster by a tenth and by more than chance
    (Barrett et al. 2017, who call it warm-up where the last stretch is the fastest). What follows the last one has
    settled, if it is half of the epochs and three at least. A process that gets faster all the time never has.
    """
    logs = [math.log(level) for level in levels]
    noise, start = _noise_of(logs[len(logs) // 2 :]), 0
    while (change := _change_point(logs[start:], noise)) is not None:
        start += change
    return start if not start or len(logs) - start >= max(_LEAST_SETTLED, len(logs) / 2) else None


def _noise_of(logs: Sequence[float]) -> float:
    """The standard deviation about any trend, by the median of differences; no less than what settled runs have."""
    steps = [later - earlier for earlier, later in pairwise(logs)]
    if not steps:
        return _LEAST_NOISE
    middle = median(steps)
    return max(_LEAST_NOISE, 1.4826 / math.sqrt(2) * median(abs(step - middle) for step in steps))


def _change_point(logs: Sequence[float], noise: float) -> int | None:
    """Where the level falls most clearly; None where it does not."""
    found, clearest = None, 0.0
    for at in range(1, len(logs)):
        fall = fmean(logs[:at]) - fmean(logs[at:])
        error = noise * math.sqrt(1 / at + 1 / (len(logs) - at))
        if fall > max(_LEAST_STEP, _SURE * error) and fall / error > clearest:
            found, clearest = at, fall / error
    return found


class Warmup:
    """Which of a process's first epochs are warm-up, judged again after each of them; `least` always are.

    What an epoch says of itself (its steps still got faster) holds until the epochs after it say more. `epochs` are
    the numbers of those that are warm-up by now.
    """

    def __init__(self, least: int) -> None:
        self.num_epochs = 0  # of training, in this process
        self.epochs: Sequence[int] = ()
        self._numbers: list[int] = []  # of those that are looked at, which need not follow one another
        self._least = least
        self._levels: list[float] = []
        self._still_warming = 0
        self._earlier: Sequence[float] = ()
        self._marked = 0  # how many are known to be marked

    def look_at(self, record: EpochRecord, step_seconds: Sequence[float]) -> bool:
        """Whether the epoch of `record`, which had steps of such lengths, is warm-up; epoch 0 is."""
        if record.epoch == 0:
            return True
        self._marked = len(self.epochs)
        self.num_epochs += 1
        if self.num_epochs <= max(_LOOKED_AT, self._least):
            self._learn(record, step_seconds)
            self._numbers.append(record.epoch)
            self.epochs = self._numbers[: max(self._least, self._judged())]
        self._earlier = step_seconds if self._still_warming == self.num_epochs else ()
        return record.epoch in self.epochs

    def revise(self, history: list[EpochRecord]) -> bool:
        """Mark in `history`, which ends before the last epoch, what that one has shown; whether there was anything."""
        if min(len(self.epochs), self.num_epochs - 1) == self._marked:
            return False
        for at in range(len(history) - self.num_epochs + 1, len(history)):
            history[at] = msgspec.structs.replace(history[at], warmup=history[at].epoch in self.epochs)
        return True

    def _learn(self, record: EpochRecord, step_seconds: Sequence[float]) -> None:
        if self._still_warming == self.num_epochs - 1 and (
            self.num_epochs <= self._least or is_still_warming(step_seconds, earlier=self._earlier)
        ):
            self._still_warming = self.num_epochs
        # The typical step, as a burst of other load is no level, and what an epoch costs once is not per sample.
        seconds = median(step_seconds) * len(step_seconds) if step_seconds else record.epoch_seconds or 0.0
        if seconds > 0 and record.samples > 0:
            self._levels.append(seconds / record.samples)

    def _judged(self) -> int:
        if len(self._levels) < self.num_epochs:
            return self._still_warming  # of some epoch the speed is not known
        across = settled_from(self._levels)
        count = self._still_warming if across is None else max(across, self._still_warming)
        settles = across is not None and 2 * count <= self.num_epochs
        return count if settles or self.num_epochs < _ENOUGH_EPOCHS else 0

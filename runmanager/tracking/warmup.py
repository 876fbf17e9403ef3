"""Which epochs are warm-up: the first ones, and those in which the step time has not settled yet."""

from collections.abc import Sequence
from statistics import median

from runmanager.records.run import EpochRecord

__all__ = ["Warmup", "has_settled", "is_warmup"]

_MIN_STEPS = 20  # fewer say nothing about a trend
_STILL_FASTER = 0.95  # epochs of a settled run differ by two to four hundredths
_SETTLED_WITHIN = 1.25  # a shared machine's noise within an epoch reaches a fifth; caches and autotuning cost more


def has_settled(step_seconds: Sequence[float]) -> bool:
    """Whether the first half of an epoch's steps was about as fast as its second half."""
    if len(step_seconds) < _MIN_STEPS:
        return True
    half = len(step_seconds) // 2
    return median(step_seconds[:half]) <= _SETTLED_WITHIN * median(step_seconds[half:])


def is_warmup(
    *, epochs_before: int, least: int, previous: bool, step_seconds: Sequence[float], earlier: Sequence[float] = ()
) -> bool:
    """Whether an epoch is warm-up, where `epochs_before` others ran in this process, the last one `previous`.

    The first `least` always are; after them, as long as every epoch so far was, those that have not settled. Where the
    typical step is no faster than that of the epoch before, whose steps are `earlier`, nothing gets warmer any more:
    the steps differ because the batches do.
    """
    if epochs_before < least:
        return True
    if not previous or has_settled(step_seconds):
        return False
    return len(earlier) < _MIN_STEPS or median(step_seconds) < _STILL_FASTER * median(earlier)


class Warmup:
    """Tells of each epoch of a run whether it is warm-up; the first `least` of this process always are."""

    def __init__(self, least: int) -> None:
        self.num_epochs = 0  # of training, in this process
        self._least = least
        self._earlier: Sequence[float] = ()

    def look_at(self, number: int, step_seconds: Sequence[float], *, history: Sequence[EpochRecord]) -> bool:
        """Whether epoch `number` is, which had steps of such lengths and came after `history`."""
        found = number == 0 or is_warmup(
            epochs_before=self.num_epochs,
            least=self._least,
            previous=bool(history) and history[-1].warmup,
            step_seconds=step_seconds,
            earlier=self._earlier,
        )
        self.num_epochs += number > 0
        self._earlier = step_seconds
        return found

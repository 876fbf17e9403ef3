"""A run's loop without epochs: intervals of steps that follow one another, each of which becomes a record."""

from collections.abc import Callable, Iterable, Iterator
from contextlib import closing
from typing import Any

import msgspec

from runmanager.errors import UsageError
from runmanager.records.run.run_record import EpochRecord
from runmanager.records.storage.run_folder import RunFolder
from runmanager.tracking.epoch import Epoch
from runmanager.tracking.epoch_recorder import EpochRecorder
from runmanager.tracking.lifecycle.run_epochs import OpenEpoch
from runmanager.tracking.step_interval import SECONDS, StepInterval
from runmanager.tracking.timing.timer import TRAINING

_MAX_COST = 0.01  # of recording an interval, relative to its time
_FIRST_RECORDS = 2  # their time has what a process does once, as drawing the graph


class StepLoop:
    """Opens and ends the intervals of a run; `end` records one.

    ```
    track      begins an interval, whose time counts from the run's begin, or ends a full one at the step before
    batches    begins an interval, or ends a full one between two batches
    evaluating, track_eval, log    belong to the interval, also if it is full
    finish     the rest is a record too
    ```

    Ending an interval waits for the device once. The next one begins where it ended, so no time is lost: recording an
    interval is tracking time of the next. Where that takes long, as to save a large network, intervals without
    `record_every` become longer.
    """

    def __init__(
        self, folder: RunFolder, recorder: EpochRecorder, opened: OpenEpoch, *, end: Callable[[Epoch], EpochRecord]
    ) -> None:
        self._folder = folder
        self._recorder = recorder
        self._opened = opened
        self._end = end
        self._interval: StepInterval | None = None
        self._is_clock_running = self._has_stepped = False
        self._num_recorded = 0
        self._seconds = SECONDS

    @property
    def is_used(self) -> bool:
        """Whether the run's records are intervals."""
        return self._folder.record.interval == "steps"

    def start_clock(self) -> None:
        """Start the clock of a loop that iterates by hand, whose first step would not be timed otherwise."""
        self._recorder.timer.start()
        self._is_clock_running = True

    def refuse_epochs(self, call: str) -> None:
        """Raise `UsageError` if the run has intervals."""
        if self.is_used or self._interval is not None:
            raise UsageError(
                f"{call}() must be called in a run with epochs, got one that has tracked steps outside of epochs; "
                "call epoch.track(…) and epoch.batches(…) within epochs."
            )

    def interval(self, call: str, *, by_hand: bool = False) -> StepInterval:
        """Return the open interval; without one it begins, for a loop `by_hand` at the start of the clock.

        Raises `UsageError` in a run with epochs.
        """
        if self._interval is None:
            self._refuse_run_with_epochs(call)
            self._begin(continues=by_hand and self._is_clock_running)
        assert self._interval is not None
        return self._interval

    def _refuse_run_with_epochs(self, call: str) -> None:
        if self._opened.current is not None or (self._recorder.history.records and not self.is_used):
            raise UsageError(
                f"run.{call}() must be called in a run without epochs, got one with epochs; call epoch.{call}(…) "
                "within an epoch."
            )

    def _begin(self, *, continues: bool) -> None:
        if not self.is_used:
            self._folder.write(interval="steps")
        history = self._recorder.history
        make = self._recorder.make_interval
        number = history.next_number
        opened = self._opened.begin(
            lambda number: make(number, continues=continues, seconds=self._seconds), number, last=history.last_number
        )
        assert isinstance(opened, StepInterval)
        self._interval = opened

    def track(self, *step: Any, **options: Any) -> None:
        """Track a step, after ending an interval that was full before it."""
        interval = self.interval("track", by_hand=True)
        if interval.is_full and interval.is_between_parts:
            step_ended = self._recorder.timer.moment()
            self._next(lambda: self._recorder.timer.mark_at(TRAINING, step_ended))
        interval = self.interval("track")
        interval.track(*step, **options)
        self._has_stepped = True
        if self._recorder.has_checkpoint and interval.is_full and interval.is_between_parts:
            self._next()  # the next step has changed the weights by the time that it is tracked

    def batches(self, loader: Iterable[Any]) -> Iterator[Any]:
        """Yield the loader's batches, as `Epoch.batches`; a full interval ends between two of them."""
        interval = self.interval("batches")
        if interval.is_in_evaluation():
            yield from interval.batches(loader)
            return
        if not self._has_stepped:  # what a program draws before its loop would be drawn twice
            self._recorder.restore_random_states()
        source = _SharedIterator(loader)
        while True:
            interval = self.interval("batches")
            with closing(interval.batches(source)) as batches:  # type: ignore[type-var]  # a generator
                for batch in batches:
                    yield batch
                    if interval.is_full:
                        break
                else:
                    return
            if interval is self._interval and interval.is_between_parts:
                self._next()

    def _next(self, mark_step: Callable[[], None] | None = None) -> None:
        """End the open interval and begin the next; what was marked since then is marked in that one."""
        assert self._interval is not None
        ended, self._interval = self._interval, None
        clock = self._recorder.timer.clock
        self._is_clock_running = False  # if recording it fails
        record = self._end(ended)
        self._num_recorded += 1
        if self._num_recorded > _FIRST_RECORDS:  # the tracking time is that of recording the interval before
            self._seconds = max(SECONDS, (record.tracking_seconds or 0.0) / _MAX_COST)
        self._recorder.timer.start_at_last_mark()
        self._begin(continues=True)
        if mark_step is not None:
            if self._recorder.timer.clock is clock:
                mark_step()
            else:  # the step was taken before the clock of its device was known
                self.interval("track").lacks_first_step = True
        self._recorder.timer.mark("tracking")

    def finish(self) -> EpochRecord | None:
        """End the open interval: record it if it has steps, else return what it evaluated and logged."""
        interval, self._interval = self._interval, None
        if interval is None or not self._opened.is_this(interval):
            return None
        if interval.has_steps:
            self._end(interval)
            return None
        record, _ = self._opened.close(interval)
        return msgspec.structs.replace(record, loss=None, accuracy=None)


class _SharedIterator:
    """A loader that several loops take batches from in turn; its iterator is made when the first one begins."""

    def __init__(self, loader: Iterable[Any]) -> None:
        self._loader = loader
        self._iterator: Iterator[Any] | None = None

    def __iter__(self) -> Iterator[Any]:
        if self._iterator is None:
            self._iterator = iter(self._loader)
        return self._iterator

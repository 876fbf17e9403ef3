"""A running run as the live table follows it: how far it is, how long it has taken, and how long it will take."""

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from runmanager.app.display.live_table import LiveRow
from runmanager.app.display.run_line import logged_results, planned_epochs, run_label, run_rate, run_seconds
from runmanager.app.display.run_times import (
    RunTime,
    RunTimes,
    RunToCome,
    Work,
    last_copied_epoch,
    own_seconds,
    seconds_per_epoch,
)
from runmanager.records.files.paths import RunPaths
from runmanager.records.run.heartbeat import BEAT_SECONDS, Beat, read_beat
from runmanager.records.run.run_record import EpochRecord, RunRecord, counted_word
from runmanager.records.storage.reader import read_epochs, read_record, with_program_report

_MARKS_PER_STEP = 2  # of the progress in a heartbeat: the batch, and that it was tracked
_FIRST_STEPS = 3  # of a run, which take longer than the others
_LEAST_SHARE, _LEAST_SECONDS = 0.1, 10.0  # of the first epoch after these; either tells its length
_LEAST_EPOCH_SECONDS = 2 * BEAT_SECONDS  # of epochs in which heartbeats show how far one is
_CLOCK_SECONDS = 2.0  # a heartbeat has whole seconds


@dataclass(frozen=True)
class RunningRun:
    """A running run, as last read. `planned` is its number of epochs, 0 if unknown; `work` decides its time, if known.

    `name` is that of the run, `measure_seconds` the limit of its measurement side by side, after its epochs; `since`
    the time (seconds since 1970) at which its process began. `copied` is the last epoch that another run has made,
    `before` the last one of earlier attempts. `share` is how much of the epoch under way is done, as its heartbeat said
    at `share_at`; of `first_share` and the time before `first_at`, with the first steps, no pace is taken.
    """

    name: str
    paths: RunPaths
    planned: int
    work: Work | None = None
    measure_seconds: float = 0.0
    since: float = field(default_factory=time.time)
    seen_at: float = field(default_factory=time.time)  # when it began, or its last epoch ended
    counted: str = "epoch"
    copied: int = 0
    before: int = 0
    epochs: Sequence[EpochRecord] = ()
    metrics: Mapping[str, float | None] = field(default_factory=dict)  # the last values that it logged or printed
    share: float = 0.0
    share_at: float = 0.0
    first_share: float = 0.0
    first_at: float = 0.0
    steps: int | None = None  # of an epoch, where the run has said so
    progress: int | None = 0  # at the end of the last epoch, by its heartbeats; None if that was not seen
    per_epoch: int | None = None  # progress in an epoch, evaluation included

    def as_read(self) -> "RunningRun":
        """Return the run as its files have it now. Raises `RecordError`."""
        record = with_program_report(self.paths, read_record(self.paths))  # what only the program itself knows
        epochs = read_epochs(self.paths)
        known = replace(
            self,
            metrics=logged_results(record, epochs),
            copied=last_copied_epoch(record),
            before=record.earlier[-1].last_epoch if record.earlier else 0,
            steps=None if record.cell_command else record.measurements.steps_per_epoch,
        )
        if not epochs:  # the steps of an evaluation before training are not those of an epoch
            return replace(known, progress=None) if record.config.get("evaluate_first") is True else known
        if epochs == self.epochs:
            return known
        return replace(known, planned=planned_epochs(record), counted=counted_word(record))._with_epochs(epochs)

    def _with_epochs(self, epochs: Sequence[EpochRecord]) -> "RunningRun":
        """Return the run with new epochs, whose last one has just ended, or had ended before it was followed."""
        last, known = epochs[-1].epoch, self.epochs[-1].epoch if self.epochs else self.before
        ended_at = _written_at(self.paths.epochs)
        if 0 < last == self.before:  # epochs of earlier attempts
            return replace(self, epochs=epochs, seen_at=max(self.since, ended_at), progress=0)
        ended = replace(self, epochs=epochs, seen_at=ended_at, progress=None, share=0.0)
        if (beat := self._beat()) is None:
            return ended
        at, number, wall = _written_at(self.paths.heartbeat), last - known, epochs[-1].wall_seconds or 0.0
        seconds = at - (ended_at - number * wall)  # in which that progress was made
        if self.progress is None or not number * wall or seconds <= 0:
            is_first_look = not self.epochs and number > 0
            return ended if is_first_look else replace(ended, progress=beat.progress)
        per_epoch = round((beat.progress - self.progress) * wall / seconds)  # the heartbeat is not of the very end
        return replace(ended, progress=self.progress + number * per_epoch, per_epoch=per_epoch)

    def with_share(self) -> "RunningRun":
        """Return the run with the share of its epoch that its heartbeat shows; of short epochs it shows none."""
        own = [epoch for epoch in self.epochs if epoch.epoch > self.before]
        whole = self.per_epoch or _MARKS_PER_STEP * (self.steps or 0)
        is_short = bool(own) and (own[-1].wall_seconds or 0.0) < _LEAST_EPOCH_SECONDS
        if is_short or self.progress is None or not whole or self.counted != "epoch":
            return self
        beat = self._beat()
        if beat is None:
            return self
        at = _written_at(self.paths.heartbeat)
        done = beat.progress - self.progress
        share = min(0.99, done / whole)
        if share <= self.share:
            return self
        is_first = not self.share or done <= _FIRST_STEPS * _MARKS_PER_STEP
        known = replace(self, first_share=share, first_at=at) if is_first else self
        return replace(known, share=share, share_at=at)

    def _beat(self) -> Beat | None:
        """The last heartbeat of this process: one of an earlier attempt may still be there."""
        beat = read_beat(self.paths.heartbeat)
        return None if beat is None or beat.unix_seconds < self.since - _CLOCK_SECONDS else beat

    @property
    def num_done(self) -> int:
        """The number of epochs that are done."""
        return self.epochs[-1].epoch if self.epochs else 0

    @property
    def takes_turns(self) -> bool:
        """Whether it waits while others of its group compute, which no file tells from its own time."""
        return self.measure_seconds > 0

    def seconds(self, now: float) -> float | None:
        """Return how long it has taken at `now`, without the epochs that another run has made.

        None for a run that takes turns: it has waited for others, and began again in each pair of processes.
        """
        if self.takes_turns:
            return None
        before = (self.epochs[-1].run_seconds if self.epochs else None) or 0.0
        return own_seconds(before, self.epochs, self.copied) + max(0.0, now - self.seen_at)

    def seconds_left(self, now: float, times: RunTimes | None = None, *, group: int = 1) -> float | None:
        """Estimate how long it will take from `now`, by its own epochs, else by the `times` of others; None if unknown.

        `group` is how many runs take turns with it, itself included.
        """
        since = max(0.0, now - self.seen_at)
        pace = self.pace()
        if self.takes_turns:
            own = None if pace is None else pace.per_epoch * (self.planned - self.num_done)
            return self._seconds_left_in_turns(own, since, group)
        if pace is not None:
            startup = pace.startup if self._per_epoch is None else 0.0
            left: float | None = startup + pace.per_epoch * self._epochs_left(times)
        elif times is None or self.work is None:
            left = None
        else:
            left = times.expected(RunToCome(self.work, self.planned - self.num_done if self.planned else None))
        return None if left is None else max(0.0, left - since)

    def seconds_to_epoch_end(self, now: float) -> float | None:
        """Estimate how long the epoch under way will take from `now`, by its own pace; None if unknown."""
        if self.takes_turns:
            return None
        return replace(self, planned=min(self.planned, self.num_done + 1), work=None).seconds_left(now)

    def _epochs_left(self, times: RunTimes | None) -> float:
        """The epochs that it still makes: as many as others, which may have stopped early, else all."""
        share = 1.0 if times is None or self.work is None else times.share(self.work)
        left = self.planned * share - self.num_done
        return left if left > 0 else max(0, self.planned - self.num_done)

    def pace(self) -> RunTime | None:
        """Return its time by its own epochs, or by the share of the first that it has done; None before that."""
        if not self.planned:
            return None
        if (per_epoch := self._per_epoch) is not None:
            own = own_seconds(self.epochs[-1].run_seconds or 0.0, self.epochs, self.copied)
            return RunTime(max(0.0, own - per_epoch * (self.num_done - self.copied)), per_epoch)
        share, seconds = self.share - self.first_share, self.share_at - self.first_at
        if self.takes_turns or share <= 0 or (share < _LEAST_SHARE and seconds < _LEAST_SECONDS):
            return None
        per_epoch = seconds / share
        return RunTime(max(0.0, self.first_at - self.seen_at - self.first_share * per_epoch), per_epoch)

    @property
    def _per_epoch(self) -> float | None:
        return seconds_per_epoch(self.epochs, copied=self.copied)

    def _seconds_left_in_turns(self, own: float | None, since: float, group: int) -> float | None:
        """The seconds of the epochs of all, which are waited for, and of the measurement after them."""
        if own is None:
            return None
        return max(0.0, own * group + self.measure_seconds - (since if self._has_trained else 0.0))

    @property
    def _has_trained(self) -> bool:
        return 0 < self.planned <= self.num_done

    def row(self, now: float, *, seconds_left: float | None = None) -> LiveRow:
        """Return its row at `now`."""
        return LiveRow(
            run_label(self.name),
            "running",
            epoch=self.epochs[-1] if self.epochs else None,
            rate=self.epochs[-1].samples_per_second if self.epochs else None,
            metrics=self.metrics,
            counted=self.counted,
            planned=self.planned,
            seconds=self.seconds(now),
            seconds_left=seconds_left,
            share=self.share,
            is_measuring=self.takes_turns and self._has_trained,
        )


def _written_at(path: Path) -> float:
    """When a file was written (seconds since 1970): never later than now, and now if it is gone."""
    now = time.time()
    try:
        return min(now, path.stat().st_mtime)
    except OSError:
        return now


def ended_row(record: RunRecord, epochs: Sequence[EpochRecord]) -> LiveRow:
    """Return the row of a run that has ended."""
    seconds = run_seconds(record)
    return LiveRow(
        run_label(record.name),
        record.status,
        reason=str(record.reason or ""),
        epoch=epochs[-1] if epochs and epochs[-1].epoch > 0 else None,
        rate=run_rate(record, epochs),
        metrics=logged_results(record, epochs),
        counted=counted_word(record),
        planned=planned_epochs(record),
        seconds=own_seconds(seconds, epochs, last_copied_epoch(record)) if seconds else None,
    )

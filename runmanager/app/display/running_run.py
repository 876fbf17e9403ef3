"""A running run as the live table follows it: how far it is, how long it has taken, and how long it will take."""

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from runmanager.app.display.eta import EndedRun, expected_seconds, last_copied_epoch, own_seconds, run_seconds_left
from runmanager.app.display.live_table import LiveRow
from runmanager.app.display.run_line import logged_results, planned_epochs, run_label
from runmanager.records.files.paths import RunPaths
from runmanager.records.run.heartbeat import BEAT_SECONDS, Beat, read_beat
from runmanager.records.run.run_record import EpochRecord, counted_word
from runmanager.records.storage.reader import read_epochs, read_record, with_program_report

__all__ = ["RunningRun"]

_MARKS_PER_STEP = 2  # of the progress in a heartbeat: the batch, and that it was tracked
_LEAST_SHARE = 0.05  # of the first epoch, from which its length is estimated
_LEAST_EPOCH_SECONDS = 10 * BEAT_SECONDS  # of epochs in which heartbeats show how far one is
_CLOCK_SECONDS = 2.0  # a heartbeat has whole seconds


@dataclass(frozen=True)
class RunningRun:
    """A running run, as last read. `planned` is its number of epochs, 0 if unknown.

    `measure_seconds` is the limit of its measurement side by side, after its epochs; `since` the time (seconds since
    1970) at which its process began. `copied` is the last epoch that another run has made, `before` the last one of
    earlier attempts. `share` is how much of the epoch under way is done, as its heartbeat said at `share_at`;
    `moves_from` is when its last heartbeat without a step of that epoch was written.
    """

    paths: RunPaths
    planned: int
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
    moves_from: float = 0.0
    steps: int | None = None  # of an epoch, where the run has said so
    progress: int | None = 0  # of its heartbeat at the end of the last epoch; None if that was not seen
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
        if not epochs or epochs[-1].epoch == 0 or epochs == self.epochs:
            return known
        return replace(known, planned=planned_epochs(record), counted=counted_word(record))._with_epochs(epochs)

    def _with_epochs(self, epochs: Sequence[EpochRecord]) -> "RunningRun":
        """Return the run with new epochs, whose last one has just ended, or had ended before it was followed."""
        last, known = epochs[-1].epoch, self.epochs[-1].epoch if self.epochs else self.before
        ended_at = time.time() - _age(self.paths.epochs)
        if last == self.before:  # epochs of earlier attempts
            return replace(self, epochs=epochs, seen_at=max(self.since, ended_at), progress=0)
        now = self._beat()
        per_epoch = self.per_epoch
        if now is not None and self.progress is not None and last == known + 1:
            per_epoch = now.progress - self.progress
        is_first_look = not self.epochs and last > self.before + 1
        progress = None if now is None or is_first_look else now.progress
        return replace(self, epochs=epochs, seen_at=ended_at, progress=progress, per_epoch=per_epoch, share=0.0)

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
        at = time.time() - _age(self.paths.heartbeat)
        if beat.progress == self.progress:
            return replace(self, moves_from=at)  # it still starts up
        share = min(0.99, (beat.progress - self.progress) / whole)
        return replace(self, share=share, share_at=at) if share > self.share else self

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

        Of a run that takes turns, its own time up to its last epoch; None before that.
        """
        before = (self.epochs[-1].run_seconds if self.epochs else None) or 0.0
        own = own_seconds(before, self.epochs, self.copied)
        if self.takes_turns:
            return own or None
        return own + max(0.0, now - self.seen_at)

    def seconds_left(self, now: float, ended: Sequence[EndedRun] = (), *, group: int = 1) -> float | None:
        """Estimate how long it will take from `now`, if need be from runs that have `ended`; None if unknown.

        `group` is how many runs take turns with it, itself included.
        """
        since = max(0.0, now - self.seen_at)
        left = run_seconds_left(self.epochs, self.planned, copied=self.copied)
        if self.takes_turns:
            return self._seconds_left_in_turns(left, since, group)
        if left is None and self.planned and self.share >= _LEAST_SHARE:
            left = self._seconds_by_share()
        if left is None:
            left = expected_seconds(ended, max(0, self.planned - self.num_done))
        return None if left is None else max(0.0, left - since)

    def _seconds_by_share(self) -> float:
        """The seconds of all its epochs to come from `seen_at` on, as when the share of the first was measured."""
        moves_from = max(self.seen_at, self.moves_from)
        per_epoch = max(0.0, self.share_at - moves_from) / self.share
        return moves_from - self.seen_at + (self.planned - self.num_done) * per_epoch

    def expected(self, now: float) -> EndedRun | None:
        """Return what it is estimated to have taken in the end, by its own epochs alone; None if that is unknown."""
        left = None if self.takes_turns else self.seconds_left(now)
        return None if left is None else EndedRun((self.seconds(now) or 0.0) + left, self.planned - self.copied)

    def _seconds_left_in_turns(self, own: float | None, since: float, group: int) -> float | None:
        """The seconds of the epochs of all, which are waited for, and of the measurement after them."""
        if own is None:
            return None
        return max(0.0, own * group + self.measure_seconds - (since if self._has_trained else 0.0))

    @property
    def _has_trained(self) -> bool:
        return 0 < self.planned <= self.num_done

    def row(self, now: float, ended: Sequence[EndedRun] = (), *, group: int = 1) -> LiveRow:
        """Return its row at `now`; `group` as in `seconds_left`."""
        return LiveRow(
            run_label(self.paths),
            "running",
            epoch=self.epochs[-1] if self.epochs else None,
            rate=self.epochs[-1].samples_per_second if self.epochs else None,
            metrics=self.metrics,
            counted=self.counted,
            planned=self.planned,
            seconds=self.seconds(now),
            seconds_left=self.seconds_left(now, ended, group=group),
            share=self.share,
            is_measuring=self.takes_turns and self._has_trained,
        )


def _age(path: Path) -> float:
    """How long ago a file was written, by this host's clock."""
    try:
        return max(0.0, time.time() - path.stat().st_mtime)
    except OSError:
        return 0.0

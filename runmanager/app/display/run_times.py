"""How long runs and their sweep take: by a run's own epochs, or as learnt from other runs with such settings."""

import contextlib
import heapq
from collections import defaultdict
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from statistics import median
from typing import Any

from runmanager.app.display.run_line import planned_epochs
from runmanager.errors import RecordError
from runmanager.launching.plan import Action, PlannedRun, plan_of
from runmanager.records.files.paths import RunPaths, SweepPaths
from runmanager.records.run.attempts import epochs_of_other_runs
from runmanager.records.run.run_record import EpochRecord, RunRecord
from runmanager.records.run.status import Status
from runmanager.records.settings.grid import is_seed
from runmanager.records.settings.values import hashable
from runmanager.records.storage.reader import read_epochs, read_record

_EPOCHS = "epochs"
_FREE = frozenset(
    (
        *("lr", "learning_rate", "min_lr", "weight_decay", "wd", "momentum", "nesterov", "dampening"),
        *("betas", "beta1", "beta2", "eps", "dropout", "label_smoothing"),
    )
)
"""Settings that change results and hardly the time of any program, by the last part of their names. So do seeds."""

_MANY = 3  # runs of the same work, whose times say enough
_MOST_WORKS = 100  # that one without a run is compared with
_MOST_SCALED = 200  # works, between the ends of two runs: more would take the driver's time

Work = frozenset[tuple[str, Any]]
"""The settings that decide how long a run takes, where they differ from those of the first run."""


def last_copied_epoch(record: RunRecord) -> int:
    """Return the last epoch of a run that another run has made, 0 if it made all itself."""
    return epochs_of_other_runs(record).stop - 1


def own_seconds(seconds: float, epochs: Sequence[EpochRecord], copied: int) -> float:
    """Return the seconds of a run without those of the epochs up to `copied`, which another run has made."""
    before = [epoch.run_seconds or 0.0 for epoch in epochs if 0 < epoch.epoch <= copied]
    return max(0.0, seconds - max(before, default=0.0))


def seconds_per_epoch(epochs: Sequence[EpochRecord], *, copied: int = 0) -> float | None:
    """Return the median wall time of a run's epochs; None before the first one has ended.

    Warm-up epochs count only while no others exist, epochs up to `copied`, of another run, never.
    """
    timed = [epoch for epoch in epochs if epoch.epoch > copied and epoch.wall_seconds is not None]
    steady = [epoch for epoch in timed if not epoch.warmup] or timed
    return median(epoch.wall_seconds or 0.0 for epoch in steady) if steady else None


def sweep_seconds_left(
    running: Sequence[float | None], *, waiting: Sequence[float | None], at_once: int
) -> float | None:
    """Estimate the seconds until the last run ends, by those runs whose seconds are known; None if none are.

    `running` has the seconds left of each running run, `waiting` those of each run to come, in order, which starts when
    one of the `at_once` slots is free. What is unknown takes no time, so that the estimate is then the least.
    """
    if all(seconds is None for seconds in (*running, *waiting)):
        return 0.0 if not running and not waiting else None
    slots = [left or 0.0 for left in running]
    slots += [0.0] * (at_once - len(slots))
    heapq.heapify(slots)
    for seconds in waiting:
        heapq.heapreplace(slots, slots[0] + (seconds or 0.0))
    return max(slots, default=0.0)


@dataclass(frozen=True)
class RunTime:
    """What a run took itself: `startup` seconds, and `per_epoch` seconds for each of its epochs.

    `share` is how many of its planned epochs it made: one that stops early makes fewer. A run without counted epochs is
    one epoch.
    """

    startup: float
    per_epoch: float
    share: float = 1.0

    def seconds(self, epochs: int) -> float:
        """Return the seconds of a run of as many planned epochs."""
        return self.startup + self.per_epoch * epochs * self.share

    @classmethod
    def of(cls, seconds: float, record: RunRecord, epochs: Sequence[EpochRecord]) -> "RunTime | None":
        """Return that of a run that took so many seconds itself; None if its epochs were not counted.

        Without `epochs`, it made all that it planned. An unfinished run would have gone on.
        """
        copied = last_copied_epoch(record)
        planned = planned_epochs(record) - copied
        made = epochs[-1].epoch - copied if epochs else planned
        if made < 1 or record.interval == "steps":
            return None
        per_epoch = seconds_per_epoch(epochs, copied=copied)
        if per_epoch is None:
            per_epoch = seconds / made
        share = min(1.0, made / planned) if planned > 0 and record.status is Status.FINISHED else 1.0
        return cls(max(0.0, seconds - made * per_epoch), per_epoch, share)


@dataclass(frozen=True)
class RunToCome:
    """The work of a run that is to be done, and the epochs that it will make itself, None if unknown."""

    work: Work
    epochs: int | None = None


class RunTimes:
    """The times of runs, by their work; unfinished ones count where no run of that work has finished."""

    def __init__(self) -> None:
        self._first: dict[str, Any] | None = None
        self._whole: dict[Work, list[RunTime]] = defaultdict(list)
        self._by_epoch: dict[Work, list[RunTime]] = defaultdict(list)  # by all settings but the number of epochs
        self._unfinished: dict[Work, RunTime] = {}  # as `_by_epoch`
        self._known: dict[RunToCome, float | None] = {}
        self._num_scaled = 0

    @classmethod
    def of_plan(cls, plan: Sequence[PlannedRun], sweep: SweepPaths) -> "RunTimes":
        """Return those of the stored runs of a plan, and of the runs that it continues."""
        times = cls()
        for each in plan:
            if each.stored is not None:
                times.note_stored(each.paths, each.stored)
            elif each.continuation is not None:
                shorter = sweep.run(each.continuation.run)
                with contextlib.suppress(RecordError):
                    times.note_stored(shorter, read_record(shorter))
        return times

    def work(self, settings: Mapping[str, Any]) -> Work:
        """Return the work of a run with these settings."""
        values = {name: hashable(value) for name, value in settings.items() if not _is_free(name)}
        first = self._first = values if self._first is None else self._first
        return frozenset(
            (name, values.get(name)) for name in values.keys() | first.keys() if values.get(name) != first.get(name)
        )

    def to_come(self, run: PlannedRun, sweep: SweepPaths | None) -> RunToCome:
        """Return what is to be done of a planned run of `sweep`."""
        work = self.work(plan_of(run.cell).settings)
        return RunToCome(work, max(0, run.cell.epochs - _epochs_done(run, sweep)) if run.cell.epochs else None)

    def note(self, record: RunRecord, epochs: Sequence[EpochRecord] = ()) -> None:
        """Learn from a run, as far as it was timed."""
        is_finished = record.status is Status.FINISHED
        total = record.run_seconds if is_finished else epochs[-1].run_seconds if epochs else None
        if total is None:
            return
        seconds, work = own_seconds(total, epochs, last_copied_epoch(record)), self.work(record.settings)
        time = RunTime.of(seconds, record, epochs)
        if is_finished:
            self._whole[work].append(RunTime(0.0, seconds))
        if time is not None and is_finished:
            self._by_epoch[without_epochs(work)].append(time)
        elif time is not None:
            self._unfinished[without_epochs(work)] = time
        self._known.clear()
        self._num_scaled = 0

    def note_stored(self, run: RunPaths, record: RunRecord) -> None:
        """Learn from a stored run; its epochs are read unless enough is known of such runs."""
        work = self.work(record.settings)
        is_finished = record.status is Status.FINISHED
        is_known = len(self._whole.get(work, ())) >= _MANY if is_finished else without_epochs(work) in self._unfinished
        epochs: Sequence[EpochRecord] = ()
        if not is_known:
            with contextlib.suppress(RecordError):
                epochs = read_epochs(run)
        self.note(record, epochs)

    def expected(self, run: RunToCome, *, running: Mapping[Work, RunTime] | None = None) -> float | None:
        """Estimate the seconds of a run from runs of the same work, else from ones that differ in one setting.

        None where nothing is known. `running` are the times of runs under way, by their work but for the number of
        epochs; they count where no run of that work has finished.
        """
        if run not in self._known:
            self._known[run] = self._estimate(run)
        seconds = self._known[run]
        work = without_epochs(run.work)
        time = (running or {}).get(work) or self._unfinished.get(work)
        if time is None or run.epochs is None or work in self._by_epoch:
            return seconds
        return time.seconds(run.epochs)

    def share(self, work: Work) -> float:
        """Return how many of their planned epochs runs of the same work have made: 1, unless they stopped early."""
        return median(each.share for each in self._by_epoch.get(without_epochs(work), (RunTime(0.0, 0.0),)))

    def _estimate(self, run: RunToCome) -> float | None:
        if run.epochs is None:
            work, times, epochs = run.work, self._whole, 1
        else:
            work, times, epochs = without_epochs(run.work), self._by_epoch, run.epochs
        alike = times.get(work, ())
        if not alike and self._num_scaled < _MOST_SCALED:
            self._num_scaled += 1
            alike = _scaled(work, times)
        return median(each.seconds(epochs) for each in alike) if alike else None


def _is_free(name: str) -> bool:
    return is_seed(name) or name.rpartition(".")[2].replace("-", "_") in _FREE


def without_epochs(work: Work) -> Work:
    """Return the work of an epoch."""
    return frozenset(each for each in work if each[0] != _EPOCHS)


def _epochs_done(run: PlannedRun, sweep: SweepPaths | None) -> int:
    """The stored epochs that a run continues from."""
    stored = run.paths if run.action is Action.RESUME else None
    if run.action is Action.CONTINUE and run.continuation is not None and sweep is not None:
        stored = sweep.run(run.continuation.run)
    epochs: Sequence[EpochRecord] = ()
    with contextlib.suppress(RecordError):
        epochs = read_epochs(stored) if stored is not None else ()
    return epochs[-1].epoch if epochs else 0


def _scaled(work: Work, times: Mapping[Work, Sequence[RunTime]]) -> list[RunTime]:
    """The times of works that differ from `work` in one setting, each scaled as that setting changes those of others.

    Of a grid of models and batch sizes, the one cell that no run is like takes as much longer than another with its
    model as the cells of another model show for the two batch sizes.
    """
    known = {other: median(each.per_epoch for each in found) for other, found in islice(times.items(), _MOST_WORKS)}
    scaled = []
    for other, seconds in known.items():
        if len(names := {name for name, _ in work ^ other}) != 1:
            continue
        there, here = _only(work, names), _only(other, names)
        ratios = [
            known[changed] / before
            for each, before in known.items()
            if before > 0 and _only(each, names) == here and (changed := (each - here) | there) in known
        ]
        if ratios:
            ratio = median(ratios)
            scaled += [RunTime(each.startup, seconds * ratio, each.share) for each in times[other][-_MANY:]]
    return scaled


def _only(work: Work, names: Collection[str]) -> Work:
    return frozenset(each for each in work if each[0] in names)

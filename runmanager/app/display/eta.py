"""Estimates of the time left for runs and their sweep, from measured epochs and runs."""

import heapq
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import median
from typing import Any

from runmanager.app.display.run_line import planned_epochs
from runmanager.launching.plan import Cell, plan_of
from runmanager.records.run.attempts import epochs_of_other_runs
from runmanager.records.run.run_record import EpochRecord, RunRecord
from runmanager.records.run.status import Status
from runmanager.records.settings.values import hashable

__all__ = [
    *("ComparableRuns", "EndedRun", "expected_seconds", "last_copied_epoch", "own_seconds", "run_seconds_left"),
    "sweep_seconds_left",
]

_EPOCHS = "epochs"
_FREE = frozenset(
    (
        *("seed", "lr", "learning_rate", "min_lr", "weight_decay", "wd", "momentum", "nesterov", "dampening"),
        *("beta", "betas", "beta1", "beta2", "eps", "alpha", "gamma", "temperature", "dropout", "label_smoothing"),
    )
)
"""Settings that change a run's results and hardly its time, by the last part of their names."""


@dataclass(frozen=True)
class EndedRun:
    """What a finished run took itself: its seconds, and its number of epochs, 0 if unknown.

    Epochs that it copied from a shorter run count in neither.
    """

    seconds: float
    epochs: int = 0

    @classmethod
    def of(cls, record: RunRecord, epochs: Sequence[EpochRecord]) -> "EndedRun | None":
        """Return that of a run, given its epochs; None unless it has finished and was timed."""
        if record.status is not Status.FINISHED or record.run_seconds is None:
            return None
        copied = last_copied_epoch(record)
        is_counted = bool(epochs) and record.interval != "steps"
        return cls(own_seconds(record.run_seconds, epochs, copied), epochs[-1].epoch - copied if is_counted else 0)


def last_copied_epoch(record: RunRecord) -> int:
    """Return the last epoch of a run that another run has made, 0 if it made all itself."""
    return epochs_of_other_runs(record).stop - 1


def own_seconds(seconds: float, epochs: Sequence[EpochRecord], copied: int) -> float:
    """Return the seconds of a run without those of the epochs up to `copied`, which another run has made."""
    before = [epoch.run_seconds or 0.0 for epoch in epochs if 0 < epoch.epoch <= copied]
    return max(0.0, seconds - max(before, default=0.0))


def run_seconds_left(epochs: Sequence[EpochRecord], planned: int, *, copied: int = 0) -> float | None:
    """Estimate the seconds of the remaining epochs from the median wall time; None before the first epoch has ended.

    Warm-up epochs count only while no others exist, epochs up to `copied`, of another run, never.
    """
    timed = [epoch for epoch in epochs if epoch.epoch > copied and epoch.wall_seconds is not None]
    steady = [epoch for epoch in timed if not epoch.warmup] or timed
    if not steady or not planned:
        return None
    return max(0, planned - timed[-1].epoch) * median(epoch.wall_seconds or 0.0 for epoch in steady)


def expected_seconds(ended: Sequence[EndedRun], epochs: int) -> float | None:
    """Estimate the seconds of a run of so many epochs (0: unknown) from others; None without any."""
    if not ended:
        return None
    if epochs and all(each.epochs for each in ended):
        return epochs * median(each.seconds / each.epochs for each in ended)
    return median(each.seconds for each in ended)


def sweep_seconds_left(
    running: Sequence[float | None], *, waiting: Sequence[float | None], at_once: int
) -> float | None:
    """Estimate the seconds until the last run ends; None if those of any run are unknown.

    `running` has the seconds left of each running run, `waiting` those of each run to come, in order, which starts when
    one of the `at_once` slots is free.
    """
    if None in running or None in waiting:
        return None
    slots = [left for left in running if left is not None]
    slots += [0.0] * (at_once - len(slots))
    heapq.heapify(slots)
    for seconds in waiting:
        heapq.heapreplace(slots, slots[0] + (seconds or 0.0))
    return max(slots, default=0.0)


class ComparableRuns:
    """The finished and timed runs among some records, by the settings that decide how long a run takes."""

    def __init__(self, records: Sequence[RunRecord]) -> None:
        self._by_run: dict[frozenset[Any], list[EndedRun]] = defaultdict(list)
        self._by_epoch: dict[frozenset[Any], list[EndedRun]] = defaultdict(list)
        for record in records:
            if record.status is Status.FINISHED and record.run_seconds is not None:
                ended = EndedRun(record.run_seconds, planned_epochs(record))
                self._by_run[_work(record.settings)].append(ended)
                if ended.epochs:
                    self._by_epoch[_work(record.settings, apart_from=_EPOCHS)].append(ended)

    def __bool__(self) -> bool:
        return bool(self._by_run)

    def like(self, cell: Cell) -> list[EndedRun]:
        """Return the runs that do the work of `cell`, if its number of epochs is known but for that number."""
        settings = plan_of(cell, cell.name).settings
        if cell.epochs:
            return self._by_epoch.get(_work(settings, apart_from=_EPOCHS), [])
        return self._by_run.get(_work(settings), [])


def _work(settings: Mapping[str, Any], *, apart_from: str = "") -> frozenset[Any]:
    return frozenset(
        (name, hashable(value))
        for name, value in settings.items()
        if name != apart_from and name.rpartition(".")[2].replace("-", "_") not in _FREE
    )

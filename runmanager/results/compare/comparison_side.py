"""One side of a comparison: its cells, their finished runs, and the values that these measured."""

import math
import re
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property
from pathlib import Path
from typing import Any

from runmanager.records.run.status import Status
from runmanager.records.storage.reader import StoredRun
from runmanager.results.load.cells import Cell
from runmanager.results.metrics.metric import THROUGHPUT, Metric
from runmanager.results.stats.descriptive import geometric_mean, mean, median
from runmanager.text import format_value

_ACCURACIES = ("acc", "accuracy")  # the last word of a name
_MAX_SAMPLES = 1_000_000
_MAX_SMALL_DENOMINATOR = 1000
_SINGLE_PRECISION = 3e-8  # the error of rounding a number below 1 to single precision
_MIN_SAMPLES = 10  # a smaller denominator, as of two runs at 0.5, does not show how many samples were evaluated


NO_RUN = "no run with these settings"
SWEEP_AXIS = "sweep"  # of two sweeps that are compared


@dataclass(frozen=True)
class Side:
    """The cells with one value of the compared axis. Only finished runs are measured.

    `paired` is whether every cell asks for paired measurement, along any axis; `in_turns` is whether every cell does so
    along the compared axis, which interleaves the two sides. `is_sweep`: the side is a sweep of its own, so the commit,
    libraries and machine in which it differs from the other are what is compared. `following` are the settings that
    differ between cells because they follow from others, and are not compared. `seeds` are those that are seeds.
    """

    label: str
    cells: Sequence[Cell]
    metric: Metric = THROUGHPUT
    paired: bool = False
    in_turns: bool = False
    is_sweep: bool = False
    following: Sequence[str] = ()
    seeds: Sequence[str] = ()

    @cached_property
    def started(self) -> list[StoredRun]:
        return [cell.stored for cell in self.cells if cell.stored is not None]

    @cached_property
    def finished(self) -> list[StoredRun]:
        return [run for run in self.started if run.is_complete]

    @cached_property
    def measured(self) -> list[tuple[StoredRun, list[float]]]:
        """The finished runs that have values of the metric, with these: one an epoch, or one for the run."""
        return [(run, values) for run in self.finished if (values := self.metric.values(run))]

    def seeds_of(self, run: StoredRun) -> dict[str, Any]:
        """Return the seeds of a run, without those that all cells have in common."""
        own = self._own[run.paths.root]
        return {name: own[name] for name in self.seeds if name in own}

    @cached_property
    def _own(self) -> dict[Path, Mapping[str, Any]]:
        return {cell.stored.paths.root: cell.own for cell in self.cells if cell.stored is not None}

    @cached_property
    def values(self) -> list[list[float]]:
        """The values of each measured run."""
        return [values for _, values in self.measured]

    @cached_property
    def typical(self) -> float | None:
        """The mean over runs of a run's median over epochs; the geometric mean where sides are compared by a ratio."""
        medians = [middle for values in self.values if (middle := median(values)) is not None]
        if not medians:
            return None
        if self.metric.effect == "difference":
            return mean(medians)
        # Invalid values are shown, and are the reason why the row is not measured.
        return geometric_mean(medians) if 0 < min(medians) <= max(medians) < math.inf else median(medians)

    @property
    def without_values(self) -> int:
        """The number of finished runs without a value of the metric."""
        return len(self.finished) - len(self.values)

    @property
    def state(self) -> str:
        """The states of the cells: `skipped (device_unavailable)`, or `2 failed (exception), 1 finished`."""
        if not self.cells:
            return NO_RUN
        states = Counter(map(_state, self.cells))
        if len(states) == 1:
            return next(iter(states))
        return ", ".join(f"{count} {state}" for state, count in states.items())


def _state(cell: Cell) -> str:
    if cell.stored is None:
        return Status.PENDING.value
    record = cell.stored.record
    if record.status is Status.FINISHED or record.reason is None:
        return record.status.value
    return f"{record.status.value} ({record.reason.value})"


def label_of(axis: str, value: Any) -> str:
    """Return the label of a side: a device by its name, any other value with its setting (`batch_size=1000`).

    Where several settings are compared together, the value names them itself.
    """
    return (
        format_value(value)
        if axis == "device" or "+" in axis
        else f"{axis.removesuffix('.name')}={format_value(value)}"
    )


def resolution_of(metric: Metric, sides: Sequence[Side]) -> float:
    """Return the smallest difference of two accuracies, 1 / the number of evaluated samples; 0 where it is not known.

    The number of samples is inferred from the accuracies: each is a fraction of it, so their common denominator divides
    it. The resolution is therefore never finer than the true one. It is not known of percentages.
    """
    of_epoch = metric.of_epoch
    if of_epoch is None or re.split(r"[^a-z0-9]+", metric.name.lower())[-1] not in _ACCURACIES:
        return 0.0
    values = {
        value
        for side in sides
        for run in side.finished
        for epoch in run.epochs
        if (value := of_epoch(epoch)) is not None
    }
    if any(not 0 <= value <= 1 for value in values):
        return 0.0
    samples = 1
    for value in values:
        denominator = _denominator(value)
        if denominator is None or (samples := math.lcm(samples, denominator)) > _MAX_SAMPLES:
            return 0.0
    return 1 / samples if samples >= _MIN_SAMPLES else 0.0


def _denominator(value: float) -> int | None:
    """Return the denominator of the fraction that a value is: a small one to single precision, else an exact one."""
    if not math.isfinite(value):
        return None
    rounded = Fraction(value).limit_denominator(_MAX_SMALL_DENOMINATOR)
    if abs(rounded - Fraction(value)) <= _SINGLE_PRECISION:
        return rounded.denominator
    exact = Fraction(value).limit_denominator(_MAX_SAMPLES)
    return exact.denominator if float(exact) == value else None

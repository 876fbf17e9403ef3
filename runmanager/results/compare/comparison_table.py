"""The options of a comparison, its two sides, and its table: the rows, with the measured effect of each pair."""

import math
import re
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from functools import cached_property
from pathlib import Path
from typing import Any, get_args

from runmanager.records.run.metric_names import BETTER
from runmanager.records.run.status import Status
from runmanager.records.settings.grid import SEED
from runmanager.records.storage.reader import StoredRun
from runmanager.results.load.cells import Cell
from runmanager.results.metrics.metric import LAST, THROUGHPUT, At, Metric
from runmanager.results.stats.descriptive import Estimate, geometric_mean, mean, median
from runmanager.results.stats.noise_model import CONFIDENCE
from runmanager.results.table_model.columns import Row, Table
from runmanager.text import format_value
from runmanager.validation import field_faults, limits

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


ANY_AXIS = "any"

_DEFAULT_MARGIN = 0.03  # of a ratio: smaller effects are rarely worth a decision


@dataclass(frozen=True)
class CompareOptions:
    """The options of a comparison.

    `axis` is the compared setting or group, several joined by `+`, or `any` for each one that varies (None: the
    axis along which paired runs took turns, else `device`, which another axis stands in for where no two devices
    can be compared); `baseline` is its value to compare against (None: `cpu` for `device`, else the first given).
    `metric` is one of `METRIC_NAMES`, or one that the epochs recorded. Of metrics of epochs, `at` chooses the
    `last` or the `best` epoch of each run, and `better` is the direction, `max` or `min` (None: as declared, else
    by the name). `drift` is the share by which a machine may drift while one side runs after the other, in 95 of
    100 cases: the interval includes it. `paired_drift` is what a ratio of interleaved measurements must exceed.
    `margin` is the largest negligible effect: a share for ratios (None: 3%), for differences in the metric's own
    unit (None: no effect is negligible, and no verdict is `no difference`). Pairs below `min_epochs` measured
    epochs a side are not measured, nor those below `min_seeds` runs a side for metrics with one value a run. At the
    `error_rate` some row of all is wrong, or each where that is not to be `is_joint`.
    """

    axis: str | None = None
    baseline: Any = None
    metric: str = "samples_per_second"
    drift: float = field(default=0.10, metadata=limits(ge=0, lt=1, key="--drift", way_out="0.1 means 10%"))
    paired_drift: float = field(default=0.01, metadata=limits(ge=0, lt=1, way_out="0.1 means 10%"))
    margin: float | None = field(
        default=None, metadata=limits(gt=0, key="--margin", way_out="0.03 means 3% of a ratio")
    )
    min_epochs: int = field(default=5, metadata=limits(ge=1))
    min_seeds: int = field(default=3, metadata=limits(ge=2))
    better: str | None = field(default=None, metadata=limits(choices=BETTER, key="--better"))
    at: At = field(default=LAST, metadata=limits(choices=get_args(At), key="--at"))
    error_rate: float = field(default=1 - CONFIDENCE, metadata=limits(gt=0, lt=0.5))
    is_joint: bool = True

    def margin_of(self, effect: str) -> float | None:
        """Return the margin for this kind of effect; None for no margin."""
        return self.margin if self.margin is not None or effect == "difference" else _DEFAULT_MARGIN

    def words(self) -> list[str]:
        """Return the words of a command that asks for these options, without the metric."""
        named = ("axis", "baseline", "better", "at", "drift", "margin")
        given = {name: getattr(self, name) for name in named if getattr(self, name) != getattr(CompareOptions, name)}
        return [word for name, value in given.items() for word in (f"--{name}", format_value(value))]

    def faults(self) -> list[str]:
        """Return the errors in these options, one line each."""
        faults = field_faults(self)
        if self.axis == ANY_AXIS and self.baseline is not None:
            faults.append(
                f"`--baseline` must belong to one axis, got {self.baseline!r} with `--axis any`; name the axis."
            )
        return faults


def enough_seeds(seeds: Sequence[str]) -> str:
    """Return the setting that makes enough runs of each cell to compare metrics with one value a run.

    `seeds` are those that the cells have.
    """
    return f"{seeds[0] if seeds else SEED}={','.join(map(str, range(CompareOptions.min_seeds)))}"


@dataclass(frozen=True)
class MeasuredEffect:
    """The effect of a pair: a speedup, a ratio or a difference, with its 95% interval.

    A difference is claimed where the interval lies more than `tolerance` from no effect, and ruled out where the
    interval lies within `margin` of no effect (None: never). `drift` is the bound of an unseen drift between the sides,
    which is part of the interval: no smaller difference is ruled out. Of contended runs a difference is claimed only
    where it is larger than `detectable`, the smallest that their noise lets see. `by_seed` is the effect in each seed,
    its logarithm for ratios; it is empty where the runs are not paired by seed. `num_process_pairs` counts the pairs of
    processes that were measured side by side; it is 0 for runs that were not. `lacking` is a sentence on what would
    narrow their interval to what was asked for, if it is not.
    """

    estimate: Estimate
    tolerance: float
    margin: float | None
    by_seed: Mapping[str, float]
    drift: float = 0.0
    detectable: float = 0.0
    num_process_pairs: int = 0
    lacking: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class ComparisonRow(Row):
    """A pair of a comparison by `metric`; `effect` is None where it is not measured.

    `is_stand_in` marks a pair along an axis that the comparison chose because the requested one has no answer.
    `are_equal`: nothing speaks against a comparison, and the value is exactly the same in each pair of runs, so that
    their noise is not known.
    """

    metric: Metric
    effect: MeasuredEffect | None
    is_stand_in: bool
    are_equal: bool = False


@dataclass(frozen=True)
class ComparisonTable(Table):
    """A comparison, one row a matched pair.

    `command` compares along the stand-in axis alone, where that was picked from several by what they show.
    """

    rows: Sequence[ComparisonRow]
    command: str = ""


def rows_by_sides(rows: Sequence[ComparisonRow]) -> dict[tuple[str, str], list[ComparisonRow]]:
    """Group rows by the labels of candidate and baseline, in their order."""
    of_sides: dict[tuple[str, str], list[ComparisonRow]] = {}
    for row in rows:
        sides = label_of(row["axis"], row["candidate"]), label_of(row["axis"], row["baseline"])
        of_sides.setdefault(sides, []).append(row)
    return of_sides

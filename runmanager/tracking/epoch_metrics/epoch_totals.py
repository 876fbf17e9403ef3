"""What an epoch has measured, as sums that add up over the ranks of a run. Loads no torch."""

import math
from collections.abc import Callable, Mapping, Sequence

import msgspec

from runmanager.records.run.run_record import TRAINING_PHASES
from runmanager.tracking.timing.timer import TRAINING

_TRAINED = (*TRAINING_PHASES, TRAINING)
_COMBINED: Mapping[str, Callable[[Sequence[float]], float]] = {"sum": sum, "min": min, "max": max}


class MeterTotals(msgspec.Struct, frozen=True):
    """Sums over samples: of the losses over `loss_samples`, and the correct ones of `counted` labels.

    `uncounted` steps have a loss and no known number of samples; each is one of `loss_samples`.
    """

    samples: int = 0
    loss_sum: float | None = None
    loss_samples: int = 0
    correct: int = 0
    counted: int = 0
    uncounted: int = 0

    @property
    def loss(self) -> float | None:
        """The mean loss, over steps where no step's samples are known; None if never tracked, or if only some are."""
        if 0 < self.uncounted < self.loss_samples:
            return None
        return None if self.loss_sum is None or not self.loss_samples else self.loss_sum / self.loss_samples

    @property
    def accuracy(self) -> float | None:
        """The share of correct labels; None if never tracked."""
        return self.correct / self.counted if self.counted else None


class EpochTotals(msgspec.Struct, frozen=True):
    """What an epoch has measured: `seconds` by phase, `seen` if its batches came from `batches`.

    `values` are logged numbers by name. `reductions` has those of values of steps, `mean`, `sum`, `min` or `max`;
    `weights` has the samples of means. Both may lack names.
    """

    train: MeterTotals
    evaluated: MeterTotals
    seconds: dict[str, float]
    seen: bool
    values: dict[str, float]
    units: dict[str, int]
    reductions: dict[str, str] = {}
    weights: dict[str, int] = {}

    @property
    def phase_seconds(self) -> float:
        """The seconds of training and evaluation."""
        return sum(self.seconds.get(name, 0.0) for name in (*_TRAINED, "eval"))


ShareTotals = Callable[[int, EpochTotals, dict[str, str], dict[str, int]], EpochTotals]
"""Gives the number of an epoch, its totals, reductions and weights; returns the totals of all ranks."""


def add_totals(parts: Sequence[EpochTotals]) -> EpochTotals:
    """Return the totals of all ranks, of which rank 0 is first: all samples, over the times of the slowest rank.

    The slowest is the one that trained longest; evaluation counts as long as the rank that took longest, and tracking
    is that of rank 0. A value that several ranks log is their mean over samples, or what its reduction asks for.
    """
    first, slowest = parts[0], max(parts, key=lambda part: sum(part.seconds.get(name, 0.0) for name in _TRAINED))
    seconds = {name: value for name, value in slowest.seconds.items() if name in _TRAINED}
    if evaluated := [part.seconds["eval"] for part in parts if "eval" in part.seconds]:
        seconds["eval"] = max(evaluated)
    seconds |= {name: value for name, value in first.seconds.items() if name not in (*_TRAINED, "eval")}
    names = dict.fromkeys(name for part in parts for name in part.values)
    return EpochTotals(
        train=_added([part.train for part in parts]),
        evaluated=_added([part.evaluated for part in parts]),
        seconds=seconds,
        seen=slowest.seen,
        values={name: _value(name, [part for part in parts if name in part.values]) for name in names},
        units=_summed([part.units for part in parts]),
    )


def _added(meters: Sequence[MeterTotals]) -> MeterTotals:
    losses = [meter.loss_sum for meter in meters if meter.loss_sum is not None]
    return MeterTotals(
        samples=0 if any(meter.uncounted for meter in meters) else sum(meter.samples for meter in meters),
        loss_sum=sum(losses) if losses else None,
        loss_samples=sum(meter.loss_samples for meter in meters),
        correct=sum(meter.correct for meter in meters),
        counted=sum(meter.counted for meter in meters),
        uncounted=sum(meter.uncounted for meter in meters),
    )


def _value(name: str, parts: Sequence[EpochTotals]) -> float:
    """Return the value of a metric that these ranks have logged."""
    values = [part.values[name] for part in parts]
    if combine := _COMBINED.get(parts[0].reductions.get(name, "")):
        return math.nan if any(map(math.isnan, values)) else float(combine(values))
    if all(value == values[0] for value in values):  # the program has computed it over all ranks
        return values[0]
    weights = [part.weights.get(name, part.train.samples) for part in parts]
    if not any(weights):
        weights = [1] * len(parts)
    known = [(value, weight) for value, weight in zip(values, weights, strict=True) if weight]
    return sum(value * weight for value, weight in known) / sum(weights)


def _summed(counts: Sequence[Mapping[str, int]]) -> dict[str, int]:
    names = dict.fromkeys(name for each in counts for name in each)
    return {name: sum(each.get(name, 0) for each in counts) for name in names}

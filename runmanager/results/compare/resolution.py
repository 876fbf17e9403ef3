"""How finely a metric was measured, and which of a side's runs fell far behind the others."""

import math
from collections.abc import Sequence
from fractions import Fraction

from runmanager.records.storage.reader import StoredRun
from runmanager.results.compare.metrics import Metric
from runmanager.results.compare.pairing import SEED
from runmanager.results.compare.side import Side
from runmanager.results.model.formatting import human
from runmanager.results.stats.descriptive import median
from runmanager.text import format_value

__all__ = ["collapsed", "step_of"]

_ACCURACIES = ("accuracy", "val_accuracy")
_MOST_SAMPLES = 1_000_000
_MOST_ROUNDED = 1000
_SINGLE = 3e-8  # what rounding to single precision changes in a number below 1
_LEAST_SAMPLES = 10  # a smaller denominator, as of two runs at 0.5, says nothing of how many were evaluated
_FAR = 3.5
_FAR_SHARE = 0.1  # nearer runs are within what seeds usually differ by


def step_of(metric: Metric, sides: Sequence[Side]) -> float:
    """The distance of two accuracies that can be told apart: 1 / the evaluated samples; 0 where that is not known.

    How many samples were evaluated is read from the accuracies themselves: each is a fraction of them, so their common
    denominator divides it. The step is therefore never smaller than the true one.
    """
    if metric.name not in _ACCURACIES:
        return 0.0
    values = {
        value
        for side in sides
        for run in side.finished
        for epoch in run.epochs
        if (value := getattr(epoch, metric.name)) is not None
    }
    samples = 1
    for value in values:
        denominator = _denominator(value)
        if denominator is None or (samples := math.lcm(samples, denominator)) > _MOST_SAMPLES:
            return 0.0
    return 1 / samples if samples >= _LEAST_SAMPLES else 0.0


def _denominator(value: float) -> int | None:
    """Of the fraction that a value is: to the last digit, or a small one as far as single precision has digits."""
    if not math.isfinite(value):
        return None
    rounded = Fraction(value).limit_denominator(_MOST_ROUNDED)
    if abs(rounded - Fraction(value)) <= _SINGLE:
        return rounded.denominator
    exact = Fraction(value).limit_denominator(_MOST_SAMPLES)
    return exact.denominator if float(exact) == value else None


def collapsed(sides: Sequence[Side]) -> list[str]:
    """The runs of a metric of outcomes that fell far behind the others of their side, a sentence a side.

    Far is a modified z-score above 3.5 (Iglewicz and Hoaglin, *How to Detect and Handle Outliers*, 1993), where it is
    also a tenth of the median.
    """
    return [line for side in sides if side.metric.effect == "difference" and (line := _collapsed(side))]


def _collapsed(side: Side) -> str:
    values = [of_run[-1] for of_run in side.values]
    middle = median(values)
    if middle is None or len(values) < 3:
        return ""
    sign = 1 if side.metric.more_is_better else -1
    spread = median([abs(value - middle) for value in values]) or 0.0
    far = [
        (run, value)
        for (run, _), value in zip(side.measured, values, strict=True)
        if sign * (middle - value) > max(_FAR * spread / 0.6745, _FAR_SHARE * abs(middle))
    ]
    if not far:
        return ""
    said = ", ".join(f"{_name(run)} with {human(value, side.metric.name)}" for run, value in far)
    return f"{side.label}: {said} fell far behind the median of {human(middle, side.metric.name)}"


def _name(run: StoredRun) -> str:
    seed = run.record.config.get(SEED)
    return run.record.name if seed is None else f"{SEED}={format_value(seed)}"

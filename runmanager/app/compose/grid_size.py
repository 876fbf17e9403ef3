"""The values of a grid's axes, and their number and faults, which are computed without expanding them."""

import math
import random
from collections.abc import Sequence
from decimal import Decimal
from fractions import Fraction
from typing import Any

from hydra.core.override_parser.types import ChoiceSweep, Override, RangeSweep

from runmanager.errors import ConfigurationError
from runmanager.records.settings.grid import size_fault

__all__ = ["axis_fault", "axis_values", "count_cells", "num_values"]


def axis_fault(override: Override) -> str | None:
    """Return why an override with several values cannot be an axis, or None."""
    subject = f"`{override.input_line}` must"
    if not override.is_sweep_override():
        return None
    if not override.is_discrete_sweep():
        return f"{subject} list its values, got an interval; write choice(…) or range(…), or search it (`--search`)."
    values = override.value()
    if isinstance(values, RangeSweep):
        start, stop, step = (Decimal(number) for number in _limits(values))
        if not (start.is_finite() and stop.is_finite() and step.is_finite()):
            return f"{subject} be a range of finite numbers, got from {values.start} to {values.stop} by {values.step}."
        if step == 0 or not _step_is_effective(values):
            return f"{subject} have an effective step, got {values.step}; range(0,1,0.25) is 0, 0.25, 0.5 and 0.75."
    if not num_values(override):
        return f"{subject} have at least one value, got none; leave it out of the grid."
    return None


def count_cells(overrides: Sequence[Override]) -> int:
    """Return the number of cells of the overrides.

    Raises `ConfigurationError` if a sweep may not have so many.
    """
    counts = {each.get_key_element(): num_values(each) for each in overrides if each.is_sweep_override()}
    if fault := size_fault(counts):
        raise ConfigurationError([fault])
    return math.prod(counts.values())


def _step_is_effective(values: RangeSweep) -> bool:
    """Whether adding the step changes both ends: Hydra adds decimals of 28 digits."""
    if all(isinstance(number, int) for number in _limits(values)):
        return True
    start, stop, step = (+Decimal(number) for number in _limits(values))
    return start + step != start and stop + step != stop


def _limits(values: RangeSweep) -> tuple[float, float, float]:
    assert values.start is not None and values.stop is not None  # Hydra's grammar fills them in
    return values.start, values.stop, values.step


def num_values(axis: Override) -> int:
    """Return the number of values of an axis without expanding it."""
    values = axis.value()
    if isinstance(values, RangeSweep):
        start, stop, step = map(_as_written, _limits(values))
        return max(0, math.ceil((stop - start) / step))
    if isinstance(values, ChoiceSweep):
        return len(values.list)
    return sum(1 for _ in axis.sweep_string_iterator())  # a glob: one value for each matching file


def axis_values(axis: Override) -> list[Any]:
    """Return the values of an axis in order.

    Those of a range are computed from its numbers as they are written, so that range(0.1,0.4,0.1) is 0.1, 0.2 and 0.3;
    versions of Hydra differ there.
    """
    values = axis.value()
    if not isinstance(values, RangeSweep):
        return list(axis.sweep_iterator())
    limits = _limits(values)
    start, _, step = map(_as_written, limits)
    kind = int if all(isinstance(number, int) for number in limits) else float
    numbers = [kind(start + index * step) for index in range(num_values(axis))]
    if values.shuffle:
        random.shuffle(numbers)
    return numbers


def _as_written(number: float) -> Fraction:
    """Return the exact value of a number's text; 15 digits are those that a float keeps."""
    return Fraction(number) if isinstance(number, int) else Fraction(f"{number:.15g}")

"""The grid of a command in Hydra's overrides: its axes and points, parsed and combined by its rules."""

import math
import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal
from fractions import Fraction
from typing import Any

from hydra.core.override_parser.overrides_parser import OverridesParser
from hydra.core.override_parser.types import ChoiceSweep, Override, RangeSweep
from hydra.errors import HydraException

from runmanager.app.compose.cell_loader import CellLoader
from runmanager.app.compose.grid_rules import GridRules, KnownSettings, varying_names
from runmanager.app.request.command import quote_text
from runmanager.errors import ConfigurationError
from runmanager.records.settings.grid import size_fault
from runmanager.text import first_line, shell_quote


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


def _way_out(word: str) -> str:
    """How to quote a text that Hydra cannot parse, for the shell."""
    name, given, value = word.partition("=")
    is_text = (
        given and value and name.replace(".", "").isidentifier() and not any(mark in value for mark in "\"'[]{}(),$")
    )
    return f"; a text with such characters is written {shell_quote(f'{name}={quote_text(value)}')}" if is_text else ""


def parse_overrides(loader: CellLoader, words: Sequence[str]) -> list[Override]:
    """Parse the overrides in `words`; of several for one key, the last one applies.

    Raises `ConfigurationError` with every invalid one.
    """
    parser = OverridesParser.create(config_loader=loader)
    parsed: dict[str, Override] = {}
    faults = []
    for word in words:
        try:
            override = parser.parse_override(word)
        except (HydraException, ValueError, RecursionError) as error:  # ValueError: a number with too many digits
            reason = first_line(str(error)).partition(" expecting ")[0]
            line = f"`{word}` must be an override like lr=0.1, got what Hydra cannot parse: {reason}"
            faults.append(f"{line}{_way_out(word)}.")
            continue
        override.config_loader = loader  # needed to expand a glob
        if bad_axis := axis_fault(override):
            faults.append(bad_axis)
        parsed[override.get_key_element()] = override
    if faults:
        raise ConfigurationError(faults)
    return list(parsed.values())


@dataclass(frozen=True)
class OverrideGrid:
    """Parsed overrides, and points by their keys, with the rules that combine them."""

    overrides: Sequence[Override]
    points: Sequence[Mapping[str, Override]]
    rules: GridRules

    @property
    def num_cells(self) -> int:
        """The number of cells before any is excluded."""
        return math.prod(self.rules.sizes(_counts(self.overrides)).values())

    @property
    def varying(self) -> list[str]:
        """The keys of the settings that vary, in order."""
        texts = [{key: each.get_value_element_as_str() for key, each in point.items()} for point in self.points]
        axes = {each.get_key_element(): each.is_sweep_override() for each in self.overrides}
        return varying_names(texts) + [
            key for key, has_values in axes.items() if has_values or key in self.rules.searched
        ]

    @property
    def given(self) -> list[Override]:
        """Every override of every cell."""
        return [*self.overrides, *(each for point in self.points for each in point.values())]

    @property
    def values(self) -> dict[str, list[str]]:
        """The values of each override by its key, as they are typed; points are not among them."""
        return {each.get_key_element(): _values(each) for each in self.overrides}

    def combinations(self) -> list[list[str]]:
        """Return the overrides of each cell for Hydra; the last axis varies fastest."""
        points = [{key: each.get_value_element_as_str() for key, each in point.items()} for point in self.points]
        return [
            [f"{key}={value}" for key, value in cell.items()] for cell in self.rules.combinations(self.values, points)
        ]

    def known_settings(self, words: Sequence[str], loader: CellLoader) -> KnownSettings:
        """Return what the overrides alone say of a cell that could not be composed."""
        parsed = parse_overrides(loader, words)
        return KnownSettings({each.key_or_group: _plain(each.value()) for each in parsed}, is_whole=False)


def read_override_grid(loader: CellLoader, words: Sequence[str], rules: GridRules) -> OverrideGrid:
    """Parse a command's words and its points. Raises `ConfigurationError` with every fault, and for too many cells."""
    overrides = parse_overrides(loader, words)
    distinct = dict.fromkeys(word for point in rules.points for word in point)
    parsed = dict(zip(distinct, _parse_each(loader, list(distinct)), strict=True))
    if faults := [
        f"`{word}` must be a setting of the program in a point, got one of Hydra's."
        for word, each in parsed.items()
        if each.is_hydra_override()
    ]:
        raise ConfigurationError(faults)
    points = [{parsed[word].get_key_element(): parsed[word] for word in point} for point in rules.points]
    in_points = dict.fromkeys(key for point in points for key in point)
    return OverrideGrid(overrides, points, rules.resolved(_counts(overrides), in_points))


def values_of_word(loader: CellLoader, word: str) -> list[str]:
    """Return the values of an override, as they are typed. Raises `ConfigurationError` for an invalid one."""
    (values,) = OverrideGrid(parse_overrides(loader, [word]), (), GridRules()).values.values()
    return values


def _parse_each(loader: CellLoader, words: Sequence[str]) -> list[Override]:
    parsed: list[Override] = []
    faults: list[str] = []
    for word in words:
        try:
            parsed += parse_overrides(loader, [word])
        except ConfigurationError as error:
            faults += error.faults
    if faults:
        raise ConfigurationError(faults)
    return parsed


def _counts(overrides: Sequence[Override]) -> dict[str, int]:
    return {each.get_key_element(): num_values(each) if each.is_sweep_override() else 1 for each in overrides}


def _values(override: Override) -> list[str]:
    if isinstance(override.value(), RangeSweep):
        return [str(value) for value in axis_values(override)]
    if override.is_sweep_override():
        return list(override.sweep_string_iterator())
    return [override.get_value_element_as_str()]


def _plain(value: Any) -> Any:
    """A quoted text as text."""
    return getattr(value, "text", value)

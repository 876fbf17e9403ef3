"""The grid of a command in Hydra's overrides: its axes and points, parsed and combined by its rules."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from hydra.core.override_parser.overrides_parser import OverridesParser
from hydra.core.override_parser.types import Override, RangeSweep
from hydra.errors import HydraException

from runmanager.app.compose.cell_loader import CellLoader
from runmanager.app.compose.grid_rules import GridRules, KnownSettings, varying_names
from runmanager.app.compose.grid_size import axis_fault, axis_values, num_values
from runmanager.app.request.override_quoting import quote_text
from runmanager.errors import ConfigurationError
from runmanager.text import first_line, shell_quote

__all__ = ["OverrideGrid", "parse_overrides", "read_override_grid", "values_of_word"]


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

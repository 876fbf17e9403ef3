"""Defaults of the built-in job that have changed: a sweep keeps those with which it began."""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from runmanager.records.settings.signature import AUTOMATIC, LATER
from runmanager.records.sweep.sweep_record import SweepRecord, settings_of_cells
from runmanager.text import format_value

__all__ = ["CHANGED_DEFAULTS", "ChangedDefault", "defaults_now", "kept_defaults", "kept_defaults_note"]


@dataclass(frozen=True)
class ChangedDefault:
    """The default of a setting `before` a version of this package, and `now`.

    `same_results`: whether runs that differ in it alone compute the same, at another speed.
    """

    before: Any
    now: Any
    same_results: bool = False


CHANGED_DEFAULTS = {name: ChangedDefault(LATER[name], "auto", same_results=True) for name in AUTOMATIC}
"""By setting. A new entry is enough for named sweeps that began before to be recognised."""


def defaults_now() -> dict[str, Any]:
    """Return the present defaults of the settings whose default has changed: what a new sweep records."""
    return {name: change.now for name, change in CHANGED_DEFAULTS.items()}


def kept_defaults(record: SweepRecord, cells: Sequence[Mapping[str, Any]], *, given: Collection[str]) -> dict[str, Any]:
    """Return the earlier defaults that a sweep of the built-in job keeps for a command's `cells`, by setting.

    They are those with which it began and that its cells have. A setting that the command has `given`, or that a preset
    gives another value, is not kept; nor is one whose present default the sweep has already.
    """
    stored = settings_of_cells(record)
    kept = {}
    for name, change in CHANGED_DEFAULTS.items():
        began = (record.defaults or {}).get(name, change.before)
        is_of_sweep = _any_has(stored, name, began) and not _any_has(stored, name, change.now)
        if is_of_sweep and name not in given and all(_has(cell, name, change.now) for cell in cells):
            kept[name] = began
    return kept


def _any_has(cells: Sequence[Mapping[str, Any]], name: str, value: Any) -> bool:
    return any(_has(cell, name, value) for cell in cells)


def _has(cell: Mapping[str, Any], name: str, value: Any) -> bool:
    return name in cell and type(cell[name]) is type(value) and bool(cell[name] == value)


def kept_defaults_note(kept: Mapping[str, Any]) -> str:
    """Say in one line which earlier defaults a sweep keeps."""
    then = " ".join(f"{name}={format_value(value)}" for name, value in kept.items())
    now = " ".join(f"{name}={format_value(CHANGED_DEFAULTS[name].now)}" for name in kept)
    return f"This sweep began when {then} was the default, and keeps it; the default of a new sweep is {now}."

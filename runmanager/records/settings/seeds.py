"""Which settings are seeds: runs that differ in them alone repeat one measurement."""

import math
from collections.abc import Collection, Iterable, Mapping, Sequence
from fnmatch import fnmatchcase
from typing import Any

from runmanager.records.settings.values import hashable
from runmanager.text import format_value
from runmanager.validation import did_you_mean, fault

__all__ = ["SEED", "is_seed", "seed_grid", "seed_text", "seeds_among", "unknown_seed_names", "with_seeds"]

SEED = "seed"
"""The seed of the built-in job, and what a seed is called where no setting is one."""

_SEEDS = (SEED, "*.seed", "random_seed", "*.random_seed", "seed_everything", "manual_seed")


def is_seed(name: str, given: Iterable[str] = ()) -> bool:
    """Whether a setting, by its dotted name, is a seed: by one of the usual names, or by a glob that was `given`.

    Words joined by dashes count like words joined by underscores.
    """
    return any(_matches(name, glob) for glob in (*_SEEDS, *given))


def seeds_among(names: Iterable[str], given: Iterable[str] = ()) -> tuple[str, ...]:
    """Return which of these settings are seeds: first `seed` itself, then the outer ones."""
    given = tuple(given)
    found = (name for name in names if is_seed(name, given))
    return tuple(sorted(found, key=lambda name: (name != SEED, name.count("."), name)))


def unknown_seed_names(given: Iterable[str], settings: Collection[str], option: str = "--seed-name") -> list[str]:
    """Return a fault for each given glob that no setting of the cells matches; `option` gave it."""
    faults = []
    for glob in given:
        if not any(_matches(name, glob) for name in settings):
            close = did_you_mean(glob, settings, max_names=1)
            way_out = f"a seed's value is given as a setting: write {glob if '=' in glob else f'{SEED}=0'}"
            faults.append(fault(option, "name a setting of the cells", glob, f"{close} {way_out}".strip()))
    return faults


def seed_text(seeds: Mapping[str, Any]) -> str:
    """Return the seeds of a run as settings: `seed=0`."""
    return ",".join(f"{name}={format_value(value)}" for name, value in seeds.items())


def seed_grid(repeats: Iterable[Mapping[str, Any]]) -> dict[str, list[Any]]:
    """Return the values of the seeds that vary between repeats of a cell, given the seeds of each.

    Empty where none varies, where the repeats are not all combinations of these values, and where one is no whole
    number.
    """
    distinct = {hashable(dict(seeds)): seeds for seeds in repeats}.values()
    values: dict[str, dict[Any, Any]] = {}
    for seeds in distinct:
        for name, value in seeds.items():
            values.setdefault(name, {})[hashable(value)] = value
    varying = {name: list(each.values()) for name, each in values.items() if len(each) > 1}
    is_grid = math.prod(map(len, varying.values())) == len(distinct)
    is_whole = all(type(value) is int for each in varying.values() for value in each)
    return {name: sorted(each) for name, each in varying.items()} if is_grid and is_whole else {}


def with_seeds(words: Sequence[str], grid: Mapping[str, Sequence[Any]]) -> list[str]:
    """Return the words of a cell's command with all values of its seeds: `seed=0,1` for `seed=0`."""
    listed = {_plain(name): ",".join(map(format_value, values)) for name, values in grid.items()}
    found = []
    for word in words:
        name, is_setting, _ = word.partition("=")
        values = listed.get(_plain(name.lstrip("+"))) if is_setting else None
        found.append(word if values is None else f"{name}={values}")
    return found


def _matches(name: str, glob: str) -> bool:
    return fnmatchcase(name, glob) or fnmatchcase(_plain(name), _plain(glob))


def _plain(name: str) -> str:
    return name.replace("-", "_")

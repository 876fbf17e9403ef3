"""Expansion of grids of settings into cells, which of the settings are seeds, and in which order the cells start."""

import itertools
import math
from collections import namedtuple
from collections.abc import Collection, Hashable, Iterable, Mapping, Sequence
from enum import StrEnum
from fnmatch import fnmatchcase
from itertools import chain
from typing import Any

from runmanager.errors import UsageError
from runmanager.records.settings.values import hashable
from runmanager.text import format_value
from runmanager.validation import did_you_mean, fault

_MAX_CELLS = 100_000
"""Size of the largest grid: its cells take a gigabyte of memory, and its folders strain any file system."""


class Settings(dict[str, Any]):
    """One cell of a grid: a dict whose keys can also be read as attributes (`cell.lr`)."""

    def __getattr__(self, key: str) -> Any:
        try:
            return self[key]
        except KeyError:
            raise AttributeError(f"this cell has no setting '{key}'; it has {', '.join(self)}.") from None


def expand_grid(**axes: Iterable[Any]) -> list[Settings]:
    """Return every combination of the axes' values; the last axis varies fastest.

    Raises `UsageError` if an axis is a string, is not iterable or has no values, and for more than 100,000 cells.
    """
    return [Settings(zip(axes, values, strict=True)) for values in _product(axes)]


class RunBuilder:
    """The grid of the tutorials: a list of named tuples, one per run."""

    @staticmethod
    def get_runs(params: Mapping[str, Iterable[Any]]) -> list[Any]:
        """Return every combination of the values in `params` as named tuples `Run(lr=…, batch_size=…)`.

        Raises `UsageError` like `expand_grid`.
        """
        run_type = namedtuple("Run", list(params))  # type: ignore[misc]  # the fields are known at run time only
        return [run_type(*values) for values in _product(params)]


def _product(axes: Mapping[str, Iterable[Any]]) -> Iterable[tuple[Any, ...]]:
    columns = []
    for name, values in axes.items():
        if isinstance(values, str | bytes) or not isinstance(values, Iterable):
            raise UsageError(f"Axis '{name}' must be a list of values, got {values!r}; write {name}=[{values!r}].")
        columns.append(list(itertools.islice(values, _MAX_CELLS + 1)))  # an axis may be infinite
        if not columns[-1]:
            raise UsageError(f"Axis '{name}' must have at least one value, got none; leave it out of the grid.")
        if len(columns[-1]) > _MAX_CELLS:
            raise UsageError(f"Axis '{name}' must have at most {_MAX_CELLS:,} values, got more; split the grid.")
    if fault := size_fault(dict(zip(axes, map(len, columns), strict=True))):
        raise UsageError(fault)
    return itertools.product(*columns)


def size_fault(counts: Mapping[str, int]) -> str | None:
    """Return an error message if a grid with this number of values per axis is too large; else None."""
    num_cells = math.prod(counts.values())
    if num_cells <= _MAX_CELLS:
        return None
    axes = " times ".join(f"{_format_count(count)} of {name}" for name, count in counts.items() if count > 1)
    error = f"A grid must have at most {_MAX_CELLS:,} cells, got {_format_count(num_cells)}"
    return f"{error}: {axes}; split it into several sweeps."


def _format_count(number: int) -> str:
    return f"{number:,}" if number < 10**15 else f"about 10^{math.log10(number):.0f}"


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


class Order(StrEnum):
    """How cells follow one another within a block of one seed; `grid` is the order in which they were given."""

    GRID = "grid"
    RANDOM = "random"


def order_of(
    signatures: Sequence[str], seeds: Sequence[Hashable], order: str, *, stored: Sequence[int] = ()
) -> list[int]:
    """Return the positions of cells, given by `signatures` and `seeds`, in the order in which they start.

    Cells of equal seeds are a block; the blocks follow in the order of their first cells. Within one `random` sorts by
    the signatures: they are hashes, so this is a shuffle, and the same one in every process. `stored` are the positions
    of cells whose order was decided before and stays: a new cell starts after the last of them that has its seeds.
    """
    known = frozenset(stored)
    blocks: dict[Hashable, list[int]] = {}
    for at in range(len(signatures)):
        if at not in known:
            blocks.setdefault(seeds[at], []).append(at)
    if order == Order.RANDOM:
        for block in blocks.values():
            block.sort(key=signatures.__getitem__)
    last = {seeds[at]: at for at in stored}
    found: list[int] = []
    for at in stored:
        found.append(at)
        if last[seeds[at]] == at:
            found += blocks.pop(seeds[at], [])
    return [*found, *chain.from_iterable(blocks.values())]

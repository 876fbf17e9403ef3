"""Expansion of grids of settings into cells."""

import itertools
import math
from collections import namedtuple
from collections.abc import Iterable, Mapping
from typing import Any

from runmanager.errors import UsageError

__all__ = ["RunBuilder", "Settings", "expand_grid", "size_fault"]

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

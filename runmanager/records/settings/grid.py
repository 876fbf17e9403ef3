"""Settings and grids: expanding axes into cells, flattening nested settings, naming what varies."""

import argparse
import dataclasses
import itertools
import math
import re
import types
from collections import namedtuple
from collections.abc import Collection, Container, Iterable, Mapping, Sequence
from typing import Any

from runmanager.errors import UsageError
from runmanager.text import format_value

__all__ = [
    "MAX_CELLS",
    "RunBuilder",
    "Settings",
    "differing",
    "expand_grid",
    "flatten",
    "plain_settings",
    "readable_name",
    "size_fault",
]

MAX_CELLS = 100_000
"""The largest grid: its cells take a gigabyte of the driver's memory, and its folders strain any file system."""

_MAX_NAME_BYTES = 120  # file systems take 255 bytes, however few letters they are
_SHORT_BYTES = 12  # a value that is no longer is never shortened


class Settings(dict[str, Any]):
    """One cell of a grid: a dict whose keys can be read as attributes too (`cell.lr`)."""

    def __getattr__(self, key: str) -> Any:
        try:
            return self[key]
        except KeyError:
            raise AttributeError(f"this cell has no setting '{key}'; it has {', '.join(self)}.") from None


def expand_grid(**axes: Iterable[Any]) -> list[Settings]:
    """Every combination of the axes' values, the last axis varying fastest.

    Raises `UsageError` when an axis is a string, is not iterable, or has no values, and for more than 100,000 cells.
    """
    return [Settings(zip(axes, values, strict=True)) for values in _product(axes)]


class RunBuilder:
    """The tutorials' grid: a list of named tuples, one a run."""

    @staticmethod
    def get_runs(params: Mapping[str, Iterable[Any]]) -> list[Any]:
        """Every combination of the values in `params`, as `Run(lr=…, batch_size=…)` tuples.

        Raises `UsageError` as `expand_grid` does.
        """
        run_type = namedtuple("Run", list(params))  # type: ignore[misc]  # the fields are known at run time only
        return [run_type(*values) for values in _product(params)]


def _product(axes: Mapping[str, Iterable[Any]]) -> Iterable[tuple[Any, ...]]:
    columns = []
    for name, values in axes.items():
        if isinstance(values, str | bytes) or not isinstance(values, Iterable):
            raise UsageError(f"Axis '{name}' must be a list of values, got {values!r}; write {name}=[{values!r}].")
        columns.append(list(itertools.islice(values, MAX_CELLS + 1)))  # an axis alone may be endless
        if not columns[-1]:
            raise UsageError(f"Axis '{name}' must have at least one value, got none; leave it out of the grid.")
        if len(columns[-1]) > MAX_CELLS:
            raise UsageError(f"Axis '{name}' must have at most {MAX_CELLS:,} values, got more; split the grid.")
    if fault := size_fault(dict(zip(axes, map(len, columns), strict=True))):
        raise UsageError(fault)
    return itertools.product(*columns)


def size_fault(counts: Mapping[str, int]) -> str | None:
    """What is wrong with a grid of axes with so many values, as a readable line; None where it is not too large."""
    num_cells = math.prod(counts.values())
    if num_cells <= MAX_CELLS:
        return None
    axes = " times ".join(f"{_counted(count)} of {name}" for name, count in counts.items() if count > 1)
    said = f"A grid must have at most {MAX_CELLS:,} cells, got {_counted(num_cells)}"
    return f"{said}: {axes}; split it into several sweeps."


def _counted(number: int) -> str:
    return f"{number:,}" if number < 10**15 else f"about 10^{math.log10(number):.0f}"


def plain_settings(params: Any) -> dict[str, Any]:
    """The settings of a run as a dict of plain values, from a mapping, named tuple, dataclass or `argparse.Namespace`.

    NumPy's numbers become Python's; functions their qualified name; other values that JSON has no word for (a
    `torch.device`, a path, infinity) their text.
    Raises `UsageError` for anything else, and for keys that are not strings.
    """
    if params is None:
        return {}
    if hasattr(params, "_asdict"):
        params = params._asdict()
    elif dataclasses.is_dataclass(params) and not isinstance(params, type):
        params = dataclasses.asdict(params)
    elif isinstance(params, argparse.Namespace | types.SimpleNamespace):
        params = vars(params)
    if not isinstance(params, Mapping):
        raise UsageError(
            "A run's settings must be a mapping, a named tuple, a dataclass or an argparse.Namespace, "
            f"got {type(params).__name__}; use expand_grid(...) or a dict."
        )
    return {_key(key): _plain(value) for key, value in params.items()}


def _key(key: Any) -> str:
    if not isinstance(key, str):
        raise UsageError(f"The name of a setting must be a string, got {key!r}.")
    return key


def _plain(value: Any) -> Any:
    if isinstance(value, float):
        return float(value) if math.isfinite(value) else str(value)  # JSON would make null of the others
    if value is None or isinstance(value, bool | int | str):
        return value
    if getattr(value, "ndim", None) == 0 and hasattr(value, "item"):
        return _plain(value.item())  # a number of NumPy's or a tensor's
    if isinstance(value, Mapping):
        return {_key(key): _plain(item) for key, item in value.items()}
    if isinstance(value, Sequence | set | frozenset):
        return [_plain(item) for item in value]
    if isinstance(value, types.FunctionType | types.BuiltinFunctionType) and "<" not in value.__qualname__:
        return ".".join(filter(None, (value.__module__, value.__qualname__)))  # its text has an address in it
    return str(value)


def flatten(config: Mapping[str, Any]) -> dict[str, Any]:
    """Nested settings under dotted names (`{"model": {"depth": 8}}` -> `{"model.depth": 8}`); lists stay values."""
    flat: dict[str, Any] = {}
    for key, value in config.items():
        if isinstance(value, Mapping) and value:
            flat.update({f"{key}.{name}": item for name, item in flatten(value).items()})
        else:
            flat[key] = value
    return flat


def differing(cells: Sequence[Mapping[str, Any]]) -> list[str]:
    """The dotted names of the settings that do not have one value in all the (flat) cells, in order of appearance."""
    if not cells:
        return []
    names = dict.fromkeys(name for cell in cells for name in cell)
    first = cells[0]
    absent = object()
    return [
        name for name in names if any(_differ(cell.get(name, absent), first.get(name, absent)) for cell in cells[1:])
    ]


def _differ(one: Any, other: Any) -> bool:
    # 1 == True in Python, but they are two values of a setting.
    return one is not other and (type(one) is not type(other) or one != other)


def readable_name(settings: Mapping[str, Any], *, telling: Container[str] = ()) -> str:
    """The part of a run folder's name for people: `lr=0.01,model=cnn`; `run` where there are no settings.

    It has at most 120 bytes. Where all do not fit, the longest values are shortened in their middle; where that is not
    enough, settings are left out from the end, those that are `telling` (that tell this run from others) last.
    """
    parts = {key: (f"{key.removesuffix('.name')}=", _short(value)) for key, value in settings.items()}
    parts = {key: (_safe(name), _safe(value)) for key, (name, value) in parts.items()}
    while len(parts) > 1 and _num_bytes(parts.values(), limit=_SHORT_BYTES) > _MAX_NAME_BYTES:
        parts.pop(next((key for key in reversed(parts) if key not in telling), next(reversed(parts))))
    longest = range(_MAX_NAME_BYTES, _SHORT_BYTES, -1)
    limit = next((each for each in longest if _num_bytes(parts.values(), limit=each) <= _MAX_NAME_BYTES), _SHORT_BYTES)
    name = ",".join(f"{key}{_cut(value, limit)}" for key, value in parts.values())
    return name.encode()[:_MAX_NAME_BYTES].decode(errors="ignore").strip(".,_") or "run"


def _safe(text: str) -> str:
    return re.sub(r"[^\w.,=+-]+", "_", text)


def _num_bytes(parts: Collection[tuple[str, str]], *, limit: int) -> int:
    """How long a name of these keys and values is, values cut to `limit` bytes."""
    return sum(len(key.encode()) + min(len(value.encode()), limit) + 1 for key, value in parts) - 1


def _cut(text: str, limit: int) -> str:
    """A text of at most `limit` bytes: its beginning and its end, as values of one kind often differ in one of them."""
    data = text.encode()
    if len(data) <= limit:
        return text
    tail = (limit - 2) // 2
    head = limit - 2 - tail
    return f"{data[:head].decode(errors='ignore')}..{data[-tail:].decode(errors='ignore')}"


def _short(value: Any) -> str:
    if isinstance(value, list):
        return "x".join(_short(item) for item in value)
    return format_value(value)

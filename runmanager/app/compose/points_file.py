"""Explicit points of a grid in a file: YAML, JSON or CSV."""

import csv
import json
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import yaml
from hydra.core.override_parser.overrides_parser import OverridesParser
from hydra.errors import HydraException
from omegaconf import OmegaConf

from runmanager.app.request.override_quoting import format_override, quote_text
from runmanager.errors import UsageError
from runmanager.records.files.yaml_size import require_few_values
from runmanager.text import first_line
from runmanager.validation import fault

__all__ = ["read_points"]

_MAX_VALUES = 1_000_000
_PLAIN = (str, int, float, bool, list, dict, type(None))


def read_points(file: str, *, key: str) -> tuple[tuple[str, ...], ...]:
    """Return the words NAME=VALUE of each point in a file.

    A YAML or JSON file has a list of mappings, a CSV file a row a point below a row of names; an empty field is left
    out of its point. Fields of CSV are read as Hydra reads values, and as text where it cannot. `key` is the name of
    the option in messages. Raises `UsageError` with what is wrong.
    """
    read = _READERS.get(Path(file).suffix.lower())
    if read is None:
        raise UsageError(fault(key, "be a file of points, .yaml, .json or .csv", file))
    try:
        points = read(Path(file))
    except FileNotFoundError:
        raise UsageError(fault(key, "be a file that exists", file)) from None
    except Exception as error:  # of three parsers, each with its own
        raise UsageError(fault(key, "be a readable file", f"{file}: {first_line(str(error))}")) from None
    if not points:
        raise UsageError(fault(key, "have at least one point", f"none in {file}"))
    return tuple(points)


def _read_yaml(path: Path) -> list[tuple[str, ...]]:
    # OmegaConf's reader, as for configurations: 1e-3 is a number, unlike in plain YAML 1.1.
    text = path.read_text("utf-8")
    require_few_values(yaml.compose(text, yaml.SafeLoader), most=_MAX_VALUES)
    return _words_of(OmegaConf.to_container(OmegaConf.create(text)))


def _read_json(path: Path) -> list[tuple[str, ...]]:
    return _words_of(json.loads(path.read_text("utf-8")))


def _words_of(points: Any) -> list[tuple[str, ...]]:
    if not isinstance(points, list) or not all(isinstance(point, Mapping) for point in points):
        raise ValueError("a list of mappings of names to values is needed, as in [{lr: 0.1, batch_size: 32}]")
    return [_words(number, point) for number, point in enumerate(points, start=1)]


def _words(number: int, point: Mapping[Any, Any]) -> tuple[str, ...]:
    for name, value in point.items():
        if not isinstance(name, str) or not isinstance(value, _PLAIN):
            raise ValueError(f"point {number} must map names to values, got {name!r}: {value!r}")
    if not point:
        raise ValueError(f"point {number} has no settings")
    return tuple(format_override(name, value) for name, value in point.items())


def _read_csv(path: Path) -> list[tuple[str, ...]]:
    with path.open(newline="", encoding="utf-8-sig") as file:
        rows = [row for row in csv.reader(file, strict=True) if row]
    names = [name.strip() for name in rows[0]] if rows else []
    if not all(names) or len(set(names)) < len(names):
        raise ValueError(f"the first row must have a name for each column, each once, got {','.join(names)}")
    return [_row_words(number, names, row) for number, row in enumerate(rows[1:], start=1)]


def _row_words(number: int, names: Sequence[str], row: Sequence[str]) -> tuple[str, ...]:
    if len(row) != len(names):
        raise ValueError(f"point {number} must have {len(names)} fields, got {len(row)}")
    words = tuple(_field_word(name, text) for name, text in zip(names, row, strict=True) if text.strip())
    if not words:
        raise ValueError(f"point {number} has no settings")
    return words


def _field_word(name: str, text: str) -> str:
    word = f"{name}={text}"
    try:
        is_text = OverridesParser.create().parse_override(word).is_sweep_override()
    except (HydraException, ValueError, RecursionError):
        is_text = True
    return f"{name}={quote_text(text)}" if is_text else word


_READERS: Mapping[str, Callable[[Path], list[tuple[str, ...]]]] = {
    ".yaml": _read_yaml,
    ".yml": _read_yaml,
    ".json": _read_json,
    ".csv": _read_csv,
}

"""Rules on a grid in addition to its axes: axes that advance together, explicit points, and cells that are left out."""

import csv
import itertools
import json
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

import yaml
from hydra.core.override_parser.overrides_parser import OverridesParser
from hydra.errors import HydraException
from omegaconf import OmegaConf

from runmanager.app.request.command import format_override, quote_text
from runmanager.app.request.sweep_request import SweepRequest
from runmanager.errors import ConfigurationError, UsageError
from runmanager.records.files.file_errors import require_few_values
from runmanager.records.settings.grid import size_fault, unknown_seed_names
from runmanager.text import first_line, pluralize
from runmanager.validation import fault, suggestion

if TYPE_CHECKING:
    from runmanager.results.tables.where_condition import Condition

_T = TypeVar("_T")

_WHERE = "`--where`"  # how the messages of conditions name their option


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


class ExcludedError(ConfigurationError):
    """A condition leaves out every cell."""


class KnownSettings(NamedTuple):
    """The flat settings of a cell; not `is_whole` if it could not be composed, and only the given ones are known."""

    values: Mapping[str, Any]
    is_whole: bool = True


@dataclass(frozen=True)
class GridRules:
    """What a command gives for its grid in addition to the axes; not part of any cell.

    `zips`: groups of axes that advance together. `points`: the words NAME=VALUE of each explicit point, combined with
    the axes as a grid. `exclude`: the cells for which it holds are left out. `seed_names`: globs of settings that are
    seeds besides those of the usual names. `searched`: settings that vary although the words of a cell have one value
    of each. `key` is how the user names a rule: `zip` is `--zip` in one command, `hydra.sweeper.zip` in another.
    """

    zips: tuple[tuple[str, ...], ...] = ()
    points: tuple[tuple[str, ...], ...] = ()
    exclude: "Condition | None" = None
    key: Callable[[str], str] = str
    seed_names: tuple[str, ...] = ()
    searched: frozenset[str] = frozenset()

    @classmethod
    def read(cls, request: SweepRequest, key: Callable[[str], str]) -> "GridRules":
        """Read the rules that a request has. Raises `ConfigurationError` with their faults."""
        points, exclude = request.points, request.exclude
        faults = _group_faults(groups := _groups(request.zip), key("zip"))
        words: tuple[tuple[str, ...], ...] = ()
        condition = None
        try:
            words = () if points is None else read_points(points, key=key("points"))
        except UsageError as error:
            faults.append(str(error))
        try:
            if exclude is not None:
                from runmanager.results.tables.where_condition import parse_condition  # late: few grids have one

                condition = parse_condition(exclude)
        except UsageError as error:
            faults.append(str(error).replace(_WHERE, f"`{key('exclude')}`"))
        if faults:
            raise ConfigurationError(faults)
        return cls(groups, words, condition, key, tuple(request.seed_name))

    def of_search(self, keys: frozenset[str]) -> "GridRules":
        """Return the rules of a search of these settings. Raises `ConfigurationError` for those of a grid alone."""
        given = {"zip": self.zips, "points": self.points}
        if faults := [
            fault(self.key(name), "be left out of a search, which chooses each setting by itself", "it")
            for name, value in given.items()
            if value
        ]:
            raise ConfigurationError(faults)
        return replace(self, searched=keys)

    def resolved(self, counts: Mapping[str, int], in_points: Collection[str]) -> "GridRules":
        """Return the rules with the axes as the grid names them, given the number of values of each setting.

        `in_points`: the settings of the points. Raises `ConfigurationError` with the faults of the rules, and if the
        grid is too large.
        """
        faults = [
            f"`{name}` must be given either in the points or in the command, got both."
            for name in in_points
            if _named(name, counts) is not None
        ]
        zips = []
        for group in self.zips:
            axes = {name: _named(name, counts) for name in group}
            known = [axis for axis in axes.values() if axis is not None]
            faults += [
                fault(self.key("zip"), "name settings of the grid", name, suggestion(name, counts))
                for name, axis in axes.items()
                if axis is None
            ]
            if len({counts[axis] for axis in known}) > 1:
                lengths = " and ".join(f"{pluralize(counts[axis], 'value')} of {axis}" for axis in known)
                faults.append(fault(self.key("zip"), "name axes of equal length", lengths))
            zips.append(tuple(known))
        if faults:
            raise ConfigurationError(faults)
        rules = replace(self, zips=tuple(zips))
        if too_large := size_fault(rules.sizes(counts)):
            raise ConfigurationError([too_large])
        return rules

    def sizes(self, counts: Mapping[str, int]) -> dict[str, int]:
        """Return the number of choices of each part of the grid; their product is that of its cells."""
        sizes = {"points": len(self.points)} if self.points else {}
        return sizes | {"+".join(group): counts[group[0]] for group in self._parts(counts)}

    def combinations(self, axes: Mapping[str, Sequence[_T]], points: Sequence[Mapping[str, _T]]) -> list[dict[str, _T]]:
        """Return every combination of the points and the axes' values; the last axis varies fastest."""
        parts: list[Sequence[Mapping[str, _T]]] = [points] if points else []
        for group in self._parts(axes):
            columns = [axes[name] for name in group]
            parts.append([dict(zip(group, values, strict=True)) for values in zip(*columns, strict=True)])
        return [
            {name: value for part in chosen for name, value in part.items()} for chosen in itertools.product(*parts)
        ]

    def _parts(self, names: Collection[str]) -> list[tuple[str, ...]]:
        """The groups of settings that vary together, most of a single one, in the order of their first."""
        group_of = {name: group for group in self.zips for name in group}
        return list(dict.fromkeys(group_of.get(name, (name,)) for name in names))

    def kept(self, cells: Sequence[KnownSettings]) -> list[bool]:
        """Whether each cell remains.

        Raises `ConfigurationError` for a name in the condition that no cell has.
        """
        if self.exclude is None:
            return [True] * len(cells)
        from runmanager.results.table_model.columns import Row
        from runmanager.results.tables.where_condition import AVAILABLE_COLUMNS_HINT

        names = dict.fromkeys(name for cell in cells for name in cell.values)
        found = {word: _column(word, names) for word in self.exclude.words}
        columns = {word: column for word, column in found.items() if column is not None}
        try:
            holds = self.exclude.over(columns, known=list(names))
        except UsageError as error:
            message = str(error).replace(_WHERE, f"`{self.key('exclude')}`").replace("columns or settings", "settings")
            raise ConfigurationError([message.replace(AVAILABLE_COLUMNS_HINT, suggestion("", names))]) from None
        return [
            not (cell.is_whole or all(name in cell.values for name in columns.values()))
            or not holds(Row({name: cell.values.get(name) for name in columns.values()}))
            for cell in cells
        ]

    def seed_faults(self, settings: Iterable[str]) -> list[str]:
        """Return a fault for each of the `seed_names` that none of the cells' settings has."""
        if not self.seed_names:
            return []
        return unknown_seed_names(self.seed_names, dict.fromkeys(settings), self.key("seed_name"))

    def none_left(self, num_cells: int) -> "ExcludedError":
        """The error that all cells are excluded."""
        got = f"a condition that holds for all {num_cells:,}"
        return ExcludedError([fault(self.key("exclude"), "leave at least one cell", got)])

    def excluded_notes(self, num_cells: int) -> list[str]:
        """Return what a command says of the cells that it leaves out; the corners of a space are none of its own."""
        if not num_cells or self.searched:
            return []
        return [f"{pluralize(num_cells, 'cell of the grid is', 'cells of the grid are')} excluded."]


def varying_names(points: Sequence[Mapping[str, Any]]) -> list[str]:
    """Return the settings in which points differ, in order of their first appearance."""
    names = dict.fromkeys(name for point in points for name in point)
    return [name for name in names if len({repr(point[name]) if name in point else None for point in points}) > 1]


def _groups(given: Any) -> tuple[tuple[str, ...], ...]:
    """Names as one group, or lists of names as several."""
    if not given:
        return ()
    if isinstance(given, str):
        return (tuple(name.strip() for name in given.split(",")),)
    groups = given if any(isinstance(each, list | tuple) for each in given) else [given]
    return tuple(
        tuple(str(name).strip() for name in group) if isinstance(group, list | tuple) else (str(group),)
        for group in groups
    )


def _group_faults(groups: Sequence[Sequence[str]], key: str) -> list[str]:
    faults = [
        fault(key, "name at least two axes, as in lr,batch_size", ",".join(group) or "none")
        for group in groups
        if len(group) < 2
    ]
    names = [name for group in groups for name in group]
    repeated = dict.fromkeys(name for name in names if names.count(name) > 1)
    return faults + [fault(key, "name each axis once", f"{name} several times") for name in repeated]


def _named(name: str, names: Collection[str]) -> str | None:
    """The name of a setting as it was given: `+model.width` for `model.width`, `batch-size` for `batch_size`."""
    given = {each.lstrip("+~"): each for each in reversed(list(names))}
    spelled = {each.replace("-", "_"): known for each, known in given.items()}
    wanted = name.lstrip("+~")
    return given.get(wanted) or spelled.get(wanted.replace("-", "_"))


def _column(word: str, names: Collection[str]) -> str | None:
    """The setting that a word of a condition names: itself, the choice of a group, or one that is spelled with dashes.

    In a condition, `batch-size` would be a difference.
    """
    exact = next((each for each in (word, f"{word}.name", f"{word}._target_") if each in names), None)
    return exact or next((each for each in names if each.replace("-", "_") == word), None)

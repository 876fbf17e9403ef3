"""The cells of a command: its overrides expanded, composed, checked and named, or every fault reported together."""

import shlex
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from hydra.core.override_parser.overrides_parser import OverridesParser
from hydra.core.override_parser.types import Override
from hydra.errors import HydraException
from omegaconf import DictConfig
from omegaconf.errors import MissingMandatoryValue, OmegaConfBaseException

from runmanager.app.compose.cell_loader import CellLoader
from runmanager.app.compose.grid_size import axis_fault
from runmanager.app.compose.override_quoting import quote_text
from runmanager.app.compose.schema import CellReader, Config, read_config, unknown_settings
from runmanager.errors import ConfigurationError
from runmanager.launching.plan import Cell
from runmanager.records.settings.naming import readable_name
from runmanager.records.settings.signature import UNSIGNED, short_signature, signature
from runmanager.records.settings.values import flatten
from runmanager.training.options.groups import PairedOptions
from runmanager.training.options.unused import unused_setting_faults

__all__ = ["Grid", "expand_overrides", "parse_overrides", "prepare_cells", "prepare_job_cells"]


@dataclass(frozen=True)
class Grid:
    """The cells of a command in order, with their typed settings.

    `axes`: the values of each varying setting. `given`: the names of all settings that the command sets. `sides`: the
    settings in which the sides of a duel differ.
    """

    cells: Sequence[Cell]
    configs: Sequence[Config]
    axes: dict[str, list[Any]]
    given: frozenset[str]
    sides: Sequence[str] = ()


def _way_out(word: str) -> str:
    """How to quote a text that Hydra cannot parse, for the shell."""
    name, given, value = word.partition("=")
    is_text = (
        given and value and name.replace(".", "").isidentifier() and not any(mark in value for mark in "\"'[]{}(),$")
    )
    return f"; a text with such characters is written {shlex.quote(f'{name}={quote_text(value)}')}" if is_text else ""


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
        except (HydraException, ValueError) as error:  # Python's own for a number with too many digits
            reason = str(error).splitlines()[0].partition(" expecting ")[0]
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


def expand_overrides(overrides: Sequence[Override]) -> list[list[str]]:
    """Return every combination of the overrides' values as overrides for Hydra; the last axis varies fastest."""
    cells: list[list[str]] = [[]]
    for override in overrides:
        key = override.get_key_element()
        if override.is_sweep_override():
            values = list(override.sweep_string_iterator())
        else:
            values = [override.get_value_element_as_str()]
        cells = [[*cell, f"{key}={value}"] for cell in cells for value in values]
    return cells


def prepare_cells(
    loader: CellLoader, master: DictConfig, words: Sequence[str], *, sides: Sequence[Sequence[str]] = ()
) -> Grid:
    """Compose the grid of the overrides `words`, with each cell once for each of `sides`, a duel's sides.

    Raises `ConfigurationError` with every fault of every cell.
    """
    overrides = parse_overrides(loader, words)
    of_sides = [parse_overrides(loader, side) for side in sides]
    between = list(dict.fromkeys(each.get_key_element() for side in of_sides for each in side))
    varying = [each.get_key_element() for each in overrides if each.is_sweep_override()] + between
    if bad_sides := _side_faults(overrides, of_sides):
        raise ConfigurationError(bad_sides)
    faults: dict[str, None] = {}
    for key in varying:
        if key.lstrip("+~").split(".")[0] in UNSIGNED:
            faults[f"`{key}` must have one value in a sweep, got several; it does not distinguish runs."] = None
    combinations = _combine_with_sides(expand_overrides(overrides), of_sides)
    given = _given([*overrides, *(each for side in of_sides for each in side)])
    cells, configs = _read_cells(loader, master, combinations, varying=varying, given=given, faults=faults)
    if sides and len({cell.signature for cell in cells}) < len(cells):
        raise ConfigurationError(["The sides of a duel must differ, got the same settings on both."])
    names = [key.lstrip("+~") for key in between]
    return Grid(cells, configs, _axes(varying, cells), frozenset(given), [name for name in names if name != "seed"])


def prepare_job_cells(loader: CellLoader, master: DictConfig, jobs: Sequence[Sequence[str]]) -> Grid:
    """Compose the cells of another sweeper's jobs, given by their overrides; they have no axes.

    Raises `ConfigurationError` with every fault of every cell.
    """
    given = _given([each for words in jobs for each in parse_overrides(loader, words)])
    cells, configs = _read_cells(loader, master, [list(words) for words in jobs], varying=(), given=given, faults={})
    return Grid(cells, configs, {}, frozenset(given))


def _read_cells(
    loader: CellLoader,
    master: DictConfig,
    combinations: Sequence[list[str]],
    *,
    varying: Sequence[str],
    given: Sequence[str],
    faults: dict[str, None],
) -> tuple[list[Cell], list[Config]]:
    """Compose the cell of each combination of overrides, with its typed settings.

    Raises `ConfigurationError` with every fault of every cell, and the given `faults`.
    """
    cells, configs = [], []
    reader = CellReader()
    for words_of_cell in combinations:
        composed = _composed(loader, master, words_of_cell, reader, faults)
        if composed is None:
            continue
        plain, config = composed
        faults.update(dict.fromkeys(config.faults()))
        identity = signature(plain)
        # `+model.width` varies model.width.
        settings = {key.lstrip("+~"): _value_of(plain, key.lstrip("+~")) for key in varying}
        name = f"{readable_name(settings)}-{short_signature(identity)}"
        cells.append(
            Cell(
                identity,
                name,
                plain,
                tuple(words_of_cell),
                device=config.device,
                epochs=config.epochs,
                measure_seconds=config.measure.max_seconds if isinstance(config.measure, PairedOptions) else 0.0,
            )
        )
        configs.append(config)
    if len(configs) == len(combinations):  # an invalid cell might use a setting that the others do not
        faults.update(dict.fromkeys(unused_setting_faults(configs, given)))
    if faults:
        raise ConfigurationError(faults)
    return cells, configs


def _combine_with_sides(cells: list[list[str]], sides: Sequence[Sequence[Override]]) -> list[list[str]]:
    """Each cell with the overrides of each side."""
    if not sides:
        return cells
    side_words = [[f"{each.get_key_element()}={each.get_value_element_as_str()}" for each in side] for side in sides]
    return [[*cell, *side] for cell in cells for side in side_words]


def _side_faults(overrides: Sequence[Override], sides: Sequence[Sequence[Override]]) -> list[str]:
    common = {each.get_key_element() for each in overrides}
    faults = []
    for each in (each for side in sides for each in side):
        if each.is_sweep_override():
            faults.append(f"`{each.input_line}` must be one value on a side of a duel, got several.")
        if each.get_key_element() in common:
            faults.append(f"`{each.get_key_element()}` must be given either for the sides or for both, got both.")
    if sides and all(each.get_key_element() == "seed" for side in sides for each in side):
        faults.append("The sides of a duel must differ in more than the seed, got nothing else; seeds are repetitions.")
    return faults


def _composed(
    loader: CellLoader, master: DictConfig, words: list[str], reader: CellReader, faults: dict[str, None]
) -> tuple[dict[str, Any], Config] | None:
    try:
        cfg = loader.load_sweep_config(master, words)
        unknown = unknown_settings(cfg)
        if unknown:
            faults.update(dict.fromkeys(unknown))
            return None
        return reader.read(cfg)
    except (HydraException, OmegaConfBaseException) as error:
        found, rest = loader.diagnose(master, words)
        faults.update(dict.fromkeys(found or [_composition_fault(error)]))
        if found and rest is not None:
            # Report the faults of the other values together with these.
            faults.update(dict.fromkeys(read_config(rest).faults()))
        return None


def _given(overrides: Sequence[Override]) -> list[str]:
    """The names of the settings that the overrides set, including nested ones as in `early_stop={patience:5}`."""
    names: dict[str, None] = {}
    for each in overrides:
        name, value = each.key_or_group, each.value()
        names.update(dict.fromkeys(flatten({name: value}) if isinstance(value, dict) else [name]))
    return list(names)


def _composition_fault(error: Exception) -> str:
    if isinstance(error, MissingMandatoryValue):
        return f"`{error.full_key}` must be given, got nothing; add `{error.full_key}=…`."
    return str(error).splitlines()[0]


def _value_of(plain: dict[str, Any], key: str) -> Any:
    """The value of a setting, or the choice of a group."""
    flat = flatten(plain)
    return flat.get(key, flat.get(f"{key}.name", flat.get(f"{key}._target_")))


def _axes(varying: Sequence[str], cells: Sequence[Cell]) -> dict[str, list[Any]]:
    axes: dict[str, list[Any]] = {}
    for key in varying:
        name = key.lstrip("+~")
        values = [_value_of(dict(cell.config), name) for cell in cells]
        axes[name] = list({repr(value): value for value in values}.values())
    return axes

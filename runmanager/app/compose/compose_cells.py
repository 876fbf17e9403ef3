"""The cells of a command: its overrides expanded, composed, checked and named, or every fault reported together."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from hydra.core.override_parser.types import Override
from hydra.errors import HydraException
from omegaconf import DictConfig
from omegaconf.errors import MissingMandatoryValue, OmegaConfBaseException

from runmanager.app.compose.cell_loader import CellLoader
from runmanager.app.compose.grid_rules import GridRules, KnownSettings
from runmanager.app.compose.override_grid import OverrideGrid, parse_overrides, read_override_grid
from runmanager.app.compose.saved_preset import PRESETS
from runmanager.app.compose.schema import CellReader, Config, read_config, unknown_settings
from runmanager.errors import ConfigurationError
from runmanager.launching.plan import Cell
from runmanager.records.settings.grid import is_seed
from runmanager.records.settings.secrets import is_secret, without_secrets
from runmanager.records.settings.signature import UNSIGNED, readable_name, short_signature, signature
from runmanager.records.settings.values import flatten
from runmanager.training.options.groups import PairedOptions
from runmanager.training.options.job import unused_setting_faults


@dataclass(frozen=True)
class Grid:
    """The cells of a command in order, with their typed settings.

    `axes`: the values of each varying setting. `given`: the names of all settings that the command sets. `sides`: the
    settings in which the sides of a duel differ. `num_excluded` cells of the grid were left out. `secrets`: the axes
    whose values do not count.
    """

    cells: Sequence[Cell]
    configs: Sequence[Config]
    axes: dict[str, list[Any]]
    given: frozenset[str]
    sides: Sequence[str] = ()
    num_excluded: int = 0
    secrets: Sequence[str] = ()


def prepare_cells(
    loader: CellLoader,
    master: DictConfig,
    words: Sequence[str],
    *,
    sides: Sequence[Sequence[str]] = (),
    rules: GridRules | None = None,
    earlier: Callable[[Mapping[str, Any]], Sequence[str]] | None = None,
) -> Grid:
    """Compose the grid of the overrides `words` by its `rules`, with each cell once for each of a duel's `sides`.

    `earlier` returns more overrides of a composed cell: those of the defaults under which its sweep began.

    Raises `ConfigurationError` with every fault of every cell that is not excluded.
    """
    grid = read_override_grid(loader, words, rules or GridRules())
    of_sides = [parse_overrides(loader, side) for side in sides]
    between = list(dict.fromkeys(each.get_key_element() for side in of_sides for each in side))
    varying = without_secrets(grid.varying + between)
    if bad_sides := _side_faults(grid, of_sides):
        raise ConfigurationError(bad_sides)
    faults: dict[str, None] = {}
    for key in varying:
        if key.lstrip("+~").split(".")[0] in UNSIGNED:
            faults[f"`{key}` must have one value in a sweep, got several; it does not distinguish runs."] = None
    if fault := _presets_fault(grid):
        raise ConfigurationError([*faults, fault])
    combinations = _combine_with_sides(grid.combinations(), of_sides)
    given = _given([*grid.given, *(each for side in of_sides for each in side)])
    cells, configs = _read_cells(
        loader, master, combinations, varying=varying, given=given, faults=faults, grid=grid, earlier=earlier
    )
    if sides and len({cell.signature for cell in cells}) < len(cells):
        defaults = "" if _set_the_same(of_sides) else "; what one side leaves out has its default there"
        raise ConfigurationError([f"The sides of a duel must differ, got the same settings on both{defaults}."])
    names = [key.lstrip("+~") for key in between]
    between = [name for name in names if not is_seed(name)]
    num_excluded = len(combinations) - len(cells)
    secrets = list(filter(is_secret, grid.varying))
    return Grid(cells, configs, _axes(varying, cells), frozenset(given), between, num_excluded, secrets)


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
    grid: OverrideGrid | None = None,
    earlier: Callable[[Mapping[str, Any]], Sequence[str]] | None = None,
) -> tuple[list[Cell], list[Config]]:
    """Compose the cell of each combination of overrides that `grid` does not exclude, with its typed settings.

    Raises `ConfigurationError` with every fault of every cell, and the given `faults`.
    """
    reader = CellReader()
    composed = [_compose(loader, master, words, reader, earlier) for words in combinations]
    if grid is not None and grid.rules.exclude is not None:
        composed = _remaining(composed, grid, loader, varying)
    cells, configs = [], []
    for each in composed:
        faults.update(each.faults)
        if each.config is not None:
            cells.append(_cell(each, each.config, varying))
            configs.append(each.config)
    if len(configs) == len(composed):  # an invalid cell might use a setting that the others do not
        faults.update(dict.fromkeys(unused_setting_faults(configs, given)))
    if faults:
        raise ConfigurationError(faults)
    return cells, configs


@dataclass(frozen=True)
class _Composed:
    """The overrides of one cell, and what they compose to: `config` is None if that failed."""

    words: list[str]
    plain: dict[str, Any]
    config: Config | None
    faults: dict[str, None]
    derived: frozenset[str] = frozenset()


def _compose(
    loader: CellLoader,
    master: DictConfig,
    words: list[str],
    reader: CellReader,
    earlier: Callable[[Mapping[str, Any]], Sequence[str]] | None,
) -> _Composed:
    faults: dict[str, None] = {}
    composed = _composed(loader, master, words, reader, faults)
    if composed is not None and earlier is not None and (more := earlier(composed[0])):
        words = [*words, *more]
        composed = _composed(loader, master, words, reader, faults)
    if composed is None:
        return _Composed(words, {}, None, faults)
    plain, config, derived = composed
    faults.update(dict.fromkeys(config.faults()))
    return _Composed(words, plain, config, faults, derived)


def _remaining(
    composed: Sequence[_Composed], grid: OverrideGrid, loader: CellLoader, varying: Sequence[str]
) -> list[_Composed]:
    """The cells that are not excluded, or all if none could be composed. Raises `ConfigurationError` if none is."""
    if all(each.config is None for each in composed):
        return list(composed)
    known = [
        grid.known_settings(each.words, loader)
        if each.config is None
        else KnownSettings(flatten(each.plain) | _shown(each.plain, varying))
        for each in composed
    ]
    remaining = [each for each, is_kept in zip(composed, grid.rules.kept(known), strict=True) if is_kept]
    if not remaining:
        raise grid.rules.none_left(len(composed))
    return remaining


def _cell(composed: _Composed, config: Config, varying: Sequence[str]) -> Cell:
    plain = composed.plain
    identity = signature(plain)
    return Cell(
        identity,
        f"{readable_name(_shown(plain, varying))}-{short_signature(identity)}",
        plain,
        tuple(composed.words),
        device=config.device,
        epochs=config.epochs,
        measure_seconds=config.measure.max_seconds if isinstance(config.measure, PairedOptions) else 0.0,
        infers=tuple(config.infer.batch_sizes),
        derived=composed.derived,
    )


def _shown(plain: dict[str, Any], varying: Sequence[str]) -> dict[str, Any]:
    """The settings that vary: `+model.width` varies model.width."""
    return {key.lstrip("+~"): _value_of(plain, key.lstrip("+~")) for key in varying}


def _combine_with_sides(cells: list[list[str]], sides: Sequence[Sequence[Override]]) -> list[list[str]]:
    """Each cell with the overrides of each side."""
    if not sides:
        return cells
    side_words = [[f"{each.get_key_element()}={each.get_value_element_as_str()}" for each in side] for side in sides]
    return [[*cell, *side] for cell in cells for side in side_words]


def _set_the_same(sides: Sequence[Sequence[Override]]) -> bool:
    """Whether both sides of a duel give the same settings."""
    return len({frozenset(each.get_key_element() for each in side) for side in sides}) == 1


def _side_faults(grid: OverrideGrid, sides: Sequence[Sequence[Override]]) -> list[str]:
    common = {each.get_key_element() for each in grid.given}
    faults = []
    if sides and grid.rules.exclude is not None:
        faults.append(f"`{grid.rules.key('exclude')}` must be left out in a duel, got it; every cell has both sides.")
    for each in (each for side in sides for each in side):
        if each.is_sweep_override():
            faults.append(f"`{each.input_line}` must be one value on a side of a duel, got several.")
        if each.get_key_element() in common:
            faults.append(f"`{each.get_key_element()}` must be given either for the sides or for both, got both.")
    if sides and all(is_seed(each.get_key_element()) for side in sides for each in side):
        faults.append("The sides of a duel must differ in more than the seed, got nothing else; seeds are repetitions.")
    return faults


def _composed(
    loader: CellLoader, master: DictConfig, words: list[str], reader: CellReader, faults: dict[str, None]
) -> tuple[dict[str, Any], Config, frozenset[str]] | None:
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


def _presets_fault(grid: OverrideGrid) -> str:
    """A message on presets that vary: the axes of a preset are read once, before the cells are composed."""
    of_cells = [each for each in grid.overrides if each.is_sweep_override()]
    of_cells += [each for point in grid.points for each in point.values()]
    given = [each.input_line for each in of_cells if each.key_or_group == PRESETS]
    if not given:
        return ""
    way_out = "run each by itself: with the same `name` their cells are in one sweep"
    return f"`{PRESETS}` must be one preset for all cells, got `{given[0]}`; {way_out}."


def _axes(varying: Sequence[str], cells: Sequence[Cell]) -> dict[str, list[Any]]:
    axes: dict[str, list[Any]] = {}
    for key in varying:
        name = key.lstrip("+~")
        values = [_value_of(dict(cell.config), name) for cell in cells]
        axes[name] = list({repr(value): value for value in values}.values())
    return axes

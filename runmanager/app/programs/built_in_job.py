"""The built-in job as a program of sweeps, also of those that began under the defaults of an earlier version."""

from collections.abc import Callable, Collection, Mapping, Sequence
from pathlib import Path
from typing import Any

from omegaconf import DictConfig

from runmanager.app.compose.cell_loader import CellLoader
from runmanager.app.compose.compose_cells import Grid, prepare_cells
from runmanager.app.compose.grid_rules import GridRules
from runmanager.app.compose.override_grid import read_override_grid
from runmanager.app.compose.schema import Config
from runmanager.app.driver.preflight import check_cells, check_host_capacity
from runmanager.app.driver.program import Can, CellGrid, Program, Storage
from runmanager.app.programs.sweep_settings import run_folder_overrides
from runmanager.app.request.command import quote_text
from runmanager.app.request.sweep_request import CONTINUES, RUN_NAME
from runmanager.errors import ConfigurationError
from runmanager.launching.launcher import CellLauncher
from runmanager.launching.plan import Action, Cell, PlannedRun, Resume
from runmanager.launching.work import Work
from runmanager.race.pairing import infer_compared_axis
from runmanager.race.sessions import duel_address
from runmanager.records.files.paths import RunPaths, SweepPaths
from runmanager.records.run.run_record import RunRecord
from runmanager.records.settings.secrets import secret_axis_notes
from runmanager.records.settings.signature import CHANGED_DEFAULTS, with_later_settings
from runmanager.records.settings.values import flatten
from runmanager.records.sweep.sweep_record import SweepRecord, read_sweep_record, settings_of_cells
from runmanager.text import format_value, pluralize
from runmanager.training.options.groups import PairedOptions, SchedulerOptions
from runmanager.training.options.job import TrainingOptions
from runmanager.validation import fault


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


_WARM_UP_FROM = 20  # cells; fewer are composed quickly, and there may be nothing to run


_EPOCHS = "epochs"
_EARLIER_EPOCHS = 5
_VAL_SIZE = "dataset.val_size"
_EARLIER_VAL_SIZES = {"fake": 1000}
"""By dataset; of the others it was null, which is all validation images."""
_VALIDATED_BY = ("dataset.name", "dataset.size")
"""The settings on which the default of `dataset.val_size` depends."""


class EarlierDefaults:
    """What the cells of a sweep had by default in earlier versions, for a command that does not say otherwise.

    `configs` are the settings of the command's cells, and `given` those that it says. All cells keep what
    `kept_defaults` returns. Cells with the earlier default of `dataset.val_size` keep it, and so do new cells that
    train on as many samples of the same dataset, because they are compared with each other. Runs of fewer epochs are
    continued; a note says so.
    """

    def __init__(self, sweep: SweepRecord | None, given: Collection[str], configs: Sequence[Mapping[str, Any]]) -> None:
        self._kept = {} if sweep is None else kept_defaults(sweep, configs, given=given)
        shared = {} if sweep is None else sweep.settings
        cells = [with_later_settings({**shared, **cell.settings}) for cell in sweep.planned] if sweep else []
        self._epochs = [] if _EPOCHS in given else [cell.get(_EPOCHS) for cell in cells]
        of_cells = [] if _VAL_SIZE in given else cells
        self._validated = {_sources(cell) for cell in of_cells if cell.get(_VAL_SIZE, 0) == _earlier_val_size(cell)}
        self._today: dict[str, tuple[int | None, int]] = {}

    def words(self, config: Mapping[str, Any]) -> list[str]:
        """Return the overrides that give a composed cell the earlier defaults of its sweep."""
        words = [f"{name}={format_value(value)}" for name, value in self._kept.items()]
        settings = flatten({"dataset": config.get("dataset", {})})
        val_size, earlier = settings.get(_VAL_SIZE), _earlier_val_size(settings)
        if val_size not in (None, earlier) and _sources(settings) in self._validated:
            self._today[str(settings["dataset.size"])] = earlier, val_size
            words.append(f"{_VAL_SIZE}={format_value(earlier)}")
        return words

    def notes(self, configs: Sequence[Mapping[str, Any]]) -> list[str]:
        """Return what a command of these cells says of the defaults."""
        lines = [kept_defaults_note(self._kept)] if self._kept else []
        lines += [
            f"This sweep validates on {'all' if earlier is None else f'{earlier:,}'} validation images, as was the "
            f"default when it began; with `dataset.size={size}` a new sweep takes `{_VAL_SIZE}={val_size}`."
            for size, (earlier, val_size) in self._today.items()
        ]
        now, shorter = TrainingOptions.epochs, self._epochs.count(_EARLIER_EPOCHS)
        if shorter and now not in self._epochs and {config.get(_EPOCHS) for config in configs} == {now}:
            cells = pluralize(shorter, "cell of this sweep has", "cells of this sweep have")
            lines.append(
                f"{cells} {_EARLIER_EPOCHS} epochs, once the default, which is {now} now: longer runs continue them; "
                f"`{_EPOCHS}={_EARLIER_EPOCHS}` keeps to {_EARLIER_EPOCHS}."
            )
        return lines


def _earlier_val_size(settings: Mapping[str, Any]) -> int | None:
    return _EARLIER_VAL_SIZES.get(settings.get("dataset.name", ""))


def _sources(settings: Mapping[str, Any]) -> tuple[Any, ...]:
    return tuple(settings.get(name) for name in _VALIDATED_BY)


class BuiltInJob(Program):
    """The job that `python -m runmanager` trains, given by the overrides `words`, `rules` and the `sides` of a duel."""

    can = frozenset({Can.FIND_DEVICES, Can.STOP_AFTER_EPOCH})

    def __init__(
        self,
        loader: CellLoader,
        master: DictConfig,
        words: Sequence[str],
        *,
        sides: Sequence[Sequence[str]] = (),
        rules: GridRules | None = None,
    ) -> None:
        self._loader = loader
        self._master = master
        self._words = list(words)
        self._sides = sides
        self._rules = rules or GridRules()
        self._given: frozenset[str] = frozenset()
        self._configs: dict[str, Config] = {}
        self._earlier = EarlierDefaults(None, (), ())

    def count_cells(self) -> int:
        return read_override_grid(self._loader, self._words, self._rules).num_cells * max(1, len(self._sides))

    def get_ready(self, launcher: CellLauncher, *, num_cells: int) -> None:
        if num_cells >= _WARM_UP_FROM:
            launcher.engine.get_ready(num_jobs=num_cells)

    def compose(self, words: Sequence[str] | None = None) -> CellGrid:
        if words is not None:
            self._words = list(words)
        grid = self._grid()
        if faults := self._rules.seed_faults(name for cell in grid.cells for name in flatten(cell.config)):
            raise ConfigurationError(faults)
        self._given = grid.given
        self._configs |= {cell.signature: config for cell, config in zip(grid.cells, grid.configs, strict=True)}
        first = grid.configs[0]
        return CellGrid(
            grid.cells,
            grid.axes,
            Storage(first.name, first.output_root, Resume(first.resume), first.rerun_changed),
            sides=grid.sides,
            paired=_paired_options(grid),
            in_epochs=frozenset(name for name, config in self._configs.items() if config.num_workers),
            extension_obstacle=self._extension_obstacle,
            notes=(
                *self._rules.excluded_notes(grid.num_excluded),
                *secret_axis_notes(grid.secrets),
                *self._earlier.notes([cell.config for cell in grid.cells]),
            ),
            defaults=defaults_now(),
            seed_names=self._rules.seed_names,
        )

    def _grid(self) -> Grid:
        """The cells; those of a paired sweep with `measure.axis` set, so that it is in every run's record."""
        grid = self._prepared()
        options = grid.configs[0].measure
        if not isinstance(options, PairedOptions) or options.axis is not None or duel_address() is not None:
            return grid  # the sides of a duel of two commits have equal settings
        axis = infer_compared_axis(grid.axes, grid.sides, self._rules.seed_names)
        self._words.append(f"measure.axis={quote_text(axis)}")
        return self._prepared()

    def _prepared(self) -> Grid:
        """The cells, with the defaults of their sweep where it began under earlier ones."""
        grid = self._prepared_by()
        self._earlier = EarlierDefaults(_sweep_of(grid.configs[0]), grid.given, [cell.config for cell in grid.cells])
        is_changed = any(self._earlier.words(cell.config) for cell in grid.cells)
        return self._prepared_by(self._earlier.words) if is_changed else grid

    def _prepared_by(self, earlier: Callable[[Mapping[str, Any]], Sequence[str]] | None = None) -> Grid:
        return prepare_cells(
            self._loader, self._master, self._words, sides=self._sides, rules=self._rules, earlier=earlier
        )

    def can_continue(self, run: RunPaths) -> bool:
        return run.checkpoint.exists()

    def _extension_obstacle(self, cell: Cell, shorter: RunRecord) -> str:
        config = self._configs[cell.signature]
        if not (isinstance(config.scheduler, SchedulerOptions) and config.scheduler.is_open_ended):
            return f"the learning rates of {cell.config['scheduler']['name']} depend on the number of epochs"
        if isinstance(config.measure, PairedOptions):
            return "it was trained further in measured turns"
        if shorter.config["checkpoint"].get("keep_best") != config.checkpoint.keep_best:
            return "it kept the weights of another epoch (`checkpoint.keep_best`)"
        return ""

    def check_capacity(
        self, launcher: CellLauncher, batches: Sequence[Sequence[PlannedRun]], *, take_turns: bool = False
    ) -> None:
        launcher.refuse_several_processes("the built-in job")
        check_host_capacity(launcher, map(self._configs_of, batches), take_turns=take_turns)

    def check(
        self, launcher: CellLauncher, to_run: Sequence[PlannedRun], *, needs_all: bool, is_dry_run: bool = False
    ) -> None:
        configs = self._configs_of(to_run)
        check_cells(launcher, configs, given=self._given, needs_all=needs_all, is_dry_run=is_dry_run)

    def _configs_of(self, runs: Sequence[PlannedRun]) -> list[Config]:
        return [self._configs[each.cell.signature] for each in runs]

    def work(self, launcher: Any, run: PlannedRun, sweep: SweepPaths, *, key: int, is_again: bool) -> Work:
        words = self.hydra_overrides(run, sweep)
        work: Work = launcher.work([*words, "resume=auto"] if is_again else words, key)
        return work

    def hydra_overrides(self, run: PlannedRun, sweep: SweepPaths) -> list[str]:
        words = [*run.cell.overrides, *run_folder_overrides(run, sweep), f"{RUN_NAME}={quote_text(run.name)}"]
        if run.continuation is not None and not run.continuation.obstacle:
            words.append(f"{CONTINUES}={quote_text(run.continuation.run)}")
        if run.action is Action.START_AGAIN and run.stored is not None and run.stored.is_complete:
            words.append("resume=never")  # unfinished runs start again anyway, unless another driver has finished them
        return words


def _sweep_of(config: Config) -> SweepRecord | None:
    """The record of the sweep that a cell belongs to, if there is one."""
    return None if config.name is None else read_sweep_record(SweepPaths(Path(config.output_root) / config.name))


def _paired_options(grid: Grid) -> PairedOptions | None:
    options = grid.configs[0].measure
    if any(config.measure != options for config in grid.configs):
        raise ConfigurationError([fault("measure", "be the same for all cells of a sweep", "several")])
    return options if isinstance(options, PairedOptions) else None

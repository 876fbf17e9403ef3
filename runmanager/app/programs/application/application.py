"""A Hydra application as a program of sweeps: its own configuration, its own task."""

import sys
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from functools import cached_property
from itertools import pairwise
from typing import Any

from hydra.errors import HydraException
from hydra.types import RunMode
from omegaconf import DictConfig, OmegaConf, open_dict
from omegaconf.errors import OmegaConfBaseException

from runmanager.app.compose.cell_loader import CellLoader
from runmanager.app.compose.grid_rules import GridRules, KnownSettings
from runmanager.app.compose.override_grid import OverrideGrid, read_override_grid
from runmanager.app.driver.program import CellGrid, Program, Storage
from runmanager.app.programs.application.identity import Identity, read_identity
from runmanager.app.programs.application.ranked_task import SupervisedTask, run_supervised
from runmanager.app.programs.cell_supervisor import CellSpec
from runmanager.app.programs.resume_setting import RUN_DIR, ResumeSetting
from runmanager.app.programs.sweep_settings import run_folder_overrides
from runmanager.app.request.command import format_override
from runmanager.errors import ConfigurationError
from runmanager.launching.hydra_internals import hydra_words
from runmanager.launching.launcher import CellLauncher, Trait
from runmanager.launching.plan import Action, Cell, PlannedRun
from runmanager.launching.work import Work
from runmanager.records.files.paths import RunPaths, SweepPaths
from runmanager.records.run.environment_changes import recorded_variables
from runmanager.records.run.heartbeat import SILENT_AFTER_SECONDS
from runmanager.records.settings.secrets import masked_words, secret_axis_notes, without_secrets
from runmanager.records.settings.signature import readable_name, short_signature, signature
from runmanager.records.settings.values import choices_of_groups, differing_settings, flatten
from runmanager.text import message_line, pluralize
from runmanager.tracking.environment.code_hashes import hash_user_code
from runmanager.tracking.environment.program_code import program_folder
from runmanager.validation import fault, suggestion

_PROCESSES = "hydra.launcher.processes_per_run"  # counts as a setting where it is not 1
_DEVICE_SETTINGS = ("device", "trainer.accelerator")
_DEVICE_KINDS = ("auto", "cpu", "cuda", "mps", "xpu")
_UNSIGNED = "hydra.sweeper.unsigned"
_NAME = "hydra.sweeper.name"
_NOTIFY = "hydra.sweeper.notify"
_KEPT_SETTINGS = tuple(f"hydra.sweeper.{name}=" for name in ("secrets", "metric", "better", "resume_with"))
_KEPT = ("hydra/sweeper=", *_KEPT_SETTINGS, f"{_PROCESSES}=", "hydra.job.chdir=")
_ANY_GPU = "gpu"  # Lightning's name for whichever there is


@dataclass(frozen=True)
class ApplicationOptions:
    """What a user says of an application.

    `unsigned`: globs of settings that do not change what is computed. `device`: the setting that names the device.
    `metric`: the name of a number that the task returns; `better` its direction. `resume_with`: an override
    that is added from the second attempt on where its file exists. `rules` are those of its grid.
    """

    unsigned: tuple[str, ...] = ()
    device: str | None = None
    metric: str | None = None
    better: str | None = None
    resume_with: ResumeSetting | None = None
    heartbeat_timeout: float = SILENT_AFTER_SECONDS
    rules: GridRules = field(default_factory=GridRules)


@dataclass(frozen=True)
class _Composed:
    """The overrides of one cell, and what they compose to: `settings` are flat, with the choices of groups.

    `changes` are the overrides that change settings of the sweep, each with such a setting.
    """

    words: list[str]
    cell: Cell | None
    settings: Mapping[str, Any] = field(default_factory=dict)
    faults: tuple[str, ...] = ()
    changes: Mapping[str, str] = field(default_factory=dict)


class HydraApplication(Program):
    """The cells of an application's grid, given by the overrides `words`."""

    def __init__(
        self,
        loader: CellLoader,
        master: DictConfig,
        words: Sequence[str],
        task: SupervisedTask,
        storage: Storage,
        options: ApplicationOptions,
    ) -> None:
        self._loader = loader
        self._master = master
        self._words = words
        self._task = task
        self._storage = storage
        self._options = options
        self._command = _own_command(master)
        named = [word.partition("=")[0].lstrip("+") for word in hydra_words(master)]
        self._gives_unsigned = _UNSIGNED in named
        self._processes = int(OmegaConf.select(master, _PROCESSES, default=1))
        self._of_sweep = _sweep_settings(master)
        self._sweep_settings: dict[frozenset[tuple[str, Any]], dict[str, Any]] = {}
        self._code: dict[tuple[str, ...], dict[str, str] | None] = {}
        self._notes: tuple[str, ...] = ()

    def count_cells(self) -> int:
        return self._grid.num_cells

    @cached_property
    def _grid(self) -> OverrideGrid:
        return read_override_grid(self._loader, self._words, self._options.rules)

    def get_ready(self, launcher: CellLauncher, *, num_cells: int) -> None:
        if Trait.HERE in launcher.traits:
            launcher.engine.get_ready(num_jobs=num_cells)

    def compose(self, words: Sequence[str] | None = None) -> CellGrid:
        grid = self._grid if words is None else read_override_grid(self._loader, words, self._options.rules)
        varying = without_secrets(grid.varying)
        composed = [self._compose(words, varying) for words in grid.combinations()]
        remaining = self._remaining(composed, grid)
        faults = dict.fromkeys(line for each in remaining for line in each.faults)
        faults.update(dict.fromkeys(_change_faults(remaining)))
        cells = [each.cell for each in remaining if each.cell is not None]
        if not faults:
            faults.update(dict.fromkeys(_unsigned_axis_faults(varying, cells) + self._device_faults(cells)))
            every = [each.cell for each in composed if each.cell is not None]
            faults.update(dict.fromkeys(self._unknown_unsigned_faults(every)))
            settings = (name for cell in cells for name in flatten(cell.config))
            faults.update(dict.fromkeys(self._options.rules.seed_faults(settings)))
        if faults:
            raise ConfigurationError(faults)
        notes = [*grid.rules.excluded_notes(len(composed) - len(remaining)), *secret_axis_notes(grid.varying)]
        notes += _equal_cells_note(cells)
        axes = _axes(varying, cells)
        return CellGrid(
            cells,
            axes,
            self._storage,
            notes=notes,
            default_device=None,
            code_folder=program_folder(),
            seed_names=self._options.rules.seed_names,
        )

    def _remaining(self, composed: "Sequence[_Composed]", grid: OverrideGrid) -> "Sequence[_Composed]":
        """The cells that are not excluded, or all if none could be composed."""
        if grid.rules.exclude is None or all(each.cell is None for each in composed):
            return composed
        known = [
            grid.known_settings(each.words, self._loader) if each.cell is None else KnownSettings(each.settings)
            for each in composed
        ]
        remaining = [each for each, is_kept in zip(composed, grid.rules.kept(known), strict=True) if is_kept]
        if not remaining:
            raise grid.rules.none_left(len(composed))
        return remaining

    def _compose(self, words: list[str], varying: Sequence[str]) -> "_Composed":
        try:
            config = self._loader.load_sweep_config(self._master, words, notes_overrides=False)
        except (HydraException, OmegaConfBaseException) as error:
            faults, _ = self._loader.diagnose(self._master, words)
            return _Composed(words, None, faults=tuple(faults or [message_line(error)]))
        with open_dict(config):
            config.hydra.job.id, config.hydra.job.num = "0", 0
            config.hydra.runtime.output_dir = RUN_DIR
        identity = read_identity(config)
        if identity.faults:
            return _Composed(words, None, faults=tuple(identity.faults))
        flat = flatten(identity.settings)
        choices = choices_of_groups(self._lists_of_choices(words) | _choices(config), flat)
        settings = choices | flat
        changes = self._changes_of_sweep(config, words)
        return _Composed(words, self._cell(words, varying, identity, choices), settings, changes=changes)

    def _lists_of_choices(self, words: Sequence[str]) -> dict[str, Any]:
        """The choices of several files of a group, which Hydra keeps in no configuration: `db=[mysql,postgresql]`."""
        return {name: value for name, value in self._loader.chosen(words).items() if isinstance(value, list)}

    def _changes_of_sweep(self, config: DictConfig, words: Sequence[str]) -> dict[str, str]:
        """The choices among a cell's words that change what a whole sweep has once, each with what it changes."""
        choices = _choices(config)
        key = frozenset(choices.items())
        if key not in self._sweep_settings:
            self._sweep_settings[key] = _sweep_settings(config)
        if self._sweep_settings[key] == self._of_sweep:
            return {}
        before = _choices(self._master)
        chosen = [word for word in words if (name := _name_of(word)) in choices and choices[name] != before.get(name)]
        alone = {word: self._change_by([word]) for word in chosen}
        return {word: change for word, change in alone.items() if change} or {" ".join(chosen): self._change_by(chosen)}

    def _change_by(self, words: Sequence[str]) -> str:
        """The setting of the sweep that choices change; empty if they change none."""
        given = [*hydra_words(self._master), *words]
        config = self._loader.load_configuration(self._master.hydra.job.config_name, given, RunMode.MULTIRUN)
        differing = differing_settings([self._of_sweep, _sweep_settings(config)])
        return differing[-1] if differing else ""

    def _cell(self, words: list[str], varying: Sequence[str], identity: Identity, choices: Mapping[str, Any]) -> Cell:
        settings = identity.settings
        flat = flatten(settings)
        unsigned = tuple(name for name in flat if _is_unsigned(name, self._options.unsigned))
        ranks = {_PROCESSES: self._processes} if self._processes > 1 else {}
        signed = signature(settings | ranks, unsigned=unsigned, later={})
        shown = {key.lstrip("+~"): _value_of(flat, choices, key.lstrip("+~")) for key in varying}
        read = [each for name, names in identity.variables.items() if name not in unsigned for each in names]
        return Cell(
            signed,
            f"{readable_name(shown)}-{short_signature(signed)}",
            settings,
            tuple(words),
            device=self._device(flat),
            processes=self._processes,
            unsigned=unsigned,
            command=masked_words((*self._command, *self._unsigned_word(flat), *words)),
            variables=recorded_variables(dict.fromkeys(read)),
            choices=choices,
            derived=frozenset(identity.derived),
        )

    def _unsigned_word(self, settings: Mapping[str, Any]) -> list[str]:
        """What the command of a cell says of its unsigned settings: its own alone, as another's would be refused."""
        own = [glob for glob in self._options.unsigned if any(_is_unsigned(name, [glob]) for name in settings)]
        return [format_override(_UNSIGNED, own)] if self._gives_unsigned else []

    def _device(self, settings: Mapping[str, Any]) -> str | None:
        names = _DEVICE_SETTINGS if self._options.device is None else (self._options.device,)
        given = next((settings[name] for name in names if isinstance(settings.get(name), str)), None)
        if given == _ANY_GPU:
            return "auto"
        return given if given is not None and given.partition(":")[0] in _DEVICE_KINDS else None

    def _device_faults(self, cells: Sequence[Cell]) -> list[str]:
        name = self._options.device
        names = dict.fromkeys(each for cell in cells for each in flatten(cell.config))
        if name is None or name in names:
            return []
        return [f"`hydra.sweeper.device` must name a setting, got {name}; {suggestion(name, names)}"]

    def _unknown_unsigned_faults(self, cells: Sequence[Cell]) -> list[str]:
        """Refuse those of the command only: those of the configuration may be settings of another choice of a group."""
        if not self._gives_unsigned:
            return []
        names = list(dict.fromkeys(name for cell in cells for name in flatten(cell.config)))
        return [
            f"`{_UNSIGNED}` must name settings, got {glob}; {suggestion(glob, names)}"
            for glob in self._options.unsigned
            if not any(_is_unsigned(name, [glob]) for name in names)
        ]

    def can_continue(self, run: RunPaths) -> bool:
        return True  # its own business: its folder is the same

    def lacks(self, run: PlannedRun, *, is_again: bool = False) -> str:
        resume = self._options.resume_with
        return "" if resume is None else resume.lacking(run, resume.path_in(run.paths), is_again=is_again)

    def check(
        self, launcher: CellLauncher, to_run: Sequence[PlannedRun], *, needs_all: bool, is_dry_run: bool = False
    ) -> None:
        launcher.require_gpus(dict.fromkeys(each.cell.device for each in to_run))
        if Trait.IN_BATCHES in launcher.traits:
            choice = self._master.hydra.runtime.choices["hydra/launcher"]
            self._notes = (f"hydra/launcher={choice} ran this cell: a death of its process is seen by readers only",)

    def work(self, launcher: Any, run: PlannedRun, sweep: SweepPaths, *, key: int, is_again: bool) -> Work:
        job = launcher.work(self._overrides(run, sweep, is_again=is_again), key)
        if self._processes == 1:
            return Work(run_supervised, (self._spec(run, is_again=is_again), job))
        from runmanager.app.programs.application.ranked_task import ranked_work

        return ranked_work(self._spec(run, is_again=is_again), job, processes=self._processes)

    def hydra_overrides(self, run: PlannedRun, sweep: SweepPaths) -> list[str]:
        self._task.specs[run.paths.name] = self._spec(run)
        return self._overrides(run, sweep, is_again=False)

    def _overrides(self, run: PlannedRun, sweep: SweepPaths, *, is_again: bool) -> list[str]:
        words, resume = [*run.cell.overrides, *run_folder_overrides(run, sweep)], self._options.resume_with
        if resume is not None and (is_again or run.action is Action.RESUME) and (path := resume.path_in(run.paths)):
            words.append(format_override(resume.name, str(path)))
        return words

    def _spec(self, run: PlannedRun, *, is_again: bool = False) -> CellSpec:
        options = self._options
        return CellSpec(
            run=RunPaths(run.paths.root.absolute()),
            pending=run.pending_record(),
            device=run.cell.device,
            code=self._code_of(run.cell),
            overwrites=run.action is Action.START_AGAIN,
            metric=options.metric,
            better={options.metric: options.better} if options.metric and options.better else {},
            notes=tuple(filter(None, [*self._notes, self.lacks(run, is_again=is_again)])),
            heartbeat_timeout=options.heartbeat_timeout,
        )

    def _code_of(self, cell: Cell) -> dict[str, str] | None:
        targets = tuple(str(value) for name, value in flatten(cell.config).items() if name.endswith("_target_"))
        if targets not in self._code:
            self._code[targets] = hash_user_code(cell.config, is_built_in=False)
        return self._code[targets]


def _own_command(master: DictConfig) -> tuple[str, ...]:
    """The beginning of the command for one cell: the program as it was started, and its sweeper."""
    given = list(sys.orig_argv)
    program = given[1 : len(given) - len(sys.argv) + 1]
    words = pairwise(["", *sys.argv[1:]])  # a value may stand apart from its option
    config = [word for option, word in words if _is_config(word) or (_is_config(option) and "=" not in option)]
    kept = [word for word in hydra_words(master) if word.lstrip("+").startswith(_KEPT)]
    return ("python", *program, *config, "-m", *kept)


def _name_of(word: str) -> str:
    return word.partition("=")[0].lstrip("+~")


def _choices(config: DictConfig) -> dict[str, Any]:
    choices: Any = OmegaConf.to_container(config.hydra.runtime.choices, resolve=False)
    return {str(group): choice for group, choice in choices.items()}


def _sweep_settings(config: DictConfig) -> dict[str, Any]:
    """The flat settings of the sweeper and the launcher, which a sweep has once; the notification is not kept."""
    parts = {part: OmegaConf.to_container(config.hydra[part], resolve=False) for part in ("sweeper", "launcher")}
    return {name: value for name, value in flatten({"hydra": parts}).items() if name != _NOTIFY}


def _change_faults(composed: Sequence[_Composed]) -> list[str]:
    """Refuse choices of cells that change settings of the sweep: those were read once, before the cells."""
    changes = {word: change for each in composed for word, change in each.changes.items()}
    if not changes:
        return []
    groups = dict.fromkeys(_name_of(each) for word in changes for each in word.split())
    return [
        fault(
            ", ".join(groups),
            "be chosen once for the whole sweep",
            f"`{'`, `'.join(changes)}` for cells, which changes `{next(iter(changes.values()))}`",
            f"run each by itself: with the same `{_NAME}` their cells are in one sweep",
        )
    ]


def _is_config(word: str) -> bool:
    return word.startswith(("--config", "-c"))


def _is_unsigned(name: str, globs: Sequence[str]) -> bool:
    return any(fnmatchcase(name, glob) or name.startswith(f"{glob}.") for glob in globs)


def _value_of(flat: Mapping[str, Any], choices: Mapping[str, Any], key: str) -> Any:
    """The value of a setting, or the choice of a group."""
    if key in flat:
        return flat[key]
    inner = {name.removeprefix(f"{key}."): value for name, value in flat.items() if name.startswith(f"{key}.")}
    choice = choices.get(key)
    return choice if choice is not None else inner or None


def _axes(varying: Sequence[str], cells: Sequence[Cell]) -> dict[str, list[Any]]:
    """The values of each varying setting or choice; for a mapping those of the settings in which the cells differ."""
    flat = [{**(cell.choices or {}), **flatten(cell.config)} for cell in cells]
    axes: dict[str, list[Any]] = {}
    differing = differing_settings(flat)
    for key in (each.lstrip("+~") for each in varying):
        below = _below(key, differing)
        is_told = any(key in settings for settings in flat) and (key in differing or not below)
        names = [key] if is_told else below
        for name in names:
            values = [settings[name] for settings in flat if name in settings]
            axes[name] = list({repr(value): value for value in values}.values())
    return axes


def _below(group: str, names: Sequence[str]) -> list[str]:
    return [name for name in names if name.startswith(f"{group}.")]


def _unsigned_axis_faults(varying: Sequence[str], cells: Sequence[Cell]) -> list[str]:
    axes = [key.lstrip("+~") for key in varying]
    unsigned = [name for name in axes if any(_is_unsigned(name, cell.unsigned or ()) for cell in cells)]
    if not axes or len(unsigned) < len(axes):
        return []
    return [
        f"`{name}` must have one value where no other setting varies, got several; it is unsigned." for name in unsigned
    ]


def _equal_cells_note(cells: Sequence[Cell]) -> list[str]:
    counts = Counter(cell.signature for cell in cells)
    num_equal = len(cells) - len(counts)
    if not num_equal:
        return []
    return [f"{pluralize(num_equal, 'cell is', 'cells are')} equal to another one, and run once with it."]

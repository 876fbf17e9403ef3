"""A script as a program of sweeps: its cells, and the work of each."""

import fnmatch
import itertools
import sys
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from operator import ne
from pathlib import Path
from typing import Any

from runmanager.app.compose.grid_rules import GridRules, KnownSettings
from runmanager.app.driver.preflight import predict_skipped
from runmanager.app.driver.program import CellGrid, Program, Storage
from runmanager.app.programs.cell_supervisor import CellSpec
from runmanager.app.programs.resume_setting import RUN_DIR, ResumeSetting
from runmanager.app.programs.script.arguments.script_parser import plain
from runmanager.app.programs.script.arguments.setting_words import (
    DEVICE_NAMES,
    Setting,
    argument_faults,
    as_taken,
    form_faults,
    parse_settings,
    setting_word,
)
from runmanager.app.programs.script.flag_check import FlagCheck, check_flags
from runmanager.app.programs.script.output.scalar_pattern import ScalarPattern
from runmanager.app.programs.script.script import Script
from runmanager.app.programs.script.script_cell import (
    ScriptCall,
    Versions,
    ask_interpreter,
    run_script_cell,
)
from runmanager.app.programs.script.stored_scalars import read_stored_logs, stored_scalar_notes
from runmanager.app.request.command import after_separator
from runmanager.errors import ConfigurationError
from runmanager.launching.launcher import CellLauncher
from runmanager.launching.plan import Action, Cell, PlannedRun
from runmanager.launching.work import Work
from runmanager.records.files.paths import RunPaths, SweepPaths
from runmanager.records.host.import_path import modules_like_standard
from runmanager.records.settings.secrets import (
    masked_settings,
    masked_words,
    secret_axis_notes,
    secrets_from_environment,
    without_secrets,
)
from runmanager.records.settings.signature import readable_name, short_signature, signature
from runmanager.records.sweep.sweep_record import read_sweep_record
from runmanager.text import pluralize
from runmanager.validation import fault, suggestion

_DEVICE = "device"
_PROCESSES = "processes"
_OUTPUT_FOLDERS = (
    *("output_dir", "out_dir", "outdir", "output_folder", "output_path", "save_dir", "save_path", "checkpoint_dir"),
    *("checkpoint_path", "ckpt_dir", "log_dir", "logdir", "results_dir", "result_dir", "trainer.default_root_dir"),
    *("default_root_dir", "work_dir", "workdir", "exp_dir", "model_dir", "outf", "output", "out"),
)
"""Names of arguments for the folder that a script writes to, the likelier ones first."""
_ABOUT_SCRIPT = "script"  # the key of what belongs to a cell's identity in addition to its settings


@dataclass(frozen=True)
class ScriptOptions:
    """What a command says of a script, apart from its settings.

    `fixed` are the arguments of all cells, `form` the form of a setting as an argument (None: flags). `unsigned` are
    globs of settings that do not count, `device` names the setting with the device. `better` has declared directions
    of metrics. `call` are the words that repeat the command for a single cell, without settings and fixed arguments.
    `rules` are those of the grid. `processes` are the numbers of ranks of a cell: without any, a cell is one process
    that torchrun does not start. With `chdir` cells work in their run folders.
    """

    fixed: tuple[str, ...] = ()
    form: str | None = None
    unchecked: bool = False
    scalars: tuple[ScalarPattern, ...] = ()
    unsigned: tuple[str, ...] = ()
    device: str | None = None
    better: Mapping[str, str] = field(default_factory=dict)
    resume_with: ResumeSetting | None = None
    call: tuple[str, ...] = ()
    rules: GridRules = field(default_factory=GridRules)
    processes: tuple[int, ...] = ()
    chdir: bool = False


class ScriptProgram(Program):
    """A script with a grid of settings, given by the `words` of a command."""

    def __init__(self, script: Script, words: Sequence[str], options: ScriptOptions, storage: Storage) -> None:
        self._script = script
        self._options = options
        self._storage = storage
        self._grid = parse_settings(words, options.rules)
        self._check = FlagCheck()
        self._unsigned: Collection[str] = ()
        self._ways: Sequence[Mapping[str, str]] = ()
        self._stored: Collection[str] = ()
        self._cells: Sequence[Cell] = ()
        self._settings: dict[str, Mapping[str, Setting]] = {}
        self._code: dict[str, str] | None = None
        self._versions: Versions | None = None
        self._logs_itself = False
        self._hiding: list[str] = []

    def count_cells(self) -> int:
        return len(self._grid.combinations()) * max(len(self._options.processes), 1)

    def get_ready(self, launcher: CellLauncher, *, num_cells: int) -> None:
        launcher.engine.get_ready(num_jobs=num_cells)  # the script may take seconds to show its help

    def compose(self, words: Sequence[str] | None = None) -> CellGrid:
        if words is not None:
            self._grid = parse_settings(words, self._options.rules)
        names = self._grid.names
        faults = [*form_faults(self._options.form), *self._name_faults(names), *self._options.rules.seed_faults(names)]
        if faults:
            raise ConfigurationError(faults)
        options = self._options
        given = names if options.resume_with is None else dict.fromkeys((*names, options.resume_with.name))
        every = self._grid.combinations()
        remaining = self._remaining(every)
        self._check = check_flags(
            self._script, given, fixed=options.fixed, form=options.form, unchecked=options.unchecked
        )
        parser = self._check.parser
        self._unsigned = {self._spelled(name) for name in names if self._is_unsigned(name)}
        combinations = [
            {self._spelled(name): as_taken(name, each, options.form, parser) for name, each in cell.items()}
            for cell in remaining
        ]
        for cell in combinations:
            secrets_from_environment({name: each.text for name, each in cell.items()})  # raises if a variable is unset
        said = [line for each in combinations for line in argument_faults(each, options.form, parser)]
        if said:
            raise ConfigurationError(list(dict.fromkeys(said)))
        self._code = self._script.hash_code()
        self._logs_itself = self._script.uses_runmanager(self._code or ())
        self._hiding = modules_like_standard(self._script.code_folder)
        self._versions = None if self._script.python == sys.executable else ask_interpreter(self._script.python)
        varying = [self._spelled(name) for name in without_secrets(self._grid.varying)]
        self._read_stored_names(map(self._spelled, names))
        axes = {self._ways[0][name]: _distinct(name, combinations) for name in varying}
        if len(options.processes) > 1:
            axes[_PROCESSES] = list(options.processes)
            varying.append(_PROCESSES)
        numbers = options.processes or (None,)
        cells = [self._cell(settings, varying, number) for settings in combinations for number in numbers]
        libraries = None if self._versions is None else self._versions.libraries
        notes = [*options.rules.excluded_notes(len(every) - len(remaining)), *secret_axis_notes(self._grid.varying)]
        notes += [*self._notes(cells), *stored_scalar_notes(cells, self._storage)]
        self._cells = cells
        return CellGrid(
            cells,
            axes,
            self._storage,
            notes=notes,
            default_device=None,
            libraries=libraries,
            seed_names=options.rules.seed_names,
        )

    def _name_faults(self, names: Sequence[str]) -> list[str]:
        options = self._options
        faults = [
            f"`{name}` must have one value in a sweep, got several; it is unsigned and does not distinguish runs."
            for name in self._grid.varying
            if self._is_unsigned(name)
        ]
        faults += [
            f"`--unsigned {pattern}` must match a setting, got none that it does; {suggestion(pattern, names)}"
            for pattern in options.unsigned
            if not any(_matches(name, pattern) for name in names)
        ]
        if options.processes and _PROCESSES in names:
            faults.append(f"`--processes` must be left out with a setting of that name, got `{_PROCESSES}=` too.")
        if options.device is not None and plain(options.device) not in map(plain, names):
            is_value = DEVICE_NAMES.fullmatch(options.device)
            way_out = f"write device={options.device}" if is_value else suggestion(options.device, names)
            faults.append(fault("--device", "be the name of a setting", options.device, way_out))
        return faults

    def _remaining(self, combinations: Sequence[Mapping[str, Setting]]) -> list[Mapping[str, Setting]]:
        """The cells that are not excluded. Raises `ConfigurationError` if none is."""
        known = [KnownSettings({name: each.value for name, each in cell.items()}) for cell in combinations]
        kept = self._grid.rules.kept(known)
        remaining = [cell for cell, is_kept in zip(combinations, kept, strict=True) if is_kept]
        if not remaining:
            raise self._grid.rules.none_left(len(combinations))
        return remaining

    def _is_unsigned(self, name: str) -> bool:
        return any(_matches(name, pattern) for pattern in self._options.unsigned)

    def _spelled(self, name: str) -> str:
        """A setting's name as the script's help spells it; as it is where that is not known."""
        found = None if self._check.parser is None else self._check.parser.find(name)
        return name if found is None else found.name

    def _read_stored_names(self, names: Iterable[str]) -> None:
        """Read under which names the cells of a stored sweep have these settings: in `_ways`, the usual one first."""
        sweep = None if self._storage.name is None else Path(self._storage.output_root) / self._storage.name
        stored = None if sweep is None else read_sweep_record(SweepPaths(sweep))
        known = (
            [] if stored is None else [*stored.settings, *(name for each in stored.planned for name in each.settings)]
        )
        spelled = {name: self._spelled(name) for name in known}
        # A setting of one spelling has that; of several, first that of the script's help.
        same = {
            name: sorted((each for each in spelled if spelled[each] == name), key=partial(ne, name)) for name in names
        }
        ways = itertools.product(*(each or [name] for name, each in same.items()))
        self._ways = [dict(zip(same, way, strict=True)) for way in ways]
        self._stored = frozenset() if stored is None else frozenset(stored.cells)

    def _cell(self, settings: Mapping[str, Setting], varying: Sequence[str], processes: int | None) -> Cell:
        """The cell as the sweep has it, or else by the usual names."""
        ways = [
            self._cell_by(
                {names[name]: each for name, each in settings.items()},
                [names.get(name, name) for name in varying],
                processes,
            )
            for names in self._ways
        ]
        return next((cell for cell in ways if cell.signature in self._stored), ways[0])

    def _cell_by(self, settings: Mapping[str, Setting], varying: Sequence[str], processes: int | None) -> Cell:
        values = {name: setting.value for name, setting in settings.items()}
        call, later = self._options.call, {}
        if processes is not None:
            values[_PROCESSES], later[_PROCESSES] = processes, 1
            call = (*call[:2], f"--{_PROCESSES}", str(processes), *call[2:])
        config = masked_settings(values | {_free_key(values): self._about_script()})
        unsigned = tuple(name for name in settings if self._spelled(name) in self._unsigned)
        identity = signature(config, unsigned=unsigned, later=later)
        self._settings.setdefault(identity, settings)
        words = tuple(setting_word(name, setting) for name, setting in settings.items())
        return Cell(
            identity,
            f"{readable_name({name: values[name] for name in varying if name in values})}-{short_signature(identity)}",
            config,
            words,
            device=self._device_of(values),
            processes=processes or 1,
            unsigned=unsigned,
            command=masked_words((*call, *words, *after_separator(self._options.fixed))),
        )

    def _about_script(self) -> dict[str, Any]:
        about: dict[str, Any] = {"program": self._script.name}
        if self._options.fixed:
            about["arguments"] = list(masked_words(self._options.fixed))
        if self._options.form is not None:
            about["form"] = self._options.form
        return about

    def _device_of(self, values: Mapping[str, Any]) -> str | None:
        """The device that a cell asks for; None if no setting names one that PyTorch has."""
        setting = self._spelled(self._options.device or _DEVICE)
        name = next((str(value) for name, value in values.items() if self._spelled(name) == setting), "")
        return name.lower() if DEVICE_NAMES.fullmatch(name) else None

    def _notes(self, cells: Sequence[Cell]) -> list[str]:
        notes = [self._check.note] if self._check.note else []
        notes += [
            f"{each} next to the script has the name of a module of Python's standard library, and takes its place in "
            "every library that the script imports; rename it."
            for each in self._hiding
        ]
        if equal := len(cells) - len({cell.signature for cell in cells}):
            are = pluralize(equal, "cell of the grid equals another and runs", "cells of the grid equal others and run")
            notes.append(f"{are} once.")
        return notes

    def can_continue(self, run: RunPaths) -> bool:
        return run.checkpoint.exists() or self._resumed_from(run) is not None

    def lacks(self, run: PlannedRun, *, is_again: bool = False) -> str:
        resume = self._options.resume_with
        return "" if resume is None else resume.lacking(run, self._resumed_from(run.paths), is_again=is_again)

    def _resumed_from(self, run: RunPaths) -> Path | None:
        resume = self._options.resume_with
        return None if resume is None else resume.path_in(run, chdir=self._options.chdir)

    def check(
        self, launcher: CellLauncher, to_run: Sequence[PlannedRun], *, needs_all: bool, is_dry_run: bool = False
    ) -> None:
        if needs_all:
            predict_skipped(launcher, to_run, can=self.can, needs_all=True)
        if not is_dry_run:
            read_stored_logs(self._cells, self._storage, self._call)

    def work(self, launcher: Any, run: PlannedRun, sweep: SweepPaths, *, key: int, is_again: bool) -> Work:
        starts_again = is_again or run.action is Action.START_AGAIN
        spec = CellSpec(
            run.paths,
            run.pending_record(),
            device=run.cell.device,
            code=self._code,
            overwrites=starts_again and not (is_again and self.can_continue(run.paths)),
            better=self._options.better,
            notes=tuple(filter(None, [self.lacks(run, is_again=is_again)])),
            output_argument=self._output_argument(self._settings[run.cell.signature]),
        )
        return Work(run_script_cell, (spec, self._call(run.cell)))

    def _call(self, cell: Cell) -> ScriptCall:
        options, script = self._options, self._script
        settings, resume = self._settings[cell.signature], options.resume_with
        if resume is not None:  # by the name that the cell has for it
            same = [name for name in settings if self._spelled(name) == self._spelled(resume.name)]
            resume = replace(resume, name=next(iter(same), resume.name))
        return ScriptCall(
            command=tuple(script.command_anywhere if options.chdir else script.command),
            folder=script.folder,
            chdir=options.chdir,
            import_folder=script.folder if options.chdir and script.is_module else None,
            settings=settings,
            fixed=options.fixed,
            form=options.form,
            parser=self._check.parser,
            scalars=options.scalars,
            metric=next(iter(options.better), None),
            resume_with=resume,
            versions=self._versions,
            logs_itself=self._logs_itself,
            processes=cell.processes,
            hiding=tuple(str(script.code_folder / name) for name in self._hiding),
        )

    def _output_argument(self, settings: Collection[str]) -> str:
        """A setting with which the script writes into the run folder, by its help; empty if that shows none."""
        parser = self._check.parser
        found = None if parser is None else next(filter(None, map(parser.find, _OUTPUT_FOLDERS)), None)
        return "" if found is None or self._spelled(found.name) in settings else f"{found.name}={RUN_DIR}"


def _matches(name: str, pattern: str) -> bool:
    """Whether a glob names a setting, with either of `-` and `_`."""
    return fnmatch.fnmatchcase(name, pattern) or fnmatch.fnmatchcase(plain(name), pattern.replace("-", "_"))


def _distinct(name: str, cells: Sequence[Mapping[str, Setting]]) -> list[Any]:
    values = [cell[name].value for cell in cells if name in cell]
    return list({repr(value): value for value in values}.values())


def _free_key(values: Mapping[str, Any]) -> str:
    key = _ABOUT_SCRIPT
    while any(name.partition(".")[0] == key for name in values):
        key += "_"
    return key

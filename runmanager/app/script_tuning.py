"""`runmanager tune SCRIPT`: settings of a script, raced in whole runs that take turns."""

import random
import shlex
import time
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from hydra.plugins.launcher import Launcher

from runmanager.app.compose.override_quoting import format_override
from runmanager.app.display.output_console import make_console
from runmanager.app.driver.program import CellGrid
from runmanager.app.driver.sweep_driver import DriverOptions, SweepDriver
from runmanager.app.programs.script.arguments.setting_words import SettingGrid, parse_settings
from runmanager.app.programs.script.script import find_script
from runmanager.app.programs.script.script_program import ScriptProgram
from runmanager.app.script_command_line import ScriptCommandLine
from runmanager.app.script_main import launcher_of, program_of
from runmanager.app.tune.answer import Answer, show_answer, write_tuning
from runmanager.app.tune.search import Factor, Heat, Search, Settings
from runmanager.errors import ConfigurationError, SweepError, UsageError
from runmanager.launching.plan import Cell, Resume
from runmanager.records.files.paths import SweepPaths
from runmanager.records.run.status import Status
from runmanager.records.storage.reader import StoredRun, read_sweep
from runmanager.results.metrics.metric import THROUGHPUT
from runmanager.results.stats.descriptive import median
from runmanager.results.stats.race import beaten, fastest_of, is_settled, race_speedup
from runmanager.tracking.environment.environment import environment_for_children
from runmanager.tracking.environment.rank_check import refuse_several_ranks
from runmanager.validation import fault

__all__ = ["speeds_of_round", "tune_script"]

_INTERRUPTED = 130
_LOOK_AT = (2, 3, 4, 6, 8, 12)  # rounds
_MAX_ROUNDS = 12
_LEAST_ROUNDS = 2  # where the time allows it


def tune_script(line: ScriptCommandLine, *, seconds: float, began: float) -> int:
    """Race the lists of values among a script's settings, print and write what was found; return the exit status.

    Each whole run counts with its samples a second, where it records epochs, else with its duration. All runs are those
    of a sweep, which keeps them. Raises `RunManagerError` where nothing has been run.
    """
    refuse_several_ranks()
    script = find_script(line.program, is_module=line.is_module, python=line.flags.python)
    if script.is_hydra_application:
        raise UsageError(f"A script that is raced must not be a Hydra application, got {line.program}.")
    space = _Lists(parse_settings(line.settings))
    console = make_console()
    with environment_for_children(line.words):
        track = _WholeRuns(program_of(line, script), space, launcher_of(line.flags), line)
        search = Search(
            space,
            track,
            seconds=seconds,
            began=began,
            shares={},
            say=lambda text: console.print(text, markup=False, soft_wrap=not console.is_terminal),
        )
        found = search.run()
    settings = {**space.first, **found.chosen}
    program = ("-m", line.program) if line.is_module else (line.program,)
    options = [
        word
        for option, value in (("--python", line.flags.python), ("--argument", line.flags.argument))
        if value is not None
        for word in (option, value)
    ]
    fixed = ("--", *line.fixed) if line.fixed else ()
    words = [space.word(name, value) for name, value in settings.items()]
    command = shlex.join(["runmanager", "run", *options, *program, *words, *fixed])
    given = " ".join(space.word(name, value) for name, value in space.first.items())
    answer = Answer(found, command, device="", given=given)
    write_tuning(track.sweep.root, answer)
    show_answer(answer, console)
    return _INTERRUPTED if found.is_interrupted else 0


class _Lists:
    """The lists of values among a script's settings: each is a factor. `first` has the first value of every setting."""

    def __init__(self, grid: SettingGrid) -> None:
        self._values = {each.name: {value.text: value for value in each.values} for each in grid.sets}
        self._raced = [each.name for each in grid.sets if each.is_axis]
        if not self._raced:
            way_out = "write the values to race as num_workers=0,2,4"
            raise ConfigurationError([fault("The settings of a race", "hold a list of values", "none", way_out)])
        self.first = {name: next(iter(values)) for name, values in self._values.items()}

    def word(self, name: str, text: str) -> str:
        """Return a setting as it is typed."""
        is_text = isinstance(self._values[name][text].value, str)
        return format_override(name, text) if is_text else f"{name}={text}"

    def factors(self, chosen: Settings) -> tuple[Sequence[Factor], Mapping[str, str]]:
        """See `Space`."""
        now = {**self.first, **chosen}
        return [
            Factor(name, [{name: value} for value in self._values[name] if value != now[name]]) for name in self._raced
        ], {}

    def changes(self, chosen: Settings) -> dict[str, str]:
        """See `Space`."""
        return {name: value for name, value in chosen.items() if value != self.first[name]}


class _SomeCells:
    """A script of which only some cells are run, each again."""

    def __init__(self, program: ScriptProgram, grid: CellGrid, cells: Sequence[Cell]) -> None:
        self._program = program
        self._grid = replace(grid, cells=cells, notes=(), storage=replace(grid.storage, resume=Resume.NEVER))

    def __getattr__(self, name: str) -> Any:
        return getattr(self._program, name)

    def count_cells(self) -> int:
        return len(self._grid.cells)

    def compose(self) -> CellGrid:
        return self._grid


class _WholeRuns:
    """Runs the contenders of a heat in rounds, each in a random order. See `Track`."""

    def __init__(self, program: ScriptProgram, space: _Lists, launcher: Launcher, line: ScriptCommandLine) -> None:
        self._program = program
        self._space = space
        self._launcher = launcher
        self._grid = program.compose()
        self.sweep = SweepPaths(Path(line.flags.output_root) / str(line.flags.name))
        self._run_seconds = 0.0
        self._random = random.Random(0)  # noqa: S311  # an order of turns

    def needed(self, count: int) -> float:
        return count * self._run_seconds * _LEAST_ROUNDS

    def race(self, contenders: Sequence[Settings], *, seconds: float, is_last: bool = False) -> Heat:
        cells = [self._cell({**self._space.first, **settings}) for settings in contenders]
        running, dropped = set(range(len(cells))), set[int]()
        rounds: list[dict[int, float]] = []
        failures: dict[int, str] = {}
        deadline, is_interrupted = time.monotonic() + seconds, False
        while len(running) > 1 and len(rounds) < _MAX_ROUNDS:
            began = time.monotonic()
            try:
                found = self._run_round({key: cells[key] for key in self._random.sample(sorted(running), len(running))})
            except KeyboardInterrupt:
                is_interrupted = True
                break
            rounds.append({key: speed for key, speed in found.items() if isinstance(speed, float)})
            failures |= {key: speed for key, speed in found.items() if isinstance(speed, str)}
            running -= set(failures)
            self._run_seconds = (time.monotonic() - began) / max(len(found), 1)
            if not is_last and len(rounds) in _LOOK_AT:
                dropped |= beaten([rounds], running, looks=len(_LOOK_AT), whole_runs=True)
                running -= dropped
            if is_last and is_settled(race_speedup([rounds], 0, 1, whole_runs=True)):
                break
            if time.monotonic() + len(running) * self._run_seconds > deadline and len(rounds) >= _LEAST_ROUNDS:
                break
        rows = None if is_last else len(cells) - 1
        every = {key: race_speedup([rounds], 0, key, rows=rows, whole_runs=True) for key in range(1, len(cells))}
        known = {key: each for key, each in every.items() if each is not None and key not in failures}
        fastest = fastest_of([rounds], running) if running else 0
        return Heat(known, failures, frozenset(dropped), fastest, is_interrupted=is_interrupted)

    def _cell(self, settings: Settings) -> Cell:
        """The cell of the grid that has these settings."""
        words = {self._space.word(name, value) for name, value in settings.items()}
        return next(cell for cell in self._grid.cells if set(cell.overrides) == words)

    def _run_round(self, cells: Mapping[int, Cell]) -> dict[int, float | str]:
        """Run the cells in this order; return the speed of each, or how it failed."""
        program = _SomeCells(self._program, self._grid, list(cells.values()))
        driver = SweepDriver(program, self._launcher, DriverOptions(quiet=True, yes=True))
        try:
            driver.run()
        except SweepError:
            pass
        except SystemExit as end:
            if end.code == _INTERRUPTED:
                raise KeyboardInterrupt from None
        runs = {run.record.signature: run for run in read_sweep(self.sweep).runs}
        return speeds_of_round({key: runs.get(cell.signature) for key, cell in cells.items()})


def speeds_of_round(runs: Mapping[int, StoredRun | None]) -> dict[int, float | str]:
    """Return the speed of each run of a round; how it failed, if it did.

    It is that of the median epoch in samples a second where every run that finished has a measured epoch, else runs a
    second: of a round only one of these is compared.
    """
    failures = {key: why for key, run in runs.items() if (why := _failure(run))}
    finished = {key: run for key, run in runs.items() if run is not None and key not in failures}
    rates = {key: median(THROUGHPUT.values(run)) for key, run in finished.items()}
    if not all(rates.values()):
        rates = {key: 1 / run.record.run_seconds if run.record.run_seconds else None for key, run in finished.items()}
    return failures | {key: rate or "its duration is not known" for key, rate in rates.items()}


def _failure(run: StoredRun | None) -> str:
    """How a run failed; empty if it finished."""
    if run is None:
        return "it did not begin"
    record = run.record
    failed = f"{record.reason or record.status}: {record.message}".rstrip(": ")
    return "" if record.status is Status.FINISHED else failed

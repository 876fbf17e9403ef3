"""A race of settings in whole runs that take turns, for programs of users."""

import math
import random
import time
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from runmanager.app.display.output import make_console
from runmanager.app.driver.program import CellGrid, Program
from runmanager.app.driver.sweep_driver import DriverOptions, SweepDriver
from runmanager.errors import ConfigurationError, SweepError
from runmanager.launching.launcher import CellLauncher, Trait
from runmanager.launching.plan import Cell, Resume
from runmanager.race.answer import Answer, show_answer, write_tuning
from runmanager.race.heat import (
    LEAST_ROUNDS,
    Factor,
    Heat,
    Settings,
    beaten,
    fastest_of,
    is_settled,
    race_speedup,
    repetition_faults,
)
from runmanager.race.search import Search
from runmanager.records.files.paths import SweepPaths
from runmanager.records.storage.reader import StoredRun, read_sweep
from runmanager.results.metrics.metric import THROUGHPUT
from runmanager.results.stats.descriptive import median
from runmanager.signals import INTERRUPTED_STATUS
from runmanager.text import printable_line, shell_join
from runmanager.validation import fault

_LOOK_AT = (LEAST_ROUNDS, 4, 6, 8, 12)  # rounds
_MAX_ROUNDS = 12


class RacedValues:
    """The lists of values among a program's settings: each is a factor. `first` has the first value of every setting.

    `words` are the values of each setting in order, as a table shows them, each with the word that sets it. Raises
    `ConfigurationError` where no setting is `raced`, and for a value that is listed twice.
    """

    def __init__(self, words: Mapping[str, Sequence[tuple[str, str]]], raced: Sequence[str]) -> None:
        if not raced:
            way_out = "write the values to race as num_workers=0,2,4"
            raise ConfigurationError([fault("The settings of a race", "hold a list of values", "none", way_out)])
        if faults := [line for name in raced for line in repetition_faults(name, [value for value, _ in words[name]])]:
            raise ConfigurationError(faults)
        self._words = {name: dict(values) for name, values in words.items()}
        self._raced = raced
        self.first = {name: next(iter(values)) for name, values in self._words.items()}

    @property
    def num_combinations(self) -> int:
        return math.prod(map(len, self._words.values()))

    def words(self, settings: Settings) -> list[str]:
        """Return all settings as they are typed, those that are not in `settings` with their first value."""
        return [self._words[name][value] for name, value in {**self.first, **settings}.items()]

    def factors(self, chosen: Settings) -> tuple[Sequence[Factor], Mapping[str, str]]:
        """See `Space`."""
        now = {**self.first, **chosen}
        return [
            Factor(name, [{name: value} for value in self._words[name] if value != now[name]]) for name in self._raced
        ], {}

    def changes(self, chosen: Settings) -> dict[str, str]:
        """See `Space`."""
        return {name: value for name, value in chosen.items() if value != self.first[name]}


def race_whole_runs(
    program: Program,
    values: RacedValues,
    launcher: CellLauncher,
    *,
    call: Sequence[str],
    fixed: Sequence[str] = (),
    seconds: float,
    began: float,
) -> int:
    """Race the values, print and write what was found; return the exit status.

    Each whole run counts as `speeds_of_rounds` says. All runs are those of the program's sweep, which keeps them. They
    run one by one, each once, whatever the launcher's settings are. `call` and `fixed` are what stands before and after
    the settings in the command of a single run. `began` is the time at which the `seconds` begin, on the monotonic
    clock. Raises `RunManagerError` where nothing has been run.
    """
    if Trait.HERE not in launcher.traits:
        raise ConfigurationError([fault("hydra/launcher", "be runmanager for a race", "another one")])
    console = make_console()
    # Runs at a time would disturb one another, and the end of one must not keep others from beginning.
    track = _WholeRuns(program, values, launcher.with_each_run_once(workers=1, runs_per_gpu=1), until=began + seconds)
    search = Search(
        values,
        track,
        seconds=seconds,
        began=began,
        shares={},
        say=lambda text: console.print(printable_line(text), soft_wrap=not console.is_terminal),
    )
    found = search.run()
    command = shell_join([*call, *values.words(found.chosen), *fixed])
    answer = Answer(found, command, device="", given=" ".join(values.words({})))
    write_tuning(track.sweep.root, answer)
    show_answer(answer, console)
    return answer.exit_status


class _SomeCells:
    """A program of which only some cells are run, each again."""

    def __init__(self, program: Program, grid: CellGrid, cells: Sequence[Cell]) -> None:
        self._program = program
        self._grid = replace(grid, cells=cells, notes=(), storage=replace(grid.storage, resume=Resume.NEVER))

    def __getattr__(self, name: str) -> Any:
        return getattr(self._program, name)

    def count_cells(self) -> int:
        return len(self._grid.cells)

    def compose(self, words: Sequence[str] | None = None) -> CellGrid:
        return self._grid


class _WholeRuns:
    """Runs the contenders of a heat in rounds, each in a random order, `until` a monotonic time. See `Track`."""

    def __init__(self, program: Program, values: RacedValues, launcher: CellLauncher, *, until: float) -> None:
        self._program = program
        self._values = values
        self._launcher = launcher
        self._grid = program.compose()
        if len({cell.signature for cell in self._grid.cells}) < values.num_combinations:
            raise ConfigurationError(
                ["The values of a race must differ from each other, got two that make equal runs."]
            )
        storage = self._grid.storage
        assert storage.name is not None, "a race has a sweep of its own"
        self.sweep = SweepPaths(Path(storage.output_root) / storage.name)
        self._until = until
        self._stored = read_sweep(self.sweep).runs
        self._run_seconds = 0.0
        self._random = random.Random(0)  # noqa: S311  # an order of turns

    def needed(self, contenders: Sequence[Settings]) -> float:
        return len(contenders) * self._run_seconds * LEAST_ROUNDS

    def race(self, contenders: Sequence[Settings], *, seconds: float, is_last: bool = False) -> Heat:
        cells = [self._cell(settings) for settings in contenders]
        running, dropped = set(range(len(cells))), set[int]()
        finished: list[dict[int, StoredRun]] = []
        rounds: list[dict[int, float]] = []
        failures: dict[int, str] = {}
        deadline, is_interrupted = time.monotonic() + seconds, False
        while len(running) > 1 and 0 not in failures and len(finished) < _MAX_ROUNDS:
            began = time.monotonic()
            try:
                found = self._run_round({key: cells[key] for key in self._random.sample(sorted(running), len(running))})
            except KeyboardInterrupt:
                is_interrupted = True
                break
            failures |= {key: why for key, run in found.items() if (why := _failure(run))}
            finished.append({key: run for key, run in found.items() if run is not None and key not in failures})
            rounds = speeds_of_rounds(finished)
            running -= set(failures)
            self._run_seconds = (time.monotonic() - began) / max(len(found), 1)
            if not is_last and len(rounds) in _LOOK_AT:
                dropped |= beaten([rounds], running, looks=len(_LOOK_AT), whole_runs=True)
                running -= dropped
            if is_last and is_settled(race_speedup([rounds], 0, 1, rows=1, whole_runs=True)):
                break
            limit = deadline if len(finished) >= LEAST_ROUNDS else self._until
            if time.monotonic() + len(running) * self._run_seconds > limit:
                break
        rows = len(cells) - 1
        every = {key: race_speedup([rounds], 0, key, rows=rows, whole_runs=True) for key in range(1, len(cells))}
        known = {key: each for key, each in every.items() if each is not None and key not in failures}
        fastest = fastest_of([rounds], running, whole_runs=True) if running else 0
        return Heat(known, failures, frozenset(dropped), fastest, is_interrupted=is_interrupted)

    def _cell(self, settings: Settings) -> Cell:
        """The cell of the grid that has these settings."""
        words = set(self._values.words(settings))
        return next(cell for cell in self._grid.cells if set(cell.overrides) == words)

    def _run_round(self, cells: Mapping[int, Cell]) -> dict[int, StoredRun | None]:
        """Run the cells in this order; return the run of each that began."""
        program = _SomeCells(self._program, self._grid, list(cells.values()))
        driver = SweepDriver(program, self._launcher, DriverOptions(quiet=True, yes=True, resumes=False))
        try:
            driver.run()
        except SweepError:
            pass
        except SystemExit as end:
            if end.code == INTERRUPTED_STATUS:
                raise KeyboardInterrupt from None
        before, self._stored = self._stored, read_sweep(self.sweep).runs
        runs = {run.record.signature: run for run in runs_since(before, self._stored)}
        return {key: runs.get(cell.signature) for key, cell in cells.items()}


def runs_since(before: Sequence[StoredRun], now: Sequence[StoredRun]) -> list[StoredRun]:
    """Return the runs that have begun since `before` was read: the record of an earlier run says nothing of a round."""
    known = {(run.record.signature, run.record.started_at, run.record.attempt) for run in before}
    return [run for run in now if (run.record.signature, run.record.started_at, run.record.attempt) not in known]


def speeds_of_rounds(rounds: Sequence[Mapping[int, StoredRun]]) -> list[dict[int, float]]:
    """Return the speed of each finished run of a heat, round by round.

    It is that of the median epoch in samples a second where every run has a measured epoch, else runs a second: of a
    heat only one of these is compared.
    """
    rates = [{key: median(THROUGHPUT.values(run)) for key, run in runs.items()} for runs in rounds]
    measured = [{key: rate for key, rate in each.items() if rate} for each in rates]
    if measured == rates:
        return measured
    return [{key: 1 / run.record.run_seconds for key, run in runs.items() if run.record.run_seconds} for runs in rounds]


def _failure(run: StoredRun | None) -> str:
    """How a run failed; empty if it finished, in a time that is known."""
    if run is None:
        return "it did not begin"
    record = run.record
    if not record.is_complete:
        return f"{record.reason or record.status}: {record.message}".rstrip(": ")
    return "" if record.run_seconds else "its duration is not known"

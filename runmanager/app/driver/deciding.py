"""Deciding late which seeds run: those of the cells between which the question of a sweep is still open.

After the first two seeds of all cells, each round runs the next seed of the cells that are open, and then looks: at the
same seeds of all of them, by the intervals of `results/compare`. Looks share an error rate of 5%: those so far may have
spent the share of it that their seeds are of all (an error-spending function: Lan and DeMets, *Biometrika* 70, 1983; of
the power family of Kim and DeMets, *Biometrika* 74, 1987, the one with exponent 1). What a look may spend becomes its
level by the distribution of normal sums at the looks (Armitage, McPherson and Rowe, *JRSS A* 132, 1969), and the level
that of an interval with learnt noise (Jennison and Turnbull, *Group Sequential Methods*, 2000, sections 4.4 and 7.2).
Of speeds all pairs share the rate. Which cell is the best needs no such share: it is wrong only where the best cell is
shown to be worse than the chosen one, and most often where two are equal and all others far behind, that is at the rate
of one comparison (Gutmann and Maymin, *Annals of Statistics* 15, 1987). `benchmarks/search_truth.py` simulates it.
"""

import math
from collections.abc import Callable, Collection, Hashable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache

from runmanager.app.display.run_line import run_label
from runmanager.app.driver.program import CellGrid
from runmanager.app.driver.run_listener import SweepListener
from runmanager.app.driver.sweep_plan import LateCells, late_obstacles, seeds_of
from runmanager.app.request.sweep_request import flag_of
from runmanager.errors import ConfigurationError, UsageError
from runmanager.launching.launcher import CellLauncher
from runmanager.launching.plan import Cell, PlannedRun, plan_of
from runmanager.records.files.atomic_files import locked_folder
from runmanager.records.files.paths import SweepPaths
from runmanager.records.settings.values import hashable
from runmanager.records.storage.reader import StoredRun, SweepContents
from runmanager.records.sweep.sweep_record import SweepRecord, note_decision
from runmanager.results.compare.comparison_table import CompareOptions
from runmanager.text import pluralize
from runmanager.validation import fault

_FIRST_SEEDS = 2
_ERROR_RATE = 0.05  # of all looks together
_MOST_NAMED = 5
_REACH, _NUM_SUMS = 6.0, 801  # of the grid of sums, in deviations at the last look


@dataclass(frozen=True)
class DecidingOptions:
    """What a command asks of deciding late: at most how many runs. `key` is how the user names an option."""

    max_runs: int | None = None
    key: Callable[[str], str] = flag_of

    def refuse_unfit(self, grid: CellGrid, launcher: CellLauncher, *, is_single: bool) -> None:
        """Raise `ConfigurationError` where nothing can be decided late."""
        question, option = Question(grid, None), self.key("until_decided")
        obstacles = late_obstacles(grid, launcher, is_single=is_single)
        faults = [fault(option, f"be left out {where}", "it") for where in obstacles]
        if question.num_seeds < _FIRST_SEEDS:
            way_out = "write seed=0,1,2,3,4"
            faults.append(fault(option, "be given with a list of seeds, of which it takes some", "one seed", way_out))
        least = sum(len(each.first(_FIRST_SEEDS)) for each in question.contenders)
        if self.max_runs is not None and self.max_runs < least:
            rule = f"be at least {least}, the first two seeds of {pluralize(len(question.contenders), 'cell')}"
            faults.append(fault(self.key("max_runs"), rule, self.max_runs))
        if faults:
            raise ConfigurationError(faults)


@dataclass(frozen=True)
class Contender:
    """The cells that differ in the seed alone, by the position of their seed among those of the command."""

    label: str
    cells: Mapping[int, Cell]

    def first(self, count: int) -> list[Cell]:
        """Its cells of the first seeds."""
        return [cell for position, cell in self.cells.items() if position < count]


@dataclass(frozen=True)
class Standing:
    """What is known after a look: the cells with the next seeds, none once it is over, and the contenders still open.

    `answer` says what was decided, empty as long as it was not. `seeds` is the number of seeds that were looked at.
    """

    cells: Sequence[Cell]
    open: Sequence[Contender]
    answer: str = ""
    seeds: int = 0


class Question:
    """The question of a sweep: which cell is the best by an outcome, or what differs in speed along its axis.

    `metric` is the one that the command names; None for the one that `compare` would take.
    """

    def __init__(self, grid: CellGrid, metric: str | None) -> None:
        self._metric = metric
        found: dict[Hashable, dict[Hashable, Cell]] = {}
        labels: dict[Hashable, str] = {}
        for cell in grid.cells:
            planned = plan_of(cell)
            own, seeds = planned.choices_and_settings, seeds_of(planned, tuple(grid.seed_names))
            rest = frozenset((name, hashable(own[name])) for name in own.keys() - seeds - grid.derived)
            seed = tuple(sorted((name, hashable(own[name])) for name in seeds))
            found.setdefault(rest, {})[seed] = cell
            labels[rest] = ", ".join(f"{name}={own.get(name)}" for name in grid.axes if name not in seeds)
        seeds_in_order = list(dict.fromkeys(seed for cells in found.values() for seed in cells))
        self.num_seeds = len(seeds_in_order)
        self.contenders = [
            Contender(labels[rest], {seeds_in_order.index(seed): cell for seed, cell in cells.items()})
            for rest, cells in found.items()
        ]
        self._looks: dict[int, tuple[Sequence[Contender], str]] = {}

    def standing(
        self, contents: SweepContents, plan: SweepRecord | None, *, is_over: Callable[[Cell, StoredRun | None], bool]
    ) -> Standing:
        """Return where the question stands, given the runs of the sweep; `is_over`: a cell is not to run any more."""
        runs = {run.signature: run for run in contents.runs}
        still_open: Sequence[Contender] = self.contenders
        for count in range(_FIRST_SEEDS, self.num_seeds + 1):
            due = [cell for each in still_open for cell in each.first(count)]
            left = [cell for cell in due if not is_over(cell, runs.get(cell.signature))]
            if left:
                return Standing(left, still_open, seeds=count - 1)
            if count not in self._looks:
                seen = frozenset(cell.signature for cell in due)
                looked_at = replace(contents, runs=[run for run in contents.runs if run.signature in seen])
                self._looks[count] = self._look(looked_at, plan, still_open, count)
            still_open, answer = self._looks[count]
            if answer:
                return Standing([], still_open, answer, count)
        return Standing([], still_open, seeds=self.num_seeds)

    def _look(
        self, seen: SweepContents, plan: SweepRecord | None, among: Sequence[Contender], count: int
    ) -> tuple[Sequence[Contender], str]:
        """The contenders that are still open after a look at so many seeds, and the answer if none is."""
        from runmanager.results.compare.sweep_question import with_metric_of_sweep  # late: after the first rounds
        from runmanager.results.metrics.metric_lookup import find_metric, requested_metric

        asked = None if self._metric is None else requested_metric(self._metric, seen.runs)
        options = with_metric_of_sweep(seen, plan) if asked is None else CompareOptions(metric=asked.name)
        num_others = len(self.contenders) - 1
        try:
            is_speed = (asked or find_metric(options.metric, seen.runs)).effect == "speedup"
            looks = range(_FIRST_SEEDS if is_speed else options.min_seeds, self.num_seeds + 1)
            if count not in looks or not num_others:
                return among, ""
            rows, look = num_others if is_speed else 1, count - looks.start
            options = replace(options, error_rate=error_rates(looks, rows=rows)[look], is_joint=is_speed)
            return (self._look_at_pairs if is_speed else self._look_for_best)(seen, plan, options, among)
        except UsageError:  # no run has a value
            return among, ""

    def _look_for_best(
        self, seen: SweepContents, plan: SweepRecord | None, options: CompareOptions, among: Sequence[Contender]
    ) -> tuple[Sequence[Contender], str]:
        from runmanager.results.findings.best import find_best

        of_one_end = replace(options, error_rate=options.error_rate / 2)
        best = find_best(seen, plan, metric=options.metric, options=of_one_end)
        left = {cell.signature for each in (best.winner, *best.undecided) for cell in each.side.cells}
        still_open = _with_any(among, left)
        answer = "" if best.undecided else f"the best {best.metric.name} is that of {best.winner.side.label}"
        return still_open, answer

    def _look_at_pairs(
        self, seen: SweepContents, plan: SweepRecord | None, options: CompareOptions, among: Sequence[Contender]
    ) -> tuple[Sequence[Contender], str]:
        from runmanager.results.compare.comparison import judged_pairs
        from runmanager.results.compare.matched_pairs import match_sides
        from runmanager.results.compare.verdict import INCONCLUSIVE, NOT_MEASURED

        matches = match_sides(seen, plan, options)
        known = {cell.signature for each in among for cell in each.cells.values()}
        pairs = [
            match
            for match in matches.pairs
            if all(known.intersection(cell.signature for cell in side.cells) for side in match.sides)
        ]
        if not pairs:
            return among, ""
        matches = replace(matches, pairs=pairs, among=len(self.contenders) - 1)
        judged = judged_pairs(seen, matches, options)
        is_open = [each.verdict in (INCONCLUSIVE, NOT_MEASURED) for each in judged]
        left = {
            cell.signature
            for match, undecided in zip(matches.pairs, is_open, strict=True)
            if undecided
            for side in match.sides
            for cell in side.cells
        }
        axis = matches.axes[-1].name
        answer = "" if any(is_open) else f"{options.metric} is decided along {axis}"
        return _with_any(among, left), answer


@lru_cache(maxsize=8)
def error_rates(looks: range, *, rows: int) -> list[float]:
    """Return the error rate of each look, after these numbers of seeds, at so many rows: together they come to 5%."""
    import numpy as np
    from scipy.special import ndtr

    of_row = -math.expm1(math.log1p(-_ERROR_RATE) / rows) / 2  # at each end
    sums = np.linspace(-_REACH, _REACH, _NUM_SUMS) * math.sqrt(looks[-1])
    step, density, spent, seeds, found = sums[1] - sums[0], np.zeros(_NUM_SUMS), 0.0, 0, []
    for count in looks:
        if not seeds:
            density = np.exp(-(sums**2) / 2 / count) / math.sqrt(2 * math.pi * count)
        else:  # of sums that no look has stopped before
            more = count - seeds
            kernel = np.exp(-((sums[:, None] - sums[None]) ** 2) / 2 / more) / math.sqrt(2 * math.pi * more)
            density = kernel @ density * step
        beyond = np.cumsum(density[::-1])[::-1] * step
        allowed = of_row * count / looks[-1] - spent
        bound = float(np.interp(-allowed, -beyond, sums))
        density = np.where(sums < bound, density, 0.0)
        of_one = 2 * float(ndtr(-bound / math.sqrt(count)))
        found.append(-math.expm1(rows * math.log1p(-of_one)))
        spent, seeds = spent + allowed, count
    return found


def _with_any(contenders: Sequence[Contender], signatures: Collection[str]) -> list[Contender]:
    """The contenders that have a cell among these."""
    return [each for each in contenders if any(cell.signature in signatures for cell in each.cells.values())]


class Deciding(LateCells):
    """Runs the seeds of a grid until the question of its sweep is answered, or `max_runs` cells have run."""

    def __init__(
        self,
        sweep: SweepPaths,
        grid: CellGrid,
        plan: Callable[[CellGrid, SweepPaths], list[PlannedRun]],
        *,
        metric: str | None,
        options: DecidingOptions,
    ) -> None:
        super().__init__(sweep, plan, metric)
        self._grid = grid
        self._max_runs = options.max_runs
        self._key = options.key
        self._question = Question(grid, metric)
        self._taken: set[str] = set()
        self._has_said = False

    def in_words(self, launcher: CellLauncher) -> list[str]:
        most = f", {pluralize(self._max_runs, 'run')} at most" if self._max_runs is not None else ""
        return [
            f"Seeds run until the question is decided{most}: first two of {self._question.num_seeds} seeds, then those "
            f"of cells that are still open, of {len(self._grid.cells)} in the full grid, in {self._sweep.root}"
        ]

    def expected(self) -> list[str]:
        cells = [cell for each in self._question.contenders for cell in each.first(_FIRST_SEEDS)]
        return [run_label(cell.name) for cell in cells]

    def _next(self, listener: SweepListener) -> Sequence[PlannedRun]:
        from runmanager.results.load.loader import read_results

        with locked_folder(self._sweep.root):
            contents, plan = read_results(self._sweep)
            standing = self._question.standing(contents, plan, is_over=self._is_over)
            new = [cell for cell in standing.cells if cell.signature not in self._taken]
            waits = len(new) < len(standing.cells)
            room = len(new) if self._max_runs is None else self._max_runs - len(self._taken)
            self._taken.update(cell.signature for cell in new[:room])
            runs = self._planned(replace(self._grid, cells=new[:room])) if new[:room] else []
        if not (runs or waits or self._has_said):
            self._has_said = True
            listener.say(line := self._in_words_at_the_end(standing, has_room=self._max_runs is None or room > 0))
            note_decision(self._sweep, line)
        return runs

    def _is_over(self, cell: Cell, run: StoredRun | None) -> bool:
        """Whether a cell is complete, or this driver has run it; a run that failed before is run again."""
        if run is None:
            return False
        return (run.is_complete or run.record.status.is_ended) and cell.signature in self._taken

    def _in_words_at_the_end(self, standing: Standing, *, has_room: bool) -> str:
        num_runs, full = len(self._taken), len(self._grid.cells)
        counted = f"{num_runs} of the {full} runs of the full grid ({full - num_runs} saved)"
        if standing.answer:
            return f"Decided with {counted}: {standing.answer}."
        labels = [each.label for each in standing.open]
        more = f"; and {len(labels) - _MOST_NAMED} more" if len(labels) > _MOST_NAMED else ""
        why = "all seeds have run" if has_room else f"{self._key('max_runs')} allows no more"
        return f"Not decided with {counted}, as {why}: still open are {'; '.join(labels[:_MOST_NAMED])}{more}."

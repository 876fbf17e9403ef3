"""A search: which cells a launcher gets next, decided late from what the runs of the sweep have recorded.

There is no other state: each decision tells a new study of Optuna the trials that are in the sweep's files, and asks.
Pruning asks Optuna's pruners in the same way which runs end early.
"""

import itertools
import math
import time
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from statistics import fmean
from typing import Any

from runmanager.app.compose.grid_rules import ExcludedError
from runmanager.app.compose.search_space import TPE, Course, Point, Space, Trial, import_optuna, propose
from runmanager.app.display.run_line import run_label
from runmanager.app.driver.program import CellGrid, Program
from runmanager.app.driver.run_listener import Begun, SweepListener
from runmanager.app.driver.sweep_plan import LateCells, joined, late_obstacles, seeds_of, with_kept_cells
from runmanager.app.request.sweep_request import flag_of
from runmanager.errors import ConfigurationError, SweepError, UsageError
from runmanager.launching.hydra_launcher import require_package
from runmanager.launching.launcher import CellLauncher, Trait
from runmanager.launching.plan import PlannedRun, plan_of
from runmanager.records.files.atomic_files import locked_folder
from runmanager.records.files.paths import SweepPaths
from runmanager.records.run.status import Outcome, Reason, Status
from runmanager.records.settings.values import hashable
from runmanager.records.storage.reader import StoredRun, read_sweep
from runmanager.records.storage.run_end import note_stop
from runmanager.records.sweep.sweep_record import PlannedCell, read_sweep_record
from runmanager.results.metrics.metric import Metric
from runmanager.results.metrics.metric_lookup import default_metrics, find_metric, requested_metric
from runmanager.results.write_throttle import WriteThrottle
from runmanager.text import first_line, pluralize
from runmanager.validation import fault

_LIMIT_SECONDS = 30.0  # between SIGTERM and SIGKILL
_MOST_POINTS = 1000  # that a file's course has as they were written: of more, some are left out
_MOST_VALUES = 512  # that count: as many of what is printed are kept
_MEDIAN = "median"


def read_course(run: StoredRun, metric: Metric, origin: str | None = None) -> Course:
    """Return a run's values of a metric by their number from 1; empty where it has only the last, or too many.

    `origin` says where a run that has not ended will have the metric from.
    """
    from runmanager.results.program_files.folder_metrics import course_of  # late: few searches prune

    values = list(course_of(run, metric, origin=origin)[1].values())
    return dict(enumerate(values[:_MOST_VALUES], 1)) if len(values) <= _MOST_POINTS else {}


@dataclass
class _Told:
    """A run as Optuna knows it: its trial there, how many values it was told, and whether it was told the end."""

    trial: Any
    num_values: int = 0
    is_over: bool = False


class Pruning:
    """Asks a pruner of Optuna, by `method`, about each new value of the metric that a run of a search records.

    `trials` returns those of the search, and its metric, from the sweep's files. Each run is a trial of Optuna's, in
    the order of the plan, so that another driver asks the same. Nothing is pruned before the first run is complete.
    """

    def __init__(
        self,
        method: str,
        trials: Callable[[], tuple[Sequence[Trial], Metric | None]],
        *,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._method = method
        self._trials = trials
        self._clock = clock
        self._pace = WriteThrottle(clock=clock)
        self._study: Any = None
        self._told: dict[str, _Told] = {}
        self._asked: dict[int, float] = {}  # when runs were asked to end, by their keys
        self._has_said = False

    def unwanted(self, begun: Begun, say: Callable[[str], None]) -> Iterator[tuple[int, bool]]:
        """Yield the keys of the `begun` runs that are to end, and of those that have not ended in time to be killed.

        Why a run is stopped is noted first, so that its end is told by it. What keeps all from being pruned is said.
        """
        now = self._clock()
        late = [key for key, asked in self._asked.items() if now - asked >= _LIMIT_SECONDS]
        yield from ((key, True) for key in late)
        self._asked.update(dict.fromkeys(late, float("inf")))
        if not self._pace.is_due:
            return
        with self._pace.writing(), warnings.catch_warnings():
            warnings.simplefilter("ignore")  # NumPy's and Optuna's, of values that are not finite
            unpromising = self._judge(say)
            ours = [each for each in begun() if each[1].cell.signature in unpromising] if unpromising else []
        for key, run, record in ours:
            if key not in self._asked:
                self._asked[key] = now
                outcome = Outcome(Status.FINISHED, Reason.PRUNED, unpromising[run.cell.signature])
                note_stop(run.paths, record.attempt, outcome)
                yield key, False

    def _judge(self, say: Callable[[str], None]) -> dict[str, str]:
        """Tell Optuna what is new; return why running runs are unpromising, by their signatures."""
        trials, metric = self._trials()
        inside = [each for each in trials if each.point is not None and each.counts]
        complete = [run for each in inside for run in each.runs.values() if run is not None and run.is_complete]
        if metric is None or not complete:
            return {}
        origin = next(filter(None, ((run.record.origins or {}).get(metric.name) for run in complete)), None)
        if self._study is None:
            longest = max(len(read_course(run, metric)) for run in complete)
            if longest < 2:
                if not self._has_said:
                    say(f"Nothing is pruned yet: complete runs have no course of {metric.name}, only its last value.")
                self._has_said = True
                return {}
            self._study = _study(self._method, longest, more_is_better=metric.more_is_better)
        found = {}
        for signature, run in ((name, run) for each in inside for name, run in each.runs.items()):
            told = self._told.get(signature) or self._told.setdefault(signature, _Told(self._study.ask()))
            if run is None or told.is_over:
                continue
            course = read_course(run, metric, origin)
            is_running = run.status == Status.RUNNING
            for number, value in list(course.items())[told.num_values :]:
                told.trial.report(value, number)
                told.num_values = number
                if told.trial.should_prune() and is_running:
                    counted = f"after {number} of its values"
                    found[signature] = f"{metric.name} {metric.format_value(value)} {counted}, by {self._method}"
            if run.is_complete or run.record.reason is Reason.PRUNED:
                values, states = metric.values(run)[-1:], import_optuna().trial.TrialState
                has_value = run.is_complete and bool(values)
                state = states.COMPLETE if has_value else states.FAIL if run.is_complete else states.PRUNED
                self._study.tell(told.trial, values[0] if has_value else None, state=state)
                told.is_over = True
        return found


def _study(method: str, longest: int, *, more_is_better: bool) -> Any:
    """A study of Optuna that judges runs, of which the `longest` has that many values."""
    optuna = import_optuna()
    pruners = optuna.pruners
    return optuna.create_study(
        study_name="runs",  # by which a trial's bracket is drawn
        direction="maximize" if more_is_better else "minimize",
        sampler=optuna.samplers.RandomSampler(seed=0),
        pruner=pruners.MedianPruner() if method == _MEDIAN else pruners.HyperbandPruner(max_resource=longest),
    )


@dataclass(frozen=True)
class SearchOptions:
    """What a command asks of a search: by which `method`, in which space, how many trials, and for how long.

    A trial is a point of the space with all its seeds. `prune` is how Optuna decides which runs end early, if it does.
    `key` is how the user names an option.
    """

    method: str
    space: Space
    trials: int | None = None
    max_seconds: float | None = None
    prune: str | None = None
    key: Callable[[str], str] = flag_of

    def corners(self, program: Program, launcher: CellLauncher, *, is_single: bool) -> CellGrid:
        """Return the cells of the space's corners, which are checked in place of those that are decided later.

        Raises `ConfigurationError` for their faults and where nothing can be searched, and `UsageError` without Optuna.
        """
        option = self.key("search")
        require_package("optuna", extra="search", option=option)
        grid = joined([program.compose(words) for words in self.space.corners()])
        if obstacles := late_obstacles(grid, launcher, is_single=is_single):
            raise ConfigurationError(fault(option, f"be left out {where}", self.method) for where in obstacles)
        if self.prune is not None and Trait.IN_BATCHES in launcher.traits:
            where, way_out = "under a launcher that tells of no end before all end", "launchers of runmanager do"
            raise ConfigurationError([fault(self.key("prune"), f"be left out {where}", self.prune, way_out)])
        return grid


class Search(LateCells):
    """The trials of a search of one sweep, which it may share with other drivers: all that counts is in its files.

    `corners` are the cells of the space's corners: what they have in common, all trials have. `restore`: cells that
    were removed count as any other.
    """

    def __init__(
        self,
        options: SearchOptions,
        sweep: SweepPaths,
        corners: CellGrid,
        program: Program,
        plan: Callable[[CellGrid, SweepPaths], list[PlannedRun]],
        *,
        metric: str | None,
        restore: bool,
    ) -> None:
        super().__init__(sweep, plan, metric)
        self._options = options
        self._corners = corners.cells
        self._seed_names = tuple(corners.seed_names)
        self._program = program
        self._restore = restore
        self._taken: set[Point | None] = {None}
        self._left_out: set[Point] = set()
        self._has_begun = False
        self._end = ""
        self._pruning = None if options.prune is None else Pruning(options.prune, self._trials)
        self._pruned: dict[tuple[str, int], Course] = {}
        self._until = math.inf if options.max_seconds is None else time.monotonic() + options.max_seconds

    @cached_property
    def _fixed(self) -> dict[str, Any]:
        """The settings that all cells of the space have in common, but for seeds and what follows from others."""
        cells, space = [plan_of(cell) for cell in self._corners], self._options.space
        first, *others = [each.choices_and_settings for each in cells]
        varying = seeds_of(cells[0], self._seed_names).union(*(cell.derived for cell in self._corners))
        return {
            name: value
            for name, value in first.items()
            if name not in varying and not space.has(name) and all(each.get(name) == value for each in others)
        }

    def in_words(self, launcher: CellLauncher) -> list[str]:
        options, trials = self._options, self._counted()
        limits = [pluralize(options.trials, "trial")] if options.trials is not None else []
        limits += [f"none begins after {options.max_seconds:g} s"] if options.max_seconds is not None else []
        limits += [f"pruned by {options.prune}"] if options.prune is not None else []
        lines = [
            f"Search ({options.method}): {', '.join(limits)}, {len(trials)} tried already, in {self._sweep.root}",
            f"Searched: {'; '.join(map(str, options.space.dimensions))}",
        ]
        if outside := sum(each.point is None for each in trials):
            are = pluralize(outside, "trial of the sweep has", "trials of the sweep have")
            lines.append(f"{are} other settings than this space: they count, and the search does not learn from them.")
        if Trait.IN_BATCHES in launcher.traits:
            lines.append(
                f"This launcher of Hydra gets {launcher.num_handed} cells at a time, and the next when all of them "
                "have ended; a launcher of runmanager fills each free slot at once."
            )
        return lines

    def _counted(self) -> list[Trial]:
        return [each for each in self._trials()[0] if each.counts]

    def expected(self) -> list[str]:
        spare = "0" * self._options.space.spare_width
        labels = [f"{run_label(each.name)}{spare}" for each in self._corners]
        cells = [plan_of(each) for each in self._corners]
        seeds = {tuple(hashable(cell.settings[name]) for name in seeds_of(cell, self._seed_names)) for cell in cells}
        number = max(0, (self._options.trials or 0) - len(self._counted())) * len(seeds)
        return list(itertools.islice(itertools.cycle(labels), number))

    def unwanted(self, begun: Begun, say: Callable[[str], None]) -> Iterable[tuple[int, bool]]:
        return () if self._pruning is None else self._pruning.unwanted(begun, say)

    def _next(self, listener: SweepListener) -> Sequence[PlannedRun]:
        """Plan the runs of the next trial, but first and last those of the trials that the sweep has.

        The sweep's file is locked meanwhile, so that no other driver of the search tries the same.
        """
        with locked_folder(self._sweep.root):
            trials, metric = self._trials()
            self._end = self._end or self._end_after(trials, metric, listener)
            known = [each.point for each in trials if each.counts and each.point not in self._taken]
            if known and (self._end or not self._has_begun):
                self._has_begun = True
                if runs := self._take(known, listener):
                    return runs
            self._has_begun = True
            if self._end:
                return []
            for point in propose(
                self._options.space,
                trials,
                self._options.method,
                more_is_better=metric is not None and metric.more_is_better,
                seed=len(trials),
                is_left_out=self._left_out.__contains__,
            ):
                if runs := self._take([point], listener):
                    return runs
            self._end = f"The search ends after {pluralize(len(trials), 'trial')}: the space has no other point."
            listener.say(self._end)
            return []

    def _end_after(self, trials: Sequence[Trial], metric: Metric | None, listener: SweepListener) -> str:
        """Why no further trial begins; empty if one may."""
        if self._options.trials is not None and sum(each.counts for each in trials) >= self._options.trials:
            return "all trials"
        if time.monotonic() >= self._until:
            return "no time"
        if self._options.method == TPE and metric is None and any(each.is_finished for each in trials):
            named = "no known metric" if self._metric is None else f"no {self._metric}"
            line = f"The search must have values to learn from, got {named} from the runs that have finished."
            listener.faults.add("The search", SweepError(line))
            return line
        return ""

    def _take(self, points: Iterable[Point | None], listener: SweepListener) -> list[PlannedRun]:
        """Compose and plan the cells of points, but for those that have none."""
        grids = []
        for point in points:
            assert point is not None, "known and proposed points lie in the space"
            self._taken.add(point)
            try:
                grid = self._program.compose(self._options.space.words(point))
                grids.append(with_kept_cells(grid, restore=self._restore))
            except (ConfigurationError, UsageError) as error:  # those of a condition, removed ones, and bad ones
                self._left_out.add(point)
                if not isinstance(error, ExcludedError):
                    listener.say(f"Left out: {first_line(str(error))}")
        if not grids:
            return []
        return self._planned(joined(grids), search=self._options.method)

    def _trials(self) -> tuple[list[Trial], Metric | None]:
        """The trials of the sweep in the order of their first cells, and the metric by which they are ranked."""
        record = read_sweep_record(self._sweep)
        if record is None:
            return [], None
        runs = read_sweep(self._sweep).runs
        finished = [run for run in runs if run.is_complete]
        metric = self._metric_of(finished)
        by_signature = {run.signature: run for run in runs}
        removed = () if self._restore else frozenset(record.removed)
        seed_names = (*self._seed_names, *record.seed_names)
        groups: dict[frozenset[Any], list[PlannedCell]] = {}
        for cell in record.planned:
            own = cell.choices_and_settings
            names = own.keys() - seeds_of(cell, seed_names) - frozenset(record.derived)  # which may follow from a seed
            groups.setdefault(frozenset((name, hashable(own[name])) for name in names), []).append(cell)
        shared = {**(record.choices or {}), **record.settings}
        return [
            self._trial(
                {**shared, **cells[0].choices_and_settings},
                {each.signature: by_signature.get(each.signature) for each in cells},
                metric,
                counts=any(each.signature not in removed for each in cells),
            )
            for cells in groups.values()
        ], metric

    def _trial(
        self, settings: Mapping[str, Any], runs: Mapping[str, StoredRun | None], metric: Metric | None, *, counts: bool
    ) -> Trial:
        is_inside = all(settings.get(name) == value for name, value in self._fixed.items())
        point = self._options.space.find(settings) if is_inside else None
        ended = [run for run in runs.values() if run is not None and run.record.status.is_ended]
        finished = [run for run in ended if run.is_complete]
        is_over, is_finished = not counts or len(ended) == len(runs), len(finished) == len(runs)
        values = [metric.values(run)[-1:] for run in finished] if metric is not None and is_finished else []
        value = fmean(each for (each,) in values) if values and all(values) else None
        pruned = [] if metric is None else [self._course(run, metric) for run in ended if _was_pruned(run)]
        first = pruned[0] if pruned else None
        return Trial(
            point, is_over=is_over, value=value, is_finished=is_finished, counts=counts, runs=runs, pruned=first
        )

    def _course(self, run: StoredRun, metric: Metric) -> Course:
        """The course of a run that was pruned, which is read once."""
        key = run.signature, run.record.attempt
        return self._pruned.get(key) or self._pruned.setdefault(key, read_course(run, metric))

    def _metric_of(self, finished: Sequence[StoredRun]) -> Metric | None:
        if self._metric is not None:
            return requested_metric(self._metric, finished)
        metrics = (find_metric(name, finished) for name in default_metrics(finished))
        return next((each for each in metrics if any(each.values(run) for run in finished)), None)


def _was_pruned(run: StoredRun) -> bool:
    return run.record.reason is Reason.PRUNED

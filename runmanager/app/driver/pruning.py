"""Pruning: which runs of a search end early, by Optuna's pruners, which are told what the runs have recorded so far."""

import time
import warnings
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from runmanager.app.compose.search_space import Course, Trial, import_optuna
from runmanager.app.driver.run_listener import Begun
from runmanager.records.run.status import Outcome, Reason, Status
from runmanager.records.storage.reader import StoredRun
from runmanager.records.storage.run_end import note_stop
from runmanager.results.metrics.metric import Metric
from runmanager.results.write_throttle import WriteThrottle

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

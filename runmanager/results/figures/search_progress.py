"""The figures of a search: the best so far over trials and over time, and how much each setting mattered."""

import datetime
import importlib.util
import math
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import accumulate
from typing import TYPE_CHECKING

from runmanager.records.storage.reader import StoredRun
from runmanager.records.sweep.sweep_record import SweepRecord
from runmanager.results.figures.axes import is_drawable, set_integer_ticks, set_number_scale
from runmanager.results.figures.figure import GridCell, SweepFigure, grid_cells, varying_columns
from runmanager.results.figures.style import GREY, new_figure, series_style
from runmanager.results.findings.outcomes import Outcome, outcomes
from runmanager.results.table_model.columns import Table, setting_name
from runmanager.results.table_model.formatting import metric_in_words, number
from runmanager.text import format_value, pluralize

if TYPE_CHECKING:
    from matplotlib.figure import Figure

_MIN_TRIALS = 3
_MIN_FOR_IMPORTANCES = 10


@dataclass(frozen=True)
class _Trial:
    """A cell whose runs have ended: after how many seconds of the search, and with which value, None without one."""

    seconds: float
    value: float | None


def search_figures(plan: SweepRecord | None, runs: Mapping[str, StoredRun], results: Table) -> list[SweepFigure]:
    """The figures of a sweep in which a command has searched, if some trials are complete."""
    if plan is None or not plan.search:
        return []
    cells = grid_cells(results)
    for outcome in outcomes(results, list(runs.values())):
        trials = _trials(cells, runs, outcome)
        if sum(each.value is not None for each in trials) >= _MIN_TRIALS:
            return _figures(trials, outcome, _importances(cells, outcome, varying_columns(results)))
    return []


def _trials(cells: Sequence[GridCell], runs: Mapping[str, StoredRun], outcome: Outcome) -> list[_Trial]:
    """The trials in the order of their ends."""
    of_cells = [(cell, [runs[row["run"]].record for row in cell.rows if row["run"] in runs]) for cell in cells]
    begun = [_seconds(each.started_at) for _, records in of_cells for each in records if each.started_at]
    ended = [
        (max(_seconds(each.ended_at) for each in records if each.ended_at), cell)
        for cell, records in of_cells
        if records and all(each.ended_at for each in records)
    ]
    values = [(at - min(begun), cell.mean_of(outcome.of_run)) for at, cell in ended]
    found = [_Trial(at, value if value is not None and is_drawable(value) else None) for at, value in values]
    return sorted(found, key=lambda each: each.seconds)


def _seconds(time: str | None) -> float:
    return datetime.datetime.fromisoformat(time or "").timestamp()


def _figures(trials: Sequence[_Trial], outcome: Outcome, importances: str) -> list[SweepFigure]:
    label, choose = metric_in_words(outcome.name), max if outcome.metric.more_is_better else min
    worst = -math.inf if outcome.metric.more_is_better else math.inf
    values = [worst if each.value is None else each.value for each in trials]
    best = list(accumulate(values, choose))
    pruned = sum(each.value is None for each in trials)
    without = f" {pluralize(pruned, 'trial has', 'trials have')} no value: pruned, or not complete." if pruned else ""
    last = best.index(best[-1])
    description = f"The best of {pluralize(len(trials), 'trial')}, {number(best[-1])}, is that of trial {last + 1}."
    places = {"trials": [float(at) for at in range(1, len(trials) + 1)], "seconds": [each.seconds for each in trials]}
    return [
        SweepFigure(
            f"best_by_{counted}",
            f"Best so far by {counted}",
            f"The best {label} so far by {counted} of the search; dots are single trials.{without}{more}",
            description,
            partial(_draw, xs, values, best, label, counted),
        )
        for (counted, xs), more in zip(places.items(), (importances, ""), strict=True)
    ]


def _draw(xs: Sequence[float], values: Sequence[float], best: Sequence[float], label: str, counted: str) -> "Figure":
    figure, axes = new_figure(height=3.0)
    known = [(x, value) for x, value in zip(xs, values, strict=True) if math.isfinite(value)]
    axes.plot(*zip(*known, strict=True), "o", color=GREY, markersize=3)
    line = [(x, value) for x, value in zip(xs, best, strict=True) if math.isfinite(value)]
    axes.step(*zip(*line, strict=True), where="post", color=series_style(0).colour)
    if counted == "trials":
        set_integer_ticks(axes)
    set_number_scale(axes, "y")
    axes.set_xlabel(counted)
    axes.set_ylabel(label)
    return figure


def _importances(cells: Sequence[GridCell], outcome: Outcome, settings: Sequence[str]) -> str:
    """How much of the outcome's variance each setting explains, as Optuna estimates it (fANOVA), in a sentence.

    Empty where Optuna is not installed, or few trials are complete.
    """
    known = [(cell, value) for cell in cells if (value := cell.mean_of(outcome.of_run)) is not None]
    known = [(cell, value) for cell, value in known if is_drawable(value) and all(map(cell.has, settings))]
    if len(known) < _MIN_FOR_IMPORTANCES or not settings or importlib.util.find_spec("optuna") is None:
        return ""
    import optuna  # late: it takes two seconds

    columns = {name: [cell.value(name) for cell, _ in known] for name in settings}
    distributions = {}
    for name, values in columns.items():
        if all(isinstance(each, int | float) and not isinstance(each, bool) for each in values):
            distributions[name] = optuna.distributions.FloatDistribution(min(values), max(values))
        else:
            columns[name] = [format_value(each) for each in values]
            distributions[name] = optuna.distributions.CategoricalDistribution(tuple(dict.fromkeys(columns[name])))
    optuna.logging.set_verbosity(optuna.logging.WARNING)
    study = optuna.create_study()
    for at, (_, value) in enumerate(known):
        params = {name: values[at] for name, values in columns.items()}
        study.add_trial(optuna.trial.create_trial(params=params, distributions=distributions, value=float(value)))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        evaluator = optuna.importance.FanovaImportanceEvaluator(seed=0)
        try:
            found = optuna.importance.get_param_importances(study, evaluator=evaluator)
        except (ImportError, RuntimeError, ValueError):  # without scikit-learn, or where the values do not vary
            return ""
    named = ", ".join(f"{setting_name(name)} {share:.0%}" for name, share in found.items())
    return f" Importances by Optuna (fANOVA): {named}."

"""The page for people: the answer first, then what it rests on."""

from collections.abc import Sequence
from typing import Any

from runmanager.records.run import Environment
from runmanager.records.states import Status
from runmanager.records.store import StoredRun, SweepContents
from runmanager.records.sweep import SweepRecord
from runmanager.results.columns import Table
from runmanager.results.comparison import with_numbered_reasons
from runmanager.results.crossover import Crossover, crossover_lines
from runmanager.results.facts import FACTS
from runmanager.results.figures import (
    MAX_CURVES,
    MAX_DOTS,
    Curve,
    Measured,
    crossover_figure,
    learning_curves,
    rounds_figure,
    throughput_figure,
)
from runmanager.results.formats import human, render_template
from runmanager.results.rounds import Rounds
from runmanager.results.seeds import collapse_seeds
from runmanager.results.sentences import answers

__all__ = ["report_page"]

_MAX_CROSSOVERS = 6
_MAX_ROUNDS = 6
_CURVE_METRICS = (
    ("val_accuracy", "validation accuracy (fraction)"),
    ("accuracy", "training accuracy (fraction)"),
    ("val_loss", "validation loss"),
    ("loss", "training loss"),
)


def report_page(
    sweep: SweepContents,
    plan: SweepRecord | None,
    *,
    results: Table,
    comparison: Table,
    causes: Sequence[str] = (),
    crossovers: Sequence[Crossover] = (),
    rounds: Sequence[Rounds] = (),
    work: Table | None = None,
) -> str:
    """The whole of report.html. It asks for nothing from elsewhere: styles and figures are in it.

    `causes` are lines on what bounds the compared runs, `crossovers` get a line and a figure each, `rounds` a figure.
    `work` are rows of what the runs achieve.
    """
    runs = {run.record.name: run for run in sweep.runs}
    labels = {row["run"]: _label(row, results) for row in results.rows}
    first_sentence, *more = answers(results, comparison)
    first_figures = [*map(_rounds_figure, rounds[:_MAX_ROUNDS]), *map(_crossover_figure, crossovers[:_MAX_CROSSOVERS])]
    return render_template(
        "report.html",
        title=sweep.paths.name,
        first_sentence=first_sentence,
        sentences=[*crossover_lines(crossovers), *more],
        causes=causes,
        work=work,
        results=collapse_seeds(results),
        comparison=with_numbered_reasons(comparison),
        figures=[*first_figures, *_figures(runs, labels, results)],
        failures=[run for run in sweep.runs if run.record.status.is_ended and run.record.status != Status.FINISHED],
        run_notes=[
            (run.record.name, note) for run in sweep.runs for note in (*run.record.deviations, *run.record.notes)
        ],
        facts=_facts(sweep.runs, plan),
    )


def _label(row: dict[str, Any], results: Table) -> str:
    """What tells a run from the others, in a figure."""
    names = [name for name in results.settings if name in results.shown]
    return ", ".join(f"{name}={human(row[name])}" for name in names if row[name] is not None) or str(row["run"])


def _figures(runs: dict[str, StoredRun], labels: dict[str, str], results: Table) -> list[dict[str, str]]:
    """Each figure as its SVG, caption and description."""
    figures = []
    measured = _measured(runs, labels, results)
    if measured:
        caption = (
            f"Throughput of each run{_first(len(measured), MAX_DOTS, 'fastest')}: the median of its measured epochs, "
            "with whiskers to their quartiles."
        )
        figures.append({"svg": throughput_figure(measured), "caption": caption})
    for metric, words in _CURVE_METRICS:
        curves = _curves(runs, labels, metric)
        if any(len(curve.epochs) > 1 for curve in curves):
            caption = f"Learning curves: {words} by epoch{_first(len(curves), MAX_CURVES, 'best', 'in colour')}."
            figures.append({"svg": learning_curves(curves, metric=words), "caption": caption})
            break
    return figures


def _crossover_figure(found: Crossover) -> dict[str, str]:
    (line,) = crossover_lines([found])
    caption = f"{line} Points are geometric means over runs; the band is the 95% interval of the crossing."
    return {"svg": crossover_figure(found), "caption": caption}


def _rounds_figure(found: Rounds) -> dict[str, str]:
    where = ", ".join(f"{name}={human(value)}" for name, value in found.settings.items())
    each = "each round" if found.count == len(found.ratios) else f"{found.count // len(found.ratios)} rounds at a time"
    caption = (
        f"{found.labels[1]} beside {found.labels[0]}{f' at {where}' if where else ''}: the ratio of their samples per "
        f"second in {each}, {found.count} rounds in order. The line is the speedup, the band its 95% interval; "
        "triangles at the frame are rounds beyond it."
    )
    return {"svg": rounds_figure(found), "caption": caption}


def _first(count: int, most: int, which: str, how: str = "shown") -> str:
    return f" (the {most} {which} of {count} {how})" if count > most else ""


def _measured(runs: dict[str, StoredRun], labels: dict[str, str], results: Table) -> list[Measured]:
    rows = [row for row in results.rows if row["samples_per_second"] is not None]
    rows.sort(key=lambda row: -row["samples_per_second"])
    return [Measured(labels[row["run"]], str(row["device"]), _rates(runs[row["run"]])) for row in rows]


def _rates(run: StoredRun) -> list[float]:
    return [rate for epoch in run.epochs if not epoch.warmup and (rate := epoch.samples_per_second) is not None]


def _curves(runs: dict[str, StoredRun], labels: dict[str, str], metric: str) -> list[Curve]:
    """The curves of a metric, the best end first; runs that have none of it left out."""
    curves = []
    for name, run in runs.items():
        points = [(epoch.epoch, value) for epoch in run.epochs if (value := getattr(epoch, metric)) is not None]
        if points:
            epochs, values = zip(*points, strict=True)
            curves.append(Curve(labels[name], epochs, values))
    curves.sort(key=lambda curve: curve.values[-1], reverse=metric.endswith("accuracy"))
    return curves


def _facts(runs: Sequence[StoredRun], plan: SweepRecord | None) -> list[tuple[str, str]]:
    """Where and with what the runs were made: each fact with all its values, those unknown throughout left out."""
    environments = [run.record.environment for run in runs]
    facts = [(words, _values([getattr(environment, name) for environment in environments])) for name, words in FACTS]
    facts.append(("Libraries", _values([_libraries(environment) for environment in environments])))
    if plan is not None:
        facts.append(("Command", " ".join(plan.command)))
        facts.append(("Created", plan.created))
    return [(words, values) for words, values in facts if values]


def _libraries(environment: Environment) -> str:
    return ", ".join(f"{name} {version}" for name, version in sorted(environment.libraries.items()))


def _values(values: Sequence[Any]) -> str:
    """The distinct values; numbers that differ from run to run as their range."""
    known = list(dict.fromkeys(value for value in values if value not in (None, "")))
    if len(known) > 1 and all(isinstance(value, float) for value in known):
        return f"{min(known):.4g} to {max(known):.4g}"
    if len(known) == 1 and isinstance(known[0], float):
        return f"{known[0]:.4g}"
    return "; ".join(human(value) for value in known)

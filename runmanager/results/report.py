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
from runmanager.results.figures.gallery import figures_of
from runmanager.results.figures.rendering import inline_svg
from runmanager.results.formats import human, render_template
from runmanager.results.rounds import Rounds
from runmanager.results.seeds import collapse_seeds
from runmanager.results.sentences import answers

__all__ = ["report_page"]


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
    first_sentence, *more = answers(results, comparison)
    figures = figures_of(sweep, results=results, comparison=comparison, crossovers=crossovers, rounds=rounds)
    return render_template(
        "report.html",
        title=sweep.paths.name,
        first_sentence=first_sentence,
        sentences=[*crossover_lines(crossovers), *more],
        causes=causes,
        work=work,
        results=collapse_seeds(results),
        comparison=with_numbered_reasons(comparison),
        figures=[(figure, inline_svg(figure)) for figure in figures],
        failures=[run for run in sweep.runs if run.record.status.is_ended and run.record.status != Status.FINISHED],
        run_notes=[
            (run.record.name, note) for run in sweep.runs for note in (*run.record.deviations, *run.record.notes)
        ],
        facts=_facts(sweep.runs, plan),
    )


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
